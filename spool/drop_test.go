package spool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// sampler watches the disk blocks of a folder while everything runs.
type sampler struct {
	most atomic.Int64
	stop chan struct{}
	done sync.WaitGroup
}

func sample(t testing.TB, dir string, limit int64) *sampler {
	w := &sampler{stop: make(chan struct{})}
	w.done.Go(func() {
		for {
			n := diskUsage(dir)
			w.most.Store(max(w.most.Load(), n))
			if n > limit {
				t.Errorf("%d bytes are allocated of %d", n, limit)
				return
			}
			select {
			case <-w.stop:
				return
			case <-time.After(200 * time.Microsecond):
			}
		}
	})
	t.Cleanup(w.end)
	return w
}

func (w *sampler) end() {
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
	w.done.Wait()
}

func TestDropOldest(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MaxBytes: 24 << 20, KeepFree: -1, CommitDelay: -1, WhenFull: DropOldest}
	s := open(t, cfg)
	w := sample(t, cfg.Dir, cfg.MaxBytes)
	var r Receipt
	const n = 1000
	for i := range n { // 60 MB in 24
		r = appendOK(t, s, wire.Normal, msg(fmt.Sprintf("%d %s", i, noise(60_000))))
	}
	w.end()
	st := s.Stats()
	dropped, held := st.Dropped[wire.ReasonDropOldest], st.Lanes[wire.Normal].Messages
	if dropped+held != n || held < 150 || len(st.Dropped) != 1 {
		t.Fatalf("%d dropped, %d held of %d; told %v", dropped, held, n, st.Dropped)
	}
	check := func(s *Spool) {
		t.Helper()
		got := readWhole(t, s, r.Flow, 1)
		for i, p := range got {
			name, _, _ := strings.Cut(p, " ")
			if gone := uint64(i) < dropped; gone && p != "void:drop_oldest" || !gone && name != fmt.Sprint(i) {
				t.Fatalf("sequence %d is %.20q, %d were dropped", i+1, p, dropped)
			}
		}
		if len(got) != n {
			t.Fatalf("read %d", len(got))
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	check(s)
	if got := s.Stats(); got.Dropped[wire.ReasonDropOldest] != dropped || got.Lanes[wire.Normal].Messages != held {
		t.Fatalf("after reopening %v, %d held", got.Dropped, got.Lanes[wire.Normal].Messages)
	}
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: n}}); err != nil {
		t.Fatal(err)
	}
	s.keeper.wait()
	if n := segmentsOnDisk(t, cfg.Dir); n > 2 {
		t.Errorf("%d segments are left", n)
	}
	if got := s.Stats().Dropped[wire.ReasonDropOldest]; got != dropped {
		t.Errorf("%d counted in the end, %d before", got, dropped)
	}
}

// TestDropsLowestLane: the least urgent lane gives way first, and no lane takes
// from a more urgent one.
func TestDropsLowestLane(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MaxBytes: 16 << 20, KeepFree: -1, CommitDelay: -1, WhenFull: DropOldest}
	s := open(t, cfg)
	w := sample(t, cfg.Dir, cfg.MaxBytes)
	fill := func(l wire.Lane, n int) (stored uint64) {
		t.Helper()
		for i := range n {
			_, err := s.Append(context.Background(), l, []wire.Message{msg(noise(60_000 + i))})
			if errors.Is(err, ErrFull) {
				if !strings.Contains(err.Error(), "more urgent lane") {
					t.Fatalf("the error does not say why: %v", err)
				}
				return stored
			}
			if err != nil {
				t.Fatal(err)
			}
			stored++
		}
		return stored
	}
	held := func(l wire.Lane) uint64 { return s.Stats().Lanes[l].Messages }
	bulk := fill(wire.Bulk, 60)
	normal := fill(wire.Normal, 400)
	if held(wire.Bulk) != 0 || held(wire.Normal) == 0 || held(wire.Normal) == normal {
		t.Fatalf("bulk holds %d of %d, normal %d of %d", held(wire.Bulk), bulk, held(wire.Normal), normal)
	}
	keeps := held(wire.Normal)
	if n := fill(wire.Bulk, 1); n != 0 || held(wire.Normal) != keeps {
		t.Fatalf("bulk took %d from normal: %d of %d left", n, held(wire.Normal), keeps)
	}
	urgent := fill(wire.Urgent, 500)
	if urgent != 500 || held(wire.Normal) != 0 || held(wire.Urgent) == 0 {
		t.Fatalf("urgent stored %d and holds %d, normal holds %d", urgent, held(wire.Urgent), held(wire.Normal))
	}
	w.end()
	st := s.Stats()
	if total := st.Dropped[wire.ReasonDropOldest] + held(wire.Urgent); total != bulk+normal+urgent {
		t.Fatalf("%d accepted, %d dropped or held: %v", bulk+normal+urgent, total, st.Dropped)
	}
}

// TestFullDoesNotFlap: a spool that refused a message takes the next one when
// there is room for a while, not for a segment.
func TestFullDoesNotFlap(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MaxBytes: 128 << 20, KeepFree: -1, CommitDelay: -1}
	s := open(t, cfg)
	var last Receipt
	for {
		r, err := s.Append(context.Background(), wire.Normal, []wire.Message{msg(noise(120_000))})
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = r
	}
	turns, full, freed := 0, true, s.Stats().DiskUsed
	for seq := uint64(10); full && seq < last.Last; seq += 5 {
		if err := s.Received(last.Flow, wire.Ranges{{First: 1, Last: seq}}); err != nil {
			t.Fatal(err)
		}
		s.keeper.wait()
		if is := errors.Is(s.Err(), ErrFull); is != full {
			full, turns = is, turns+1
		}
	}
	freed -= s.Stats().DiskUsed
	if turns != 1 || freed < cfg.MaxBytes/16 {
		t.Fatalf("%d turns, %d bytes were freed by then", turns, freed)
	}
	for range 40 { // 5 MB
		appendOK(t, s, wire.Normal, msg(noise(120_000)))
	}
}

// TestDropWhileInUse: publishers of every lane, a hub that takes some, and a
// spool that is full all the time.
func TestDropWhileInUse(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MaxBytes: 16 << 20, KeepFree: -1, CommitDelay: -1, WhenFull: DropOldest}
	s := open(t, cfg)
	w := sample(t, cfg.Dir, cfg.MaxBytes)
	var mu sync.Mutex
	acked := map[wire.Flow]wire.Ranges{}
	stored := map[wire.Flow]wire.Ranges{}
	var publishers, hub sync.WaitGroup
	for p := range 6 {
		publishers.Go(func() {
			for i := range 150 {
				ms := []wire.Message{msg(noise(20_000 + i*p)), msg("x")}
				for k := range 200 * (p % 2) { // ids take room as well
					ms = append(ms, withID(fmt.Sprintf("%d.%d.%d", p, i, k), "y"))
				}
				r, err := s.Append(context.Background(), wire.Lane(p%3), ms)
				if errors.Is(err, ErrFull) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[r.Flow] = acked[r.Flow].Add(wire.Range{First: r.First, Last: r.Last})
				mu.Unlock()
			}
		})
	}
	stop := make(chan struct{})
	hub.Go(func() {
		sent := map[wire.Flow]uint64{}
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, h := range s.Flows() {
				data, err := s.Read(h.Flow, sent[h.Flow]+1)
				if errors.Is(err, ErrEnd) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				b, err := wire.ParseHeader(data)
				if err != nil {
					t.Error(err)
					return
				}
				if b.Kind == wire.KindMessages {
					stored[h.Flow] = stored[h.Flow].Add(b.Range())
				}
				sent[h.Flow] = b.Last()
				if err := s.Received(h.Flow, wire.Ranges{{First: 1, Last: b.Last()}}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	publishers.Wait()
	close(stop)
	hub.Wait()
	w.end()
	s.keeper.wait()
	st := s.Stats()
	var want, have uint64
	for f, rs := range acked {
		want += rs.Len()
		have += stored[f].Len()
	}
	for _, l := range st.Lanes {
		have += l.Messages
	}
	if have += st.Dropped[wire.ReasonDropOldest]; have != want {
		t.Fatalf("%d acked, %d stored, held or dropped: %v", want, have, st.Dropped)
	}
}
