package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkClusterFailover is how long EDGE stands still when the instance that
// writes it is killed, or hangs: until another one does. Three agents send
// meanwhile, of which some have lost their session too.
func BenchmarkClusterFailover(b *testing.B) {
	const rounds = 5
	w, _, hubs := NewClusterWorld(b, 2)
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 5*time.Millisecond, uint64(i))
	}
	js, closes, err := w.jetStream()
	if err != nil {
		b.Fatal(err)
	}
	defer closes()
	worst := map[string]time.Duration{}
	for round := range 2 * rounds {
		name, stop := "killed", (*Process).Kill
		if round%2 == 1 {
			name, stop = "hung", func(p *Process) { p.Signal(syscall.SIGSTOP) }
		}
		writer := hubs[w.writer(b, js)]
		last, moved, stood := edgeLast(b, js), time.Now(), time.Duration(0)
		stop(writer)
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if now := edgeLast(b, js); now != last {
				last, moved = now, time.Now()
			}
			stood = max(stood, time.Since(moved))
		}
		worst[name] = max(worst[name], stood)
		writer.Kill()
		writer.Start()
		Eventually(b, time.Minute, "both hubs are ready", func() error {
			for _, addr := range w.HubHTTP {
				if err := ok(http.Get("http://" + addr + "/readyz")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for name, d := range worst {
		b.ReportMetric(d.Seconds(), "s-"+name)
	}
	w.stopLoads()
	b.Logf("%v: 0 lost, 0 duplicated, 0 reordered", w.Settle(2*time.Minute))
}

// writer is the index of the instance that unpacks into EDGE.
func (w *World) writer(b *testing.B, js jetstream.JetStream) (hub int) {
	b.Helper()
	Eventually(b, time.Minute, "EDGE has a writer", func() error {
		kv, err := js.KeyValue(b.Context(), "fieldpost_hub")
		if err != nil {
			return err
		}
		e, err := kv.Get(b.Context(), "unpack.lease.EDGE")
		if err != nil {
			return err
		}
		var lease struct{ Holder string }
		if err := json.Unmarshal(e.Value(), &lease); err != nil {
			return err
		}
		for i, addr := range w.HubHTTP {
			var s struct{ Instance string }
			resp, err := http.Get("http://" + addr + "/v1/status")
			if err != nil {
				return err
			}
			err = json.NewDecoder(resp.Body).Decode(&s)
			resp.Body.Close()
			if err != nil {
				return err
			}
			if s.Instance == lease.Holder {
				hub = i
				return nil
			}
		}
		return fmt.Errorf("%q is none of the hubs", lease.Holder)
	})
	return hub
}

func edgeLast(b *testing.B, js jetstream.JetStream) uint64 {
	b.Helper()
	s, err := js.Stream(b.Context(), "EDGE")
	if err != nil {
		b.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}
