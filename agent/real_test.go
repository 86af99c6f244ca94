package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// startReal runs an agent on a real spool, without a hub.
func startReal(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := prepare(t, change)
	w.store.Close()
	open := w.a.openSpool
	w.a.openStore = func() (store, error) {
		st, err := open()
		if err == nil {
			w.real = st.(*spool.Spool)
		}
		return st, err
	}
	w.run()
	w.eventually("ready", func() bool { return w.a.gate.now() == ready })
	return w
}

// held decodes what the spool holds, by flow and sequence.
func held(t testing.TB, s *spool.Spool) map[wire.Flow]map[uint64]wire.Message {
	t.Helper()
	out := map[wire.Flow]map[uint64]wire.Message{}
	dec := wire.NewDecoder()
	for _, f := range s.Flows() {
		out[f.Flow] = map[uint64]wire.Message{}
		for from := f.First; ; {
			data, err := s.Read(f.Flow, from)
			if errors.Is(err, spool.ErrEnd) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := dec.Decode(data, true)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range b.Messages {
				out[f.Flow][b.First+uint64(i)] = m
			}
			from = b.Last() + 1
		}
	}
	return out
}

// reopen opens the spool of an agent that has stopped.
func (w *world) reopen() *spool.Spool {
	w.t.Helper()
	s, err := spool.Open(spool.Config{Dir: w.a.cfg.spoolDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { s.Close() })
	return s
}

func flowOf(t testing.TB, epoch, lane string) wire.Flow {
	t.Helper()
	e, err1 := wire.ParseEpoch(epoch)
	l, err2 := wire.ParseLane(lane)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return wire.Flow{Epoch: e, Lane: l}
}

// Every answer that says "accepted" is true after a stop in the middle of the
// load; whoever was not accepted was told, or saw the connection break.
func TestStopUnderLoad(t *testing.T) {
	w := startReal(t, nil)
	type accepted struct {
		flow    wire.Flow
		seq     uint64
		payload string
	}
	var mu sync.Mutex
	var all []accepted
	note := func(epoch, lane string, seq uint64, payload string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, accepted{flowOf(t, epoch, lane), seq, payload})
	}
	enough := func() bool { mu.Lock(); defer mu.Unlock(); return len(all) > 100 }
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Go(func() { // over HTTP
			for i := 0; ; i++ {
				payload := fmt.Sprintf("h%d/%d", p, i)
				resp, err := w.http.Post("http://agent/v1/publish/http", "", strings.NewReader(payload))
				if err != nil {
					return // the socket is gone
				}
				var out struct {
					Epoch, Lane, Code string
					Seq               uint64
				}
				err = json.NewDecoder(resp.Body).Decode(&out)
				resp.Body.Close()
				switch {
				case err != nil:
					t.Errorf("%d: %v", resp.StatusCode, err)
					return
				case resp.StatusCode == http.StatusOK:
					note(out.Epoch, out.Lane, out.Seq, payload)
				case resp.StatusCode != http.StatusServiceUnavailable || out.Code != "stopping":
					t.Errorf("%d %s", resp.StatusCode, out.Code)
					return
				}
			}
		})
		c := w.dial()
		wg.Go(func() { // over frames
			var waits []*client.Pending
			for i := 0; c.Err() == nil; i++ {
				waits = append(waits, c.PublishAsync(client.Message{Subject: "frames", Payload: fmt.Appendf(nil, "f%d/%d", p, i)}))
				if i%500 == 499 {
					c.Flush(background)
				}
			}
			refused := false
			for i, p0 := range waits {
				r, err := p0.Wait(background)
				var e *client.Error
				switch {
				case err == nil && refused:
					t.Errorf("frame %d was accepted after one that was not", i)
				case err == nil:
					note(r.Epoch, string(r.Lane), r.Seq, fmt.Sprintf("f%d/%d", p, i))
				case !errors.As(err, &e) || e.Code != "stopping":
					t.Errorf("frame %d: %v", i, err)
					return
				default:
					refused = true
				}
			}
		})
	}
	w.eventually("load", enough)
	w.stop()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	wg.Wait()
	s := w.reopen()
	stored := held(t, s)
	n := 0
	for _, msgs := range stored {
		n += len(msgs)
	}
	for _, a := range all {
		if m, ok := stored[a.flow][a.seq]; !ok || string(m.Payload) != a.payload {
			t.Fatalf("%v/%d: %q is not there, but %q", a.flow, a.seq, a.payload, m.Payload)
		}
	}
	if n != len(all) {
		t.Errorf("%d stored, %d accepted", n, len(all))
	}
}

// An id is known to the next run of the agent.
func TestIDAcrossRuns(t *testing.T) {
	w := startReal(t, nil)
	first := w.do("POST", "/v1/publish/a", "x", "Fieldpost-Id", "one")
	w.do("POST", "/v1/publish/a", "y")
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	again := startReal(t, func(c *Config) { c.DataDir = w.a.cfg.DataDir })
	if r := again.do("POST", "/v1/publish/a", "x", "Fieldpost-Id", "one"); r.status != 200 || r.body != first.body {
		t.Errorf("%s, want %s", r.body, first.body)
	}
	r, err := again.dial().Publish(background, client.Message{Subject: "a", ID: "one"})
	if err != nil || !r.Duplicate || r.Seq != 1 {
		t.Errorf("%+v %v", r, err)
	}
	next := again.do("POST", "/v1/publish/a", "z", "Fieldpost-Id", "two")
	if !strings.Contains(next.body, `"seq":3`) {
		t.Errorf("numbering goes on: %s", next.body)
	}
}

func TestStatusOfRealSpool(t *testing.T) {
	w := startReal(t, nil)
	if r := w.do("GET", "/v1/status", ""); r.status != 200 || !strings.Contains(r.body, `"epoch":""`) {
		t.Errorf("before the first message: %s", r.body)
	}
	w.do("POST", "/v1/publish/a", "x", "Fieldpost-Lane", "bulk")
	var st statusJSON
	r := w.do("GET", "/v1/status", "")
	if err := json.Unmarshal([]byte(r.body), &st); err != nil {
		t.Fatal(err)
	}
	if b := st.Backlog[wire.Bulk]; b.Messages != 1 || b.Bytes == 0 || b.Oldest == nil || len(st.Backlog) != 3 || st.Disk.Used == 0 || st.Disk.Max == 0 {
		t.Errorf("%s", r.body)
	}
	if m := w.do("GET", "/metrics", ""); !strings.Contains(m.body, "fieldpost_agent_fsync_duration_seconds_count 1\n") {
		t.Errorf("no fsync was counted:\n%s", m.body)
	}
}

// Two agents on one folder or one socket: the second is refused, the first goes on.
func TestSecondAgent(t *testing.T) {
	w := startReal(t, nil)
	cfg := w.a.cfg
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Run(background); !errors.Is(err, ErrSocketInUse) {
		t.Errorf("same socket: %v", err)
	}
	cfg.Socket.Path += "2"
	if b, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := b.Run(background); runtime.GOOS == "linux" && !errors.Is(err, spool.ErrLocked) {
		t.Errorf("same folder: %v", err)
	}
	if r := w.do("POST", "/v1/publish/a", "x"); r.status != 200 {
		t.Errorf("the first: %d %s", r.status, r.body)
	}
}
