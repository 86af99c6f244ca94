package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestCloseRacesAppend(t *testing.T) {
	for range 5 {
		cfg := small(t, t.TempDir())
		cfg.shape = tiny()
		s := open(t, cfg)
		var mu sync.Mutex
		acked := map[string]bool{}
		var wg sync.WaitGroup
		for p := range 8 {
			wg.Go(func() {
				for i := 0; ; i++ {
					name := fmt.Sprintf("%d.%d", p, i)
					_, err := s.Append(context.Background(), wire.Lane(p%2), []wire.Message{msg(name)})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked[name] = true
					mu.Unlock()
				}
			})
		}
		wg.Go(func() {
			for {
				for _, h := range s.Flows() {
					if _, err := s.Read(h.Flow, h.First); errors.Is(err, ErrClosed) {
						return
					}
				}
			}
		})
		eventually(t, "some acks", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) > 50 })
		for range 2 {
			wg.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s = open(t, cfg)
		n := 0
		for _, h := range s.Flows() {
			for _, name := range readAll(t, s, h.Flow, 1) {
				if acked[name] {
					n++
				}
			}
		}
		if n != len(acked) {
			t.Fatalf("%d of %d acked messages are there", n, len(acked))
		}
		s.Close()
	}
}

// TestNothingLeaks: descriptors, goroutines and mappings return with Close.
func TestNothingLeaks(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts in /proc")
	}
	count := func() (fds, maps int) {
		entries, _ := os.ReadDir("/proc/self/fd")
		data, _ := os.ReadFile("/proc/self/maps")
		return len(entries), strings.Count(string(data), segmentPrefix)
	}
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	work := func() {
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for l := range wire.Lane(wire.NumLanes) {
			for range 15 {
				appendOK(t, s, l, msg("x"))
			}
		}
		s.keeper.wait()
		s.forgetTail()
		for _, h := range s.Flows() {
			readAll(t, s, h.Flow, h.First)
			if err := s.Received(h.Flow, wire.Ranges{{First: 1, Last: h.Last - 10}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	work() // what is made once
	goroutines := runtime.NumGoroutine()
	fds, maps := count()
	for range 3 {
		work()
	}
	eventually(t, "everything is released", func() bool {
		runtime.GC()
		f, m := count()
		return f <= fds && m <= maps && runtime.NumGoroutine() <= goroutines
	})
}

func TestSealedSegmentsAreClosedAgain(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	s := open(t, cfg)
	var flow wire.Flow
	for i := range 60 {
		flow = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i))).Flow
	}
	s.keeper.wait()
	s.forgetTail()
	readAll(t, s, flow, 1)
	s.mu.RLock()
	n := len(s.open)
	s.mu.RUnlock()
	if n == 0 || n > 3 {
		t.Errorf("%d sealed segments are open after reading", n)
	}
	s.closeIdle(time.Now().Add(time.Hour))
	for _, g := range s.segments {
		if g.sealed && g.src != nil {
			t.Errorf("%s is open", g.dir)
		}
	}
	if got := readAll(t, s, flow, 1); len(got) != 60 {
		t.Errorf("read %d", len(got))
	}
}

func TestDelivered(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	s := open(t, cfg)
	r := appendOK(t, s, wire.Normal, msgs(3, "x")...)
	expect := func(seq uint64, want bool, wantErr error) {
		t.Helper()
		if ok, err := s.Delivered(r.Flow, seq); ok != want || !errors.Is(err, wantErr) {
			t.Errorf("delivered %d: %v, %v", seq, ok, err)
		}
	}
	expect(1, false, nil)
	expect(0, false, ErrUnknown)
	expect(4, false, ErrUnknown)
	if _, err := s.Delivered(wire.Flow{Epoch: wire.NewEpoch()}, 1); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.WaitDelivered(context.Background(), r.Flow, 2) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.WaitDelivered(ctx, r.Flow, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect(2, true, nil)
	expect(3, false, nil)
	go func() { done <- s.WaitDelivered(context.Background(), r.Flow, 3) }()
	eventually(t, "the waiter is there", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return len(s.flows[r.Flow].waiters) == 1
	})
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 99}}); err != nil { // more than there is
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	expect(4, false, ErrUnknown)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	expect(3, true, nil) // nothing is held any more; the epoch is remembered
	if r2 := appendOK(t, s, wire.Normal, msg("y")); r2.First != 4 || r2.Flow.Epoch == r.Flow.Epoch {
		t.Errorf("%+v", r2)
	}
	last := s.Flows()[0].Flow
	go func() { done <- s.WaitDelivered(context.Background(), last, 4) }()
	eventually(t, "the waiter is there", func() bool {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return len(s.flows[last].waiters) == 1
	})
	s.Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestPins(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	if err := errors.Join(s.SetHubID("hub"), s.SetToken("one"), s.SetToken("two")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := s.SetToken("three"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	s = open(t, cfg)
	if s.HubID() != "hub" || s.Token() != "two" {
		t.Errorf("%q %q", s.HubID(), s.Token())
	}
}

func TestEpochsAreForgotten(t *testing.T) {
	s := open(t, small(t, t.TempDir()))
	held := appendOK(t, s, wire.Normal, msg("held")).Flow
	s.mu.Lock()
	for range 2 * maxEpochs {
		f := wire.Flow{Epoch: wire.NewEpoch(), Lane: wire.Bulk}
		s.epochs = append(s.epochs, f.Epoch)
		s.flow(f).last = 1
	}
	s.epoch = s.epochs[len(s.epochs)-1]
	s.forgetEpochs()
	n, first, flows := len(s.epochs), s.epochs[0], len(s.flows)
	s.mu.Unlock()
	if n != maxEpochs || first != held.Epoch || flows != maxEpochs {
		t.Errorf("%d epochs, %d flows, first %s", n, flows, first)
	}
}

// TestManyEpochs: every run numbers in an epoch of its own, in order.
func TestManyEpochs(t *testing.T) {
	cfg := small(t, t.TempDir())
	var flows []wire.Flow
	for i := range 5 {
		s := open(t, cfg)
		r := appendOK(t, s, wire.Normal, msg(fmt.Sprint(i)))
		if r.First != uint64(i)+1 || slices.Contains(flows, r.Flow) {
			t.Fatalf("run %d: %+v", i, r)
		}
		flows = append(flows, r.Flow)
		s.Close()
	}
	s := open(t, cfg)
	for i, h := range s.Flows() {
		if h.Flow != flows[i] || h.Base != uint64(i)+1 || h.First != h.Base || h.Last != h.Base {
			t.Errorf("flow %d: %+v", i, h)
		}
	}
}
