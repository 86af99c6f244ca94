package registry

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func bucket(t testing.TB) jetstream.KeyValue {
	t.Helper()
	kv, _ := bucketIn(t)
	return kv
}

func bucketIn(t testing.TB) (jetstream.KeyValue, jetstream.JetStream) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "fieldpost_devices"})
	if err != nil {
		t.Fatal(err)
	}
	return kv, js
}

// run opens a registry and runs it; stop waits for its last write.
func run(t *testing.T, kv Bucket, instance string) (r *Registry, stop func()) {
	t.Helper()
	r, err := Open(t.Context(), Config{Bucket: kv, Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return r, stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestRestartKnowsDevicesAndTokens(t *testing.T) {
	kv := bucket(t)
	r, stop := run(t, kv, "h1")
	a := &agent{r: r, device: "d1", process: "p"}
	a.open(true)
	copied := *a
	a.open(true)
	a.beat(10)
	stop()

	r, _ = run(t, kv, "h2")
	if d := get(t, r, "d1"); d.Version != "1" || d.Backlog["normal"].Messages != 7 || d.Instance != "h1" || !d.Online {
		t.Errorf("after a restart: %+v", d)
	}
	a.r, copied.r = r, r
	if _, notice := a.open(true); notice != "" {
		t.Errorf("the original is taken for a copy")
	}
	if _, notice := copied.open(true); notice != NoticeClone {
		t.Errorf("the copy is not noticed")
	}
}

func TestInstancesShareTokensAndReports(t *testing.T) {
	kv := bucket(t)
	r1, _ := run(t, kv, "h1")
	r2, _ := run(t, kv, "h2")
	a := &agent{r: r1, device: "d1", process: "p"}
	first, _ := a.open(true)
	copied := *a
	a.open(true)
	eventually(t, "the other instance knows the token", func() bool {
		r2.mu.Lock()
		defer r2.mu.Unlock()
		e := r2.lookup("d1")
		return e != nil && e.rec.Token == link(a.token)
	})
	copied.r = r2
	copied.process = "q"
	if _, notice := copied.open(true); notice != NoticeClone {
		t.Fatal("the copy at the other instance is not noticed")
	}
	eventually(t, "the report is at the first instance", func() bool { return reports(t, r1, "d1") == 1 })

	// Both count at the same time: none is lost.
	for i := range 5 {
		r1.Opened("d1", &wire.Open{Process: "x"}, wire.SessionID{1, byte(i)})
		r2.Opened("d1", &wire.Open{Process: "y"}, wire.SessionID{2, byte(i)})
	}
	eventually(t, "both instances show all reports", func() bool {
		return reports(t, r1, "d1") == 11 && reports(t, r2, "d1") == 11
	})
	r1.Ended("d1", first, true)
	if !get(t, r1, "d1").Online {
		t.Error("offline with sessions left")
	}
}

// A write on top of another instance's is refused, merged and tried again.
func TestReportsSurviveARace(t *testing.T) {
	kv := bucket(t)
	c := newClock()
	var rs [2]*Registry
	for i := range rs {
		var err error
		if rs[i], err = Open(t.Context(), Config{Bucket: kv, Instance: string(rune('a' + i)), Now: c.now}); err != nil {
			t.Fatal(err)
		}
	}
	a := &agent{r: rs[0], device: "d1", process: "p"}
	a.open(true)
	(&flusher{r: rs[0]}).flush(t.Context(), true)
	for round := range 3 {
		a.open(true)
		for i, r := range rs {
			r.Opened("d1", &wire.Open{Process: "x", Token: newToken("")}, wire.SessionID{byte(round), byte(i)})
		}
		for range 3 { // again what was in conflict
			(&flusher{r: rs[1]}).flush(t.Context(), true)
			(&flusher{r: rs[0]}).flush(t.Context(), true)
			c.advance(time.Minute)
		}
	}
	fresh, err := Open(t.Context(), Config{Bucket: kv, Instance: "c", Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	// The second instance knew of no token in the first round: one report less.
	if n := reports(t, fresh, "d1"); n != 5 {
		t.Errorf("%d reports", n)
	}
	if known(fresh, "d1").rec.Token != link(a.token) {
		t.Error("the confirmed token got lost")
	}
}

// counting counts writes and can refuse them.
type counting struct {
	jetstream.KeyValue
	mu     sync.Mutex
	writes int
	broken bool
}

func (c *counting) write() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	if c.broken {
		return errors.New("no leader")
	}
	return nil
}

func (c *counting) Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error) {
	if err := c.write(); err != nil {
		return 0, err
	}
	return c.KeyValue.Create(ctx, key, value, opts...)
}

func (c *counting) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	if err := c.write(); err != nil {
		return 0, err
	}
	return c.KeyValue.Update(ctx, key, value, rev)
}

func TestHeartbeatsAreCoalesced(t *testing.T) {
	kv := &counting{KeyValue: bucket(t)}
	c := newClock()
	r, err := Open(t.Context(), Config{Bucket: kv, Instance: "h1", Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	f := flusher{r: r}
	a := &agent{r: r, device: "d1", process: "p"}
	a.open(true)
	for range 1200 { // a heartbeat a second for 20 minutes
		a.beat(1)
		f.flush(t.Context(), false)
		c.advance(time.Second)
	}
	if kv.writes < 4 || kv.writes > 8 {
		t.Errorf("%d writes in 20 minutes", kv.writes)
	}

	// A bucket that fails is tried again, and costs nothing meanwhile.
	kv.broken, kv.writes = true, 0
	for range 20 {
		a.beat(1)
		a.open(true)
		f.flush(t.Context(), false)
		c.advance(time.Second)
	}
	if kv.writes == 0 || kv.writes > 11 {
		t.Errorf("%d attempts in 20 seconds", kv.writes)
	}
	kv.broken = false
	c.advance(time.Minute)
	f.flush(t.Context(), false)
	fresh, err := Open(t.Context(), Config{Bucket: kv, Instance: "h2", Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	if known(fresh, "d1").rec.Token != known(r, "d1").rec.Token {
		t.Error("the token did not survive a bucket that failed for a while")
	}
}

func TestUnreadableAndDeletedEntries(t *testing.T) {
	kv := bucket(t)
	if _, err := kv.PutString(t.Context(), "d1", "not json"); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "not.a.device", "{}"); err != nil {
		t.Fatal(err)
	}
	r, _ := run(t, kv, "h1")
	if n := r.Devices("", "", 10).Total; n != 1 {
		t.Fatalf("%d devices", n)
	}
	(&agent{r: r, device: "d1", process: "p"}).beat(10)
	eventually(t, "the entry is written anew", func() bool {
		e, err := kv.Get(t.Context(), "d1")
		return err == nil && e.Revision() > 2
	})
	if err := kv.Delete(t.Context(), "d1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the device is forgotten", func() bool { _, ok := r.Device("d1"); return !ok })
	(&agent{r: r, device: "d1", process: "p"}).beat(10)
	eventually(t, "it is back", func() bool {
		e, err := kv.Get(t.Context(), "d1")
		return err == nil && e.Operation() == jetstream.KeyValuePut
	})
}

// TestHeartbeatAtAnother: the session is at one instance, and another, which knows
// nothing of it, hears the device's heartbeat, and may write it first.
func TestHeartbeatAtAnother(t *testing.T) {
	for name, first := range map[string]int{"the heartbeat's is written first": 1, "the session's is": 0} {
		t.Run(name, func(t *testing.T) {
			kv, c := bucket(t), newClock()
			var both [2]*Registry
			for i, instance := range []string{"h1", "h2"} {
				both[i] = newRegistry(Config{Bucket: kv, Instance: instance, Now: c.now})
			}
			a := &agent{device: "d1", process: "p"}
			for moves := range 3 {
				at := both[moves%2]
				a.r = at
				a.open(true)
				c.advance(20 * time.Millisecond)
				a.r = both[1-moves%2]
				a.beat(10)
				for i := range 8 {
					f := flusher{r: both[(first+i)%2]}
					f.flush(t.Context(), true)
					e, err := kv.Get(t.Context(), "d1")
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range both {
						if i > 0 { // at first nobody has seen what the other wrote
							r.learn(e)
						}
					}
				}
				for i, r := range both {
					if d := get(t, r, "d1"); d.Instance != at.cfg.Instance || !d.Online || d.Backlog["normal"].Messages != 7 {
						t.Errorf("at %s, h%d shows %+v", at.cfg.Instance, i+1, d)
					}
				}
				c.advance(time.Minute)
			}
		})
	}
}
