package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

func restore(t testing.TB, cfg Config) error {
	t.Helper()
	m, err := Check(ctx(t), cfg.Dir, io.Discard)
	if err != nil {
		return err
	}
	cfg.Watch = 500 * time.Millisecond
	if len(cfg.Layout.Routes) == 0 {
		cfg.Layout = testLayout
	}
	if err := Restore(ctx(t), cfg, m); err != nil {
		return err
	}
	return Finish(ctx(t), cfg, m)
}

// TestMove: a hub's streams move from its own server to a cluster with three
// replicas, and back. Sequences, gaps, times and the consumer's state stay; each
// server of the cluster has all of it before the restore is over.
func TestMove(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	dir, m := save(t, old)
	before, id := all(t, old, "EDGE"), hubOf(t, old)
	i := slices.IndexFunc(m.Streams, func(s Stream) bool { return s.Name == "EDGE" })
	if e := m.Streams[i]; m.HubID != id || e.First != 1100 || e.Last != 3000 || e.Messages != 999 ||
		!slices.Equal(e.Consumers, []Consumer{{Name: "work", Acked: 1500, Pending: 50, Consumed: 1599}}) {
		t.Errorf("the manifest says %s, %+v", m.HubID, e.Consumers)
	}
	servers, urls := cluster(t, 1<<30)
	s := open(t, store.Config{URLs: urls, Replicas: 3})
	if err := restore(t, Config{Store: s, Dir: dir, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	for _, srv := range servers {
		if n := held(t, srv, "EDGE"); n != 999 {
			t.Errorf("%s has %d messages of EDGE", srv.Name(), n)
		}
	}
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Error(err)
	}
	same(t, s, before, id)

	again, m := save(t, s)
	i = slices.IndexFunc(m.Streams, func(s Stream) bool { return s.Name == "EDGE" })
	// A cluster gives out no more than this of a consumer: what it has acked above is
	// delivered again.
	if c := m.Streams[i].Consumers; !slices.Equal(c, []Consumer{{Name: "work", Acked: 1500, Consumed: 1500}}) {
		t.Errorf("of the cluster: %+v", c)
	}
	back := embedded(t, t.TempDir())
	if err := restore(t, Config{Store: back, Dir: again}); err != nil {
		t.Fatal(err)
	}
	if now := all(t, back, "EDGE"); !slices.Equal(before, now) || hubOf(t, back) != id {
		t.Errorf("back again, EDGE has %d messages, or they differ", len(now))
	}
	if err := back.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Error(err)
	}
}

// held is how many messages of a stream one server has.
func held(t testing.TB, s *server.Server, stream string) uint64 {
	t.Helper()
	j, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range j.AccountDetails {
		for _, st := range a.Streams {
			if st.Name == stream {
				return st.State.Msgs
			}
		}
	}
	return 0
}

func hubOf(t testing.TB, s *store.Store) string {
	t.Helper()
	id, err := s.HubID(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

type message struct {
	seq           uint64
	at            int64
	subject, data string
}

func all(t testing.TB, s *store.Store, stream string) (out []message) {
	t.Helper()
	for seq := uint64(1); ; seq++ {
		m, err := s.Next(ctx(t), stream, ">", seq)
		if errors.Is(err, store.ErrNotFound) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, message{m.Seq, m.Time.UnixNano(), m.Subject, string(m.Data) + m.Header.Get("Unit")})
		seq = m.Seq
	}
}

// same compares EDGE, and what its consumer is given next.
func same(t testing.TB, s *store.Store, before []message, id string) {
	t.Helper()
	if now := all(t, s, "EDGE"); !slices.Equal(before, now) || hubOf(t, s) != id {
		t.Errorf("EDGE has %d messages, and had %d; or they differ", len(now), len(before))
	}
	if i, err := s.Info(ctx(t), "EDGE"); err != nil || i.First != 1100 || i.Last != 3000 {
		t.Errorf("%+v, %v", i, err)
	}
	cons, err := s.JetStream().Consumer(ctx(t), "EDGE", "work")
	if err != nil {
		t.Fatal(err)
	}
	if c := cons.CachedInfo(); c.AckFloor.Stream != 1500 || c.Delivered.Stream != 1599 || c.NumAckPending != 50 {
		t.Errorf("the consumer is at %+v, %+v, with %d pending", c.AckFloor, c.Delivered, c.NumAckPending)
	}
	if meta, err := following(t, cons).Metadata(); err != nil || meta.Sequence.Stream != 1600 {
		t.Errorf("the consumer is given %+v, %v", meta, err)
	}
}

// TestUnfinished: a restore that dies keeps hubs away, is not taken over by another
// backup, and goes on.
func TestUnfinished(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	dir, m := save(t, old)
	other, _ := save(t, old)
	s := embedded(t, t.TempDir())
	for n := range m.Streams {
		died := errors.New("died")
		calls := 0
		last := n == len(m.Streams)-1
		err := restore(t, Config{Store: s, Dir: dir, Fault: func(point string) error {
			if calls++; !last && calls == 2 { // one gets on
				return died
			}
			return nil
		}})
		if last && err == nil {
			break
		}
		if !errors.Is(err, died) || !strings.Contains(err.Error(), "run it again") {
			t.Fatalf("%d: %v", n, err)
		}
		if err := s.EnsureStreams(ctx(t), testLayout); !errors.Is(err, store.ErrRestoring) {
			t.Fatalf("a hub: %v", err)
		}
		if _, err := Save(ctx(t), Config{Store: s, Dir: t.TempDir()}); !errors.Is(err, store.ErrRestoring) {
			t.Fatalf("a backup: %v", err)
		}
		if n == len(m.Streams)-2 { // a power cut takes of what was complete
			if err := s.PurgeTo(ctx(t), "EDGE", 1200); err != nil {
				t.Fatal(err)
			}
			if err := s.JetStream().DeleteStream(ctx(t), "DEAD"); err != nil {
				t.Fatal(err)
			}
		}
		if err := restore(t, Config{Store: s, Dir: other}); err == nil || !strings.Contains(err.Error(), "another backup") {
			t.Fatalf("another backup: %v", err)
		}
	}
	if !slices.Equal(all(t, old, "EDGE"), all(t, s, "EDGE")) {
		t.Error("EDGE differs")
	}
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Error(err)
	}
}

// TestInterrupted: a restore to a cluster that ends in the middle of a stream can be
// run again at once.
func TestInterrupted(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	for range 60 {
		noise := make([]byte, 100_000)
		rand.Read(noise)
		if _, err := old.PublishBatch(ctx(t), []store.Msg{{Subject: "edge.b.x", Header: nats.Header{}, Data: noise}}); err != nil {
			t.Fatal(err)
		}
	}
	dir, m := save(t, old)
	_, urls := cluster(t, 1<<30)
	s := open(t, store.Config{URLs: urls, Replicas: 3})
	cfg := Config{Store: s, Dir: dir, Replicas: 3, Layout: testLayout, Watch: 500 * time.Millisecond}
	for _, share := range []int64{30, 60, 90} {
		limited, cancel := context.WithCancel(ctx(t))
		cfg.Progress = &after{left: m.Bytes() / 100 * share, do: cancel}
		if err := Restore(limited, cfg, m); !errors.Is(err, context.Canceled) {
			t.Fatalf("%d%%: %v", share, err)
		}
		if err := s.EnsureStreams(ctx(t), testLayout); !errors.Is(err, store.ErrRestoring) {
			t.Fatalf("a hub: %v", err)
		}
	}
	if err := restore(t, Config{Store: s, Dir: dir, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(all(t, old, "EDGE"), all(t, s, "EDGE")) {
		t.Error("EDGE differs")
	}
}

// after calls do when so many bytes have passed.
type after struct {
	left int64
	do   func()
}

func (a *after) Write(b []byte) (int, error) {
	if a.left -= int64(len(b)); a.left <= 0 {
		a.do()
	}
	return len(b), nil
}

// TestTwoAtOnce: a restore that another has overtaken ends, and breaks nothing.
func TestTwoAtOnce(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	dir, _ := save(t, old)
	s := embedded(t, t.TempDir())
	var second error
	calls := 0
	err := restore(t, Config{Store: s, Dir: dir, Fault: func(string) error {
		if calls++; calls == 3 {
			second = restore(t, Config{Store: s, Dir: dir})
		}
		return nil
	}})
	if second != nil || err == nil {
		t.Fatalf("%v; %v", err, second)
	}
	if !slices.Equal(all(t, old, "EDGE"), all(t, s, "EDGE")) {
		t.Error("EDGE differs")
	}
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Error(err)
	}
}

// TestDamaged: no byte of a backup can go or change unnoticed.
func TestDamaged(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	dir, m := save(t, old)
	edge := m.Streams[slices.IndexFunc(m.Streams, func(s Stream) bool { return s.Name == "EDGE" })].File
	flip := func(at int) func(b []byte) []byte {
		return func(b []byte) []byte { b[at%len(b)] ^= 1; return b }
	}
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte
		want   string
	}{
		"short":         {edge, func(b []byte) []byte { return b[:len(b)-1] }, "use another backup"},
		"long":          {edge, func(b []byte) []byte { return append(b, 0) }, "use another backup"},
		"first byte":    {edge, flip(0), "use another backup"},
		"in the middle": {edge, flip(5000), "use another backup"},
		"gone":          {edge, nil, "use another backup"},
		"manifest":      {manifestName, flip(200), "use another backup"},
		"no manifest":   {manifestName, nil, "no complete backup"},
		"half of it":    {manifestName, func(b []byte) []byte { return b[:len(b)/2] }, "use another backup"},
		"newer": {manifestName, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"version": 1`, `"version": 2`, 1))
		}, "version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(copied, c.file)
			b, err := os.ReadFile(path)
			if err == nil && c.change == nil {
				err = os.Remove(path)
			} else if err == nil {
				err = os.WriteFile(path, c.change(b), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Check(ctx(t), copied, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := Check(ctx(t), dir, io.Discard); err != nil {
		t.Error(err)
	}
}

// TestRefused: what cannot work is refused before anything is made.
func TestRefused(t *testing.T) {
	old := embedded(t, t.TempDir())
	fill(t, old)
	dir, _ := save(t, old)
	small := testLayout
	small.Routes = []store.RouteStream{{Name: "EDGE", Subjects: []string{"edge.>"}, MaxBytes: 10_000}}
	for name, c := range map[string]struct {
		cfg     store.Config
		layout  store.Layout
		prepare func(*store.Store) error
		want    string
		left    []string
	}{
		"small route":    {layout: small, want: "raise the max_bytes"},
		"small disk":     {cfg: store.Config{MaxStore: 100 << 20}, want: "max_file_store"},
		"small messages": {cfg: store.Config{MaxPayload: 80}, want: "max_payload"},
		"in use":         {prepare: func(s *store.Store) error { return s.EnsureStreams(ctx(t), testLayout) }},
		"holds something": {prepare: func(s *store.Store) error {
			err := s.EnsureStreams(ctx(t), testLayout)
			if err == nil {
				_, err = s.HubID(ctx(t))
			}
			return err
		}, want: "a hub has run on this target", left: []string{"ADVISORIES", "AUDIT", "BLOCKS", "COMMANDS", "DEAD", "EDGE", "KV_fieldpost_commands", "KV_fieldpost_dead", "KV_fieldpost_desired", "KV_fieldpost_devices", "KV_fieldpost_hub", "RETRY"}},
		"foreign": {prepare: func(s *store.Store) error {
			_, err := s.JetStream().CreateStream(ctx(t), jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"other"}})
			return err
		}, want: "not Fieldpost's", left: []string{"EDGE"}},
		"overlap": {prepare: func(s *store.Store) error {
			_, err := s.JetStream().CreateStream(ctx(t), jetstream.StreamConfig{Name: "MINE", Subjects: []string{"edge.mine"}})
			return err
		}, want: "takes its subjects", left: []string{"MINE"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir, c.cfg.Offline = t.TempDir(), true
			if c.cfg.MaxStore == 0 {
				c.cfg.MaxStore = 1 << 30
			}
			s := open(t, c.cfg)
			if c.prepare != nil {
				if err := c.prepare(s); err != nil {
					t.Fatal(err)
				}
			}
			err := restore(t, Config{Store: s, Dir: dir, Layout: c.layout})
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			var left []string
			names := s.JetStream().StreamNames(ctx(t))
			for n := range names.Name() {
				left = append(left, n)
			}
			slices.Sort(left)
			if names.Err() != nil || !slices.Equal(left, c.left) {
				t.Errorf("left: %v, %v", left, names.Err())
			}
		})
	}
}

// TestHubAtWork: where no lock tells, the leases do.
func TestHubAtWork(t *testing.T) {
	s := open(t, store.Config{URLs: []string{plain(t)}})
	fill(t, s)
	kv, err := s.KV(ctx(t), store.HubBucket)
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx(t))
	done := make(chan error, 1)
	go func() {
		for working.Err() == nil {
			if _, err := kv.Put(ctx(t), "unpack.lease.EDGE", []byte(`{"holder":"abcd"}`)); err != nil {
				done <- err
				return
			}
			select {
			case <-working.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		done <- nil
	}()
	dir := filepath.Join(t.TempDir(), "new")
	_, err = Save(ctx(t), Config{Store: s, Dir: dir, Watch: time.Minute})
	if !errors.Is(err, ErrHubRuns) || !strings.Contains(err.Error(), "stop every instance") {
		t.Errorf("got %v", err)
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
	// One that starts in the middle leaves no backup.
	_, err = Save(ctx(t), Config{Store: s, Dir: dir, Watch: 500 * time.Millisecond, Fault: func(string) error {
		_, err := kv.Put(ctx(t), "unpack.lease.EDGE", []byte(`{"holder":"abcd"}`))
		return err
	}})
	if !errors.Is(err, ErrHubRuns) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}

// TestFolder: a backup begins in a new folder.
func TestFolder(t *testing.T) {
	s := embedded(t, t.TempDir())
	dir := t.TempDir()
	if _, err := Save(ctx(t), Config{Store: s, Dir: dir}); err == nil || !strings.Contains(err.Error(), "no streams of Fieldpost") {
		t.Errorf("nothing to save: %v", err)
	}
	fill(t, s)
	full := errors.New("full")
	calls := 0
	_, err := Save(ctx(t), Config{Store: s, Dir: dir, Fault: func(string) error {
		if calls++; calls == 4 {
			return full
		}
		return nil
	}})
	if in, e := os.ReadDir(dir); !errors.Is(err, full) || e != nil || len(in) > 0 {
		t.Errorf("after a failure %v are left: %v, %v", in, err, e)
	}
	if _, err := Save(ctx(t), Config{Store: s, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := Save(ctx(t), Config{Store: s, Dir: dir}); err == nil || !strings.Contains(err.Error(), "name a new folder") {
		t.Errorf("over another: %v", err)
	}
}

func FuzzScan(f *testing.F) {
	s := embedded(f, f.TempDir())
	fill(f, s)
	dir, m := save(f, s)
	for _, st := range m.Streams {
		b, err := os.ReadFile(filepath.Join(dir, st.File))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4000)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := scan(strings.NewReader(string(b))); err == nil && c.messages > 0 && c.last > c.state.Last {
			t.Error("a message after the last")
		}
	})
}
