package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var testLayout = Layout{
	BlocksMaxBytes: 64 << 20, DeadMaxAge: time.Hour, DeadMaxBytes: 1 << 20,
	Routes: []RouteStream{{Name: "EDGE", Subjects: []string{"edge.>"}, MaxAge: time.Hour, MaxBytes: 64 << 20, Compress: true}},
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Listen, cfg.MaxStore = "127.0.0.1:-1", 1<<30
	s, err := Open(ctx(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ready(t testing.TB, cfg Config) *Store {
	t.Helper()
	s := open(t, cfg)
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Fatal(err)
	}
	return s
}

func ctx(t testing.TB) context.Context {
	c, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return c
}

func msg(subject, guard, data string) Msg {
	m := Msg{Subject: subject, Data: []byte(data), Header: nats.Header{"Fieldpost-Received": {"1-1"}}}
	if guard != "" {
		m.Header.Set(GuardSubject, guard)
	}
	return m
}

const subjectA, subjectB = "fp.blocks.a.0000000000000001.normal", "fp.blocks.b.0000000000000002.normal"

func TestPublishBatchAndRead(t *testing.T) {
	s := ready(t, Config{})
	last := uint64(0)
	for _, n := range []int{1, 2, 1000, 1, 500} {
		msgs := make([]Msg, n)
		for i := range msgs {
			msgs[i] = msg(subjectA, "", fmt.Sprint(last+uint64(i)+1))
		}
		msgs[0].Header.Set(GuardSubject, fmt.Sprint(last))
		got, err := s.PublishBatch(ctx(t), msgs)
		if err != nil || got != last+uint64(n) {
			t.Fatalf("batch of %d: sequence %d, %v; want %d", n, got, err, last+uint64(n))
		}
		last = got
		if h := msgs[n-1].Header; len(h) > 2 || h.Get("Nats-Batch-Id") != "" {
			t.Errorf("headers were not restored: %v", h)
		}
	}
	m, err := s.Last(ctx(t), Blocks, subjectA)
	if err != nil || m.Seq != last || string(m.Data) != fmt.Sprint(last) || m.Header.Get("Fieldpost-Received") != "1-1" || m.Time.IsZero() {
		t.Errorf("Last: %+v, %v", m, err)
	}
	if _, err := s.Last(ctx(t), Blocks, subjectB); !errors.Is(err, ErrNotFound) {
		t.Errorf("Last of an unused subject: %v", err)
	}
	if m, err := s.Get(ctx(t), Blocks, 3); err != nil || string(m.Data) != "3" || m.Subject != subjectA {
		t.Errorf("Get: %+v, %v", m, err)
	}
	if _, err := s.Last(ctx(t), "NONE", subjectB); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("Last in a stream that is not there: %v", err)
	}
	info, err := s.Info(ctx(t), Blocks)
	if err != nil || info.First != 1 || info.Last != last || len(info.Incarnation) != 16 || info.MaxBytes != 64<<20 {
		t.Errorf("Info: %+v, %v", info, err)
	}
}

func TestReaderReadsAllInOrder(t *testing.T) {
	s := ready(t, Config{})
	r, err := s.Reader(Blocks, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(ctx(t)); !errors.Is(err, ErrNotFound) {
		t.Fatalf("empty stream: %v", err)
	}
	const total = 3000
	go func() {
		for n := 0; n < total; n += 100 {
			msgs := make([]Msg, 100)
			for i := range msgs {
				msgs[i] = msg(subjectA, "", strings.Repeat("x", 5000)+fmt.Sprint(n+i+1))
			}
			if _, err := s.PublishBatch(ctx(t), msgs); err != nil {
				t.Error(err)
			}
		}
	}()
	c := ctx(t)
	for want := uint64(1); want <= total; {
		m, err := r.Next(c)
		if errors.Is(err, ErrNotFound) {
			if err := r.Wait(c); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err != nil || m.Seq != want || string(m.Data[5000:]) != fmt.Sprint(want) || m.Subject != subjectA {
			t.Fatalf("got %d %q, %v; want %d", m.Seq, m.Subject, err, want)
		}
		want++
	}
	if err := s.PurgeTo(c, Blocks, 2990); err != nil {
		t.Fatal(err)
	}
	r2, err := s.Reader(Blocks, 5)
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	if m, err := r2.Next(c); err != nil || m.Seq != 2991 {
		t.Fatalf("after a purge: %d, %v", m.Seq, err)
	}
}

func TestGuards(t *testing.T) {
	s := ready(t, Config{})
	c := ctx(t)
	seq, err := s.PublishBatch(c, []Msg{msg(subjectA, "0", "1")})
	if err != nil {
		t.Fatal(err)
	}
	a, b := strconv.FormatUint(seq, 10), "0"
	for name, msgs := range map[string][]Msg{
		"single":        {msg(subjectA, "0", "2")},
		"first stale":   {msg(subjectA, "0", "2"), msg(subjectB, b, "1")},
		"last stale":    {msg(subjectB, b, "1"), msg(subjectA, "7", "2")},
		"two guards":    {msg(subjectA, a, "2"), msg(subjectA, a, "3")},
		"stream":        {{Subject: "edge.a.x", Header: nats.Header{GuardStream: {"5"}}}, {Subject: "edge.a.x"}},
		"stream single": {{Subject: "edge.a.x", Header: nats.Header{GuardStream: {"5"}}}},
	} {
		if _, err := s.PublishBatch(c, msgs); !errors.Is(err, ErrGuard) || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%s: %v, want ErrGuard", name, err)
		}
	}
	if _, err := s.Last(c, Blocks, subjectB); !errors.Is(err, ErrNotFound) {
		t.Errorf("part of a refused batch is stored: %v", err)
	}
	if got, err := s.PublishBatch(c, []Msg{msg(subjectB, b, "1"), msg(subjectA, a, "2"), msg(subjectA, "", "3")}); err != nil || got != 4 {
		t.Errorf("good batch: %d, %v", got, err)
	}
}

func TestPipelinedBatchesFailTogether(t *testing.T) {
	s := ready(t, Config{})
	edge := func(guard uint64, n int) []Msg {
		msgs := make([]Msg, n)
		for i := range msgs {
			msgs[i] = Msg{Subject: "edge.a.x", Header: nats.Header{}, Data: []byte("x")}
		}
		msgs[0].Header.Set(GuardStream, strconv.FormatUint(guard, 10))
		return msgs
	}
	var all []*Pending
	for _, g := range []uint64{0, 10, 21, 30} { // the third is wrong, so the fourth must fail
		p, err := s.StartBatch(edge(g, 10))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	for i, p := range all {
		last, err := p.Wait(ctx(t))
		if i < 2 && (err != nil || last != uint64(i+1)*10) || i >= 2 && !errors.Is(err, ErrGuard) {
			t.Errorf("batch %d: %d, %v", i, last, err)
		}
	}
}

func TestFull(t *testing.T) {
	s := ready(t, Config{})
	l := testLayout
	l.BlocksMaxBytes = 100_000
	if err := s.EnsureStreams(ctx(t), l); err != nil {
		t.Fatal(err)
	}
	var err error
	n := uint64(0)
	for ; n < 100 && err == nil; n++ {
		_, err = s.PublishBatch(ctx(t), []Msg{msg(subjectA, "", strings.Repeat("x", 5000))})
	}
	if !errors.Is(err, ErrFull) || errors.Is(err, ErrUnknownOutcome) {
		t.Fatalf("single, after %d: %v", n, err)
	}
	if _, err := s.PublishBatch(ctx(t), []Msg{msg(subjectA, "", strings.Repeat("x", 5000)), msg(subjectB, "", "")}); !errors.Is(err, ErrFull) {
		t.Errorf("batch: %v", err)
	}
	l.BlocksMaxBytes = 1000
	if err := s.EnsureStreams(ctx(t), l); err == nil || !strings.Contains(err.Error(), "blocks.max_bytes") {
		t.Errorf("shrunk below what is held: %v", err)
	}
}

func TestHopelessIsNotUnknown(t *testing.T) {
	s := ready(t, Config{})
	for name, msgs := range map[string][]Msg{
		"too large":   {msg(subjectA, "", strings.Repeat("x", 2<<20))},
		"bad subject": {msg("fp.blocks.a b.c.d", "", "")},
		"none":        {},
		"too many":    make([]Msg, MaxBatch+1),
	} {
		_, err := s.PublishBatch(ctx(t), msgs)
		if err == nil || errors.Is(err, ErrUnknownOutcome) || errors.Is(err, ErrGuard) || errors.Is(err, ErrFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.PublishBatch(ctx(t), []Msg{msg("nowhere.a", "", "")}); !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("no stream: %v", err)
	}
}

func TestUnknownOutcome(t *testing.T) {
	var fail string
	s := ready(t, Config{Timeout: 2 * time.Second, Fault: func(p string) error {
		if p == fail {
			return errors.New("injected")
		}
		return nil
	}})
	stored := map[string]uint64{"batch:send": 0, "batch:commit": 0, "batch:answer": 2}
	for _, p := range Points() {
		before, err := s.Info(ctx(t), Blocks)
		if err != nil {
			t.Fatal(err)
		}
		fail = p
		if _, err := s.PublishBatch(ctx(t), []Msg{msg(subjectA, "", "1"), msg(subjectB, "", "1")}); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%s: %v", p, err)
		}
		fail = ""
		after, err := s.Info(ctx(t), Blocks)
		if err != nil || after.Last-before.Last != stored[p] {
			t.Errorf("%s: %d stored, %v; want %d", p, after.Last-before.Last, err, stored[p])
		}
	}
	c, cancel := context.WithCancel(ctx(t))
	cancel()
	if _, err := s.PublishBatch(c, []Msg{msg(subjectA, "", "1")}); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestForeignStreamIsRefused(t *testing.T) {
	s := open(t, Config{})
	if _, err := s.JetStream().CreateStream(ctx(t), jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"mine.>"}}); err != nil {
		t.Fatal(err)
	}
	err := s.EnsureStreams(ctx(t), testLayout)
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "nats stream edit EDGE --metadata fieldpost=1") {
		t.Fatalf("got %v", err)
	}
	l := testLayout
	l.Routes = []RouteStream{{Name: "OTHER", Subjects: []string{"mine.x.>"}}}
	if err := s.EnsureStreams(ctx(t), l); err == nil || !strings.Contains(err.Error(), "prefix") {
		t.Errorf("overlap: %v", err)
	}
}

func TestLayoutChanges(t *testing.T) {
	dir := t.TempDir()
	s := ready(t, Config{Dir: dir})
	c := ctx(t)
	before, err := s.Info(c, Blocks)
	if err != nil {
		t.Fatal(err)
	}
	id, err := s.HubID(c)
	if err != nil || len(id) != 16 {
		t.Fatalf("hub id %q, %v", id, err)
	}
	if _, err := s.PublishBatch(c, []Msg{msg(subjectA, "0", "1")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	l := testLayout
	l.BlocksMaxBytes = 32 << 20
	l.Routes = []RouteStream{
		{Name: "EDGE", Subjects: []string{"edge.>", "second.>"}, MaxAge: 2 * time.Hour, MaxBytes: 1 << 20, DiscardNew: true},
		{Name: "ALARMS", Subjects: []string{"alarms.>"}},
	}
	if err := s.EnsureStreams(c, l); err != nil {
		t.Fatal(err)
	}
	after, err := s.Info(c, Blocks)
	if err != nil || after.Incarnation != before.Incarnation || after.Last != 1 || after.MaxBytes != 32<<20 {
		t.Errorf("after: %+v, %v; before: %+v", after, err, before)
	}
	if again, err := s.HubID(c); err != nil || again != id {
		t.Errorf("hub id %q, %v; want %q", again, err, id)
	}
	if err := s.JetStream().DeleteStream(c, Blocks); err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureStreams(c, l); err != nil {
		t.Fatal(err)
	}
	if fresh, err := s.Info(c, Blocks); err != nil || fresh.Incarnation == before.Incarnation || fresh.Last != 0 {
		t.Errorf("a new ledger has the old incarnation: %+v, %v", fresh, err)
	}
	if _, err := s.JetStream().CreateStream(c, jetstream.StreamConfig{Name: "MEM", Storage: jetstream.MemoryStorage, Metadata: map[string]string{"fieldpost": "1"}}); err != nil {
		t.Fatal(err)
	}
	l.Routes = []RouteStream{{Name: "MEM", Subjects: []string{"mem.>"}}}
	if err := s.EnsureStreams(c, l); err == nil || !strings.Contains(err.Error(), "cannot be changed in place") {
		t.Errorf("memory stream: %v", err)
	}
}

func TestTwoInstancesCreateOneHub(t *testing.T) {
	urls := []string{plainServer(t)}
	first, err := Open(ctx(t), Config{URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Open(ctx(t), Config{URLs: urls})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	var wg sync.WaitGroup
	ids := make([]string, 2)
	for i, s := range []*Store{first, second} {
		wg.Go(func() {
			if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
				t.Error(err)
			}
			id, err := s.HubID(ctx(t))
			if err != nil {
				t.Error(err)
			}
			ids[i] = id
		})
	}
	wg.Wait()
	if ids[0] != ids[1] || ids[0] == "" {
		t.Errorf("hub ids %q", ids)
	}
	r, err := second.Reader(Blocks, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(ctx(t)); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	if _, err := first.PublishBatch(ctx(t), []Msg{msg(subjectA, "0", "1")}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.news:
	case <-ctx(t).Done():
		t.Error("the other instance heard nothing of the new block")
	}
}

func TestConfigErrors(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "data_dir"},
		{Config{Dir: dir, Listen: "127.0.0.1"}, "not like 127.0.0.1:4222"},
		{Config{Dir: dir, Listen: "0.0.0.0:-1"}, "loopback"},
		{Config{Dir: dir, Listen: ":4222"}, "loopback"},
		{Config{Dir: dir, Replicas: 3}, "replicas"},
		{Config{Dir: dir, Listen: "127.0.0.1:-1"}, "another hub"},
		{Config{Dir: t.TempDir(), Listen: strings.TrimPrefix(s.ClientURL(), "nats://")}, "address already in use"},
		{Config{URLs: []string{"nats://127.0.0.1:1"}, Timeout: time.Second}, "cannot reach"},
	} {
		bad, err := Open(ctx(t), tt.cfg)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.cfg, err, tt.want)
		}
		if bad != nil {
			bad.Close()
		}
	}
}

func TestCloseRacesPublish(t *testing.T) {
	dir, err := os.MkdirTemp("", "fieldpost-store")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) // not TempDir: the server may still write after a shutdown in mid-batch
	s, err := Open(ctx(t), Config{Dir: dir, Listen: "127.0.0.1:-1", MaxStore: 1 << 30, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureStreams(ctx(t), testLayout); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	started := make(chan struct{}, 4)
	for range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				if _, err := s.PublishBatch(context.Background(), []Msg{msg(subjectA, "", "1"), msg(subjectB, "", "1")}); err != nil {
					if !errors.Is(err, ErrUnknownOutcome) {
						t.Errorf("publish during Close: %v", err)
					}
					return
				}
				if n == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	for range 4 {
		<-started
	}
	s.Close()
	wg.Wait()
	s.Close() // again: nothing happens
	if err := s.Err(); err == nil {
		t.Error("Err is nil after Close")
	}
	noGoroutines(t)
}

// noGoroutines waits until nothing of this package or of its connections runs
// any more. The server's own file stores may outlive a shutdown in mid-batch.
func noGoroutines(t *testing.T) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		var left []string
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if (strings.Contains(g, "nats-io/nats.go") || strings.Contains(g, "hub/store.")) && !strings.Contains(g, "testing.tRunner") {
				left = append(left, g)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}
