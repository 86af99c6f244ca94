package spool

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func withID(id, payload string) wire.Message {
	m := msg(payload)
	m.ID = id
	return m
}

func wantDuplicate(t *testing.T, s *Spool, m wire.Message, first Receipt) {
	t.Helper()
	r := appendOK(t, s, first.Flow.Lane, m)
	if r.Duplicates != 1 || r.Accepted != 0 || r.First != first.First || r.Last != first.First || r.Flow != first.Flow {
		t.Fatalf("retry of %s: %+v, the first was %+v", m.ID, r, first)
	}
}

// TestDuplicatesOfSeveralFlows: a receipt never names a number of one flow with
// the lane of another, and says where every first copy is.
func TestDuplicatesOfSeveralFlows(t *testing.T) {
	s := open(t, small(t, t.TempDir()))
	u := appendOK(t, s, wire.Urgent, msg("0"), withID("u1", "1"), withID("u2", "2"))
	b := appendOK(t, s, wire.Bulk, withID("b1", "3"))
	r := appendOK(t, s, wire.Bulk, withID("u2", ""), withID("b1", ""), withID("u1", ""))
	if r.Accepted != 0 || r.Duplicates != 3 || r.Flow != u.Flow || r.First != 2 || r.Last != 3 {
		t.Errorf("only duplicates: %+v", r)
	}
	if want := []Copy{{u.Flow, 3}, {b.Flow, 1}, {u.Flow, 2}}; !slices.Equal(r.Copies, want) {
		t.Errorf("copies %v, want %v", r.Copies, want)
	}
	r = appendOK(t, s, wire.Bulk, withID("u2", ""), withID("new", "4"))
	if r.Accepted != 1 || r.Flow != b.Flow || r.First != 2 || r.Last != 2 || !slices.Equal(r.Copies, []Copy{{u.Flow, 3}}) {
		t.Errorf("one of them new: %+v", r)
	}
}

func TestDuplicates(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	s := open(t, cfg)
	a := appendOK(t, s, wire.Normal, withID("a", "1"))
	wantDuplicate(t, s, withID("a", "other content"), a)
	for range 2 { // without an id a retry is a new message
		appendOK(t, s, wire.Normal, msg("plain"))
	}
	r := appendOK(t, s, wire.Normal, withID("b", "2"), withID("a", "again"), withID("b", "2 again"), withID("c", "3"))
	if r.First != 4 || r.Last != 5 || r.Accepted != 2 || r.Duplicates != 2 {
		t.Fatalf("batch: %+v", r)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	wantDuplicate(t, s, withID("a", "1"), a)
	if r := s.Stats(); !r.Epoch.IsZero() {
		t.Fatal("a retry alone began an epoch")
	}
	if err := s.Received(a.Flow, wire.Ranges{{First: 1, Last: 5}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the segment goes", func() bool { return len(s.Flows()) == 0 && s.heldSegments() == 0 })
	wantDuplicate(t, s, withID("a", "1"), a)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	wantDuplicate(t, s, withID("a", "1"), a)
}

// heldSegments counts what holds blocks.
func (s *Spool) heldSegments() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.segments {
		if len(g.parts) > 0 && !g.gone {
			n++
		}
	}
	return n
}

func TestDuplicateOfMessageStillCommitting(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := small(t, t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "commit:mem-sync" {
			once.Do(func() { close(reached); <-release })
		}
		return nil
	}
	s := open(t, cfg)
	type answer struct {
		r   Receipt
		err error
	}
	ask := func(l wire.Lane, ms ...wire.Message) chan answer {
		ch := make(chan answer, 1)
		s.Enqueue(l, ms, func(r Receipt, err error) { ch <- answer{r, err} })
		return ch
	}
	first := ask(wire.Normal, withID("a", "1"))
	<-reached
	again := ask(wire.Normal, withID("a", "1"), msg("new"))
	other := ask(wire.Urgent, withID("a", "1"))
	select {
	case a := <-again:
		t.Fatalf("the retry was answered before the first was durable: %+v", a)
	case a := <-other:
		t.Fatalf("the retry in another lane was answered before the first was durable: %+v", a)
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	f, a, o := <-first, <-again, <-other
	if f.err != nil || f.r.First != 1 || a.err != nil || a.r.Duplicates != 1 || a.r.First != 2 || o.err != nil || o.r.Duplicates != 1 || o.r.First != 1 || o.r.Flow != f.r.Flow {
		t.Fatalf("first %+v, again %+v, other lane %+v", f, a, o)
	}
}

// TestDuplicatesAcrossLanes: lanes that wait for each other's commits come through.
func TestDuplicatesAcrossLanes(t *testing.T) {
	s := open(t, small(t, t.TempDir()))
	var wg sync.WaitGroup
	for p := range 6 {
		wg.Go(func() {
			for i := range 30 {
				ids := []wire.Message{withID(fmt.Sprint(i), "x"), withID(fmt.Sprint(i+1), "x")}
				if p%2 == 0 {
					ids[0], ids[1] = ids[1], ids[0]
				}
				if _, err := s.Append(context.Background(), wire.Lane(p%3), ids); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := 0
	for _, h := range s.Flows() {
		n += len(readAll(t, s, h.Flow, 1))
	}
	if n != 31 {
		t.Fatalf("%d messages are stored of 31 ids", n)
	}
}

func TestIDWindow(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	cfg := small(t, t.TempDir())
	cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	s := open(t, cfg)
	a := appendOK(t, s, wire.Normal, withID("a", "1"))
	now.Add(idWindow.Milliseconds() - 1)
	wantDuplicate(t, s, withID("a", "1"), a)
	now.Add(2)
	if r := appendOK(t, s, wire.Normal, withID("a", "1")); r.Accepted != 1 {
		t.Fatalf("after the window: %+v", r)
	}
}

func TestIDsAreBounded(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	table := newIDs()
	g := &group{flow: wire.Flow{Epoch: wire.NewEpoch()}}
	for i := range 3 * maxIDs {
		k := hashID(fmt.Sprint(i))
		g.ids = nil
		table.claim([]idKey{k}, g, uint64(i), 0)
		table.finish(g, true, int64(i)/1000)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := after.HeapAlloc - before.HeapAlloc; n > 9<<20 {
		t.Errorf("%d ids take %d bytes", maxIDs, n)
	} else {
		t.Logf("%d ids take %d bytes", maxIDs, n)
	}
	for _, c := range []struct {
		i    int
		want bool
	}{{0, false}, {2*maxIDs - 1, false}, {2 * maxIDs, true}, {3*maxIDs - 1, true}} {
		if st := table.lookup(hashID(fmt.Sprint(c.i)), 0); st.known != c.want || c.want && st.seq != uint64(c.i) {
			t.Errorf("id %d: %+v", c.i, st)
		}
	}
	runtime.KeepAlive(table)
}

func TestIDFile(t *testing.T) {
	recs := []idRecord{
		{key: hashID("a"), flow: wire.Flow{Epoch: wire.NewEpoch(), Lane: wire.Bulk}, seq: 7, at: 1000},
		{key: hashID("b"), flow: wire.Flow{Epoch: wire.NewEpoch()}, seq: 8, at: 2000},
	}
	data := appendIDs(nil, recs)
	if got := parseIDs(data); fmt.Sprint(got) != fmt.Sprint(recs) {
		t.Fatalf("got %v", got)
	}
	for i := range data {
		data[i] ^= 0x40
		if got := parseIDs(data); got != nil {
			t.Fatalf("byte %d changed: %v", i, got)
		}
		data[i] ^= 0x40
	}
}
