package unpack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestUnpackOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	w.some(20)
	u, stop := w.start(w.config())
	w.some(30)
	w.block("big", 1, wire.Normal, 5000)
	w.some(10)
	w.caughtUp()
	w.wait("lag 0", func() bool {
		last := w.info(store.Blocks).Last
		return u.Lag("EDGE", last) == 0 && u.Lag("ALARMS", last) == 0
	})
	stop()
	w.check()
	for _, st := range u.Status() {
		if st.Err != nil {
			t.Error(st)
		}
	}
	// Nothing is repeated by a restart.
	_, stop = w.start(w.config())
	w.some(5)
	w.caughtUp()
	stop()
	w.check()
}

var errInjected = errors.New("injected")

// crash makes the nth step at point fail, and every step after it, as if the
// process had died there.
type crash struct {
	point string
	left  atomic.Int64
	dead  atomic.Bool
	died  chan struct{}
}

func newCrash(point string, nth int64) *crash {
	c := &crash{point: point, died: make(chan struct{})}
	c.left.Store(nth)
	return c
}

func (c *crash) at(point string) error {
	if c.dead.Load() {
		return errInjected
	}
	if (point == c.point || c.point == "") && c.left.Add(-1) == 0 {
		c.dead.Store(true)
		close(c.died)
		return errInjected
	}
	return nil
}

func TestCrashAtEveryPoint(t *testing.T) {
	for _, point := range Points() {
		if strings.HasPrefix(point, "backfill:") { // TestBackfillCrashes
			continue
		}
		for _, nth := range []int64{1, 2, 7} {
			t.Run(fmt.Sprintf("%s/%d", point, nth), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.some(15)
				c := newCrash(point, nth)
				cfg := w.config()
				cfg.Fault = c.at
				cfg.Retain = time.Nanosecond // so that retention has work
				_, stop := w.start(cfg)
				w.some(25)
				wait := 50 * time.Millisecond // for a point that is rarely passed, or at the stop only
				if nth == 1 && point != "lease:release" {
					wait = 30 * time.Second
				}
				select {
				case <-c.died:
				case <-time.After(wait):
				}
				stop()
				if nth == 1 && !c.dead.Load() {
					t.Error("the crash never came")
				}
				cfg = w.config()
				cfg.Retain = time.Nanosecond
				_, stop = w.start(cfg)
				w.some(10)
				w.caughtUp()
				stop()
				w.check()
				w.checkSets()
			})
		}
	}
}

// checkSets compares the received set that the ledger holds of every flow.
func (w *world) checkSets() {
	w.t.Helper()
	for subject, st := range w.flows {
		m, err := w.s.Last(w.ctx(), store.Blocks, subject)
		if err != nil || m.Header.Get("Fieldpost-Received") != st.set.String() {
			w.t.Errorf("%s: set %q, %v; want %q", subject, m.Header.Get("Fieldpost-Received"), err, st.set)
		}
	}
}

func TestErrorsAtEveryPointAreTriedAgain(t *testing.T) {
	for _, point := range Points() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.some(10)
			var n atomic.Int64
			cfg := w.config()
			cfg.Retain = time.Nanosecond
			cfg.Fault = func(p string) error {
				if p == point && n.Add(1)%3 == 1 && n.Load() < 12 {
					return errInjected
				}
				return nil
			}
			_, stop := w.start(cfg)
			w.some(10)
			w.caughtUp()
			stop()
			w.check()
			w.checkSets()
		})
	}
}

// Batches whose answer is lost are found in the stream, by their headers or,
// when they were purged, by counting.
func TestLostAnswersAndPurges(t *testing.T) {
	for name, purge := range map[string]bool{"still there": false, "purged": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for range 10 {
				w.block("dev", 1, wire.Normal, 700)
			}
			c := newCrash("unpack:commit", 2)
			cfg := w.config()
			cfg.CheckpointEvery = time.Hour // so that there is something to find
			cfg.Fault = c.at
			_, stop := w.start(cfg)
			<-c.died
			stop()
			edge := w.info("EDGE")
			if edge.Last == 0 {
				t.Fatal("nothing was stored before the crash")
			}
			if purge {
				if err := w.s.PurgeTo(w.ctx(), "EDGE", edge.Last); err != nil {
					t.Fatal(err)
				}
			}
			var s saved[Checkpoint]
			s.kv, s.key = mustKV(w), keyCheckpoint("EDGE")
			if found, err := s.load(w.ctx()); err != nil || !found || s.val.StreamSeq >= edge.Last {
				t.Fatalf("checkpoint %+v, %v; the stream is at %d, so nothing is left to find", s.val, err, edge.Last)
			}
			_, stop = w.start(w.config())
			w.some(5)
			w.caughtUp()
			stop()
			w.check()
		})
	}
}

func mustKV(w *world) jetstream.KeyValue {
	w.t.Helper()
	b, err := w.s.KV(w.ctx(), store.HubBucket)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func TestTwoWorkersRace(t *testing.T) {
	w := newWorld(t)
	var stops []func()
	for range 3 {
		cfg := w.config()
		cfg.Instance = "the same" // so that each takes the others' lease for its own
		_, stop := w.start(cfg)
		stops = append(stops, stop)
	}
	for range 6 {
		w.some(10)
		w.block("dev", 1, wire.Normal, 3000)
	}
	w.caughtUp()
	for _, stop := range stops {
		stop()
	}
	w.check()
}

func TestFailover(t *testing.T) {
	w := newWorld(t)
	w.some(5)
	c := newCrash("lease:release", 1)
	cfg := w.config()
	cfg.Fault = c.at
	first, stopFirst := w.start(cfg)
	w.wait("first works", func() bool { return first.Status()[0].At.StreamSeq > 0 })
	second, stopSecond := w.start(w.config())
	stopFirst() // does not give its leases back
	w.some(5)
	w.caughtUp()
	third, stopThird := w.start(w.config())
	stopSecond() // does
	w.some(5)
	w.caughtUp()
	stopThird()
	w.check()
	_, _ = second, third
}

func TestNewIncarnation(t *testing.T) {
	w := newWorld(t)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	w.check()
	if err := w.s.JetStream().DeleteStream(w.ctx(), store.Blocks); err != nil {
		t.Fatal(err)
	}
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	for _, st := range w.flows {
		st.last = 0
	}
	w.some(15) // block sequences begin anew, some lower than what DEAD and EDGE know
	_, stop = w.start(w.config())
	w.caughtUp()
	stop()
	w.check()
}

func TestForeignMessagesAndLostStates(t *testing.T) {
	foreign := func(w *world, n int) {
		for range n {
			if _, err := w.s.PublishBatch(w.ctx(), []store.Msg{{Subject: "edge.intruder", Data: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, between := range map[string]func(w *world){
		"foreign messages": func(w *world) { foreign(w, 3) },
		"an old message copied": func(w *world) {
			m := w.all("EDGE")[1]
			maps.DeleteFunc(m.Header, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
			if _, err := w.s.PublishBatch(w.ctx(), []store.Msg{{Subject: m.Subject, Header: m.Header, Data: m.Data}}); err != nil {
				t.Fatal(err)
			}
		},
		"checkpoints lost": func(w *world) {
			if err := mustKV(w).Delete(w.ctx(), keyCheckpoint("EDGE")); err != nil {
				t.Fatal(err)
			}
		},
		"stream removed": func(w *world) {
			if err := w.s.JetStream().DeleteStream(w.ctx(), "EDGE"); err != nil {
				t.Fatal(err)
			}
			if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.some(10)
			_, stop := w.start(w.config())
			w.caughtUp()
			stop()
			between(w)
			w.want["EDGE"] = w.want["EDGE"][:0] // look at what comes now only
			base := w.info("EDGE").Last
			_, stop = w.start(w.config())
			w.some(10)
			w.wait("all unpacked", func() bool { return w.info("EDGE").Last >= base+uint64(len(w.want["EDGE"])) })
			stop()
			var got []sent
			for _, m := range w.all("EDGE") {
				if m.Seq > base {
					got = append(got, toSent(m))
				}
			}
			if len(got) != len(w.want["EDGE"]) {
				t.Fatalf("%d new messages, want %d", len(got), len(w.want["EDGE"]))
			}
			for i := range got {
				if got[i] != w.want["EDGE"][i] {
					t.Fatalf("message %d:\n got %+v\nwant %+v", i, got[i], w.want["EDGE"][i])
				}
			}
		})
	}
}

// A checkpoint whose write has begun is known to have been written, also if the
// route is stopped meanwhile: the next write would be refused as another's.
func TestStopDoesNotForgetACheckpoint(t *testing.T) {
	w := newWorld(t)
	s := saved[Checkpoint]{kv: mustKV(w), key: keyCheckpoint("TEST")}
	stopped, cancel := context.WithCancel(w.ctx())
	cancel()
	for n := range uint64(3) {
		if err := s.store(stopped, Checkpoint{StreamSeq: n}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.load(w.ctx()); err != nil || s.val.StreamSeq != 2 {
		t.Fatalf("%+v is written (%v)", s.val, err)
	}
}

// Others' messages that were purged since cannot be told from ours, but nothing
// behind the ledger's end of that time is skipped for them.
func TestSkippingEndsWithTheLedger(t *testing.T) {
	w := newWorld(t)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	w.wait("the checkpoint is saved", func() bool {
		s := saved[Checkpoint]{kv: mustKV(w), key: keyCheckpoint("EDGE")}
		found, err := s.load(w.ctx())
		return err == nil && found && s.val.StreamSeq == w.info("EDGE").Last && s.val.Block == w.info(store.Blocks).Last+1
	})
	end := w.info(store.Blocks).Last
	stop()
	for range 3 {
		if _, err := w.s.PublishBatch(w.ctx(), []store.Msg{{Subject: "edge.intruder"}}); err != nil {
			t.Fatal(err)
		}
	}
	last := w.info("EDGE").Last
	if err := w.s.PurgeTo(w.ctx(), "EDGE", last); err != nil {
		t.Fatal(err)
	}
	u, err := New(w.ctx(), w.config())
	if err != nil {
		t.Fatal(err)
	}
	from, err := u.workers["EDGE"].resume(w.ctx(), Tables{{Table: w.routes}})
	if err != nil || from.skip != 3 || from.last != last || from.ledger != end {
		t.Fatalf("resume: %+v, %v", from, err)
	}
	f := &feed{w: u.workers["EDGE"], from: from}
	if f.past(end); f.from.skip != 3 {
		t.Errorf("skip is %d within the ledger of that time", f.from.skip)
	}
	if f.past(end + 1); f.from.skip != 0 {
		t.Errorf("skip is %d behind it", f.from.skip)
	}
}

func TestRoutesChange(t *testing.T) {
	w := newWorld(t)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	w.some(5) // not unpacked yet: the old routes hold for them
	w.routes = Table{{Match: "a.>", Stream: "ALARMS", Prefix: "alarms"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}}
	_, stop = w.start(w.config())
	w.wait("the new table", func() bool {
		s := saved[tablesValue]{kv: mustKV(w), key: keyTables}
		_, err := s.load(w.ctx())
		return err == nil && len(s.val.Versions) == 2
	})
	w.some(10)
	w.caughtUp()
	stop()
	w.check()
}

func TestFullStreamWaits(t *testing.T) {
	w := newWorld(t)
	w.layout.Routes[0].DiscardNew, w.layout.Routes[0].MaxBytes, w.layout.Routes[0].Compress = true, 100_000, false
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	u, stop := w.start(w.config())
	for range 5 {
		w.block("dev", 1, wire.Normal, 400)
	}
	w.wait("it says so", func() bool { return errors.Is(u.Status()[1].Err, store.ErrFull) })
	w.layout.Routes[0].MaxBytes = 100 << 20
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	w.caughtUp()
	w.wait("the error is gone", func() bool { return u.Status()[1].Err == nil })
	stop()
	w.check()
}

func TestNewerBlockStopsTheRoute(t *testing.T) {
	w := newWorld(t)
	w.block("dev", 1, wire.Normal, 3)
	subject, _, st := w.flow("dev", 1, wire.Normal)
	newer := w.put(subject, st, wire.Range{First: 4, Last: 4}, map[string][]string{}, []byte("FPB\x02 from the future"))
	w.block("dev", 1, wire.Normal, 3)
	u, stop := w.start(w.config())
	w.wait("it says so", func() bool { return errors.Is(u.Status()[1].Err, wire.ErrVersion) })
	stop()
	for _, s := range u.Status() {
		if s.At.Block > newer {
			t.Errorf("%s went past the block: %+v", s.Stream, s.At)
		}
	}
}

func TestStopRacesStart(t *testing.T) {
	w := newWorld(t)
	w.some(20)
	var wg sync.WaitGroup
	for i := range 20 {
		_, stop := w.start(w.config())
		wg.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			stop()
		})
	}
	wg.Wait()
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	w.check()
	w.s.Close()
	noGoroutines(t)
}
