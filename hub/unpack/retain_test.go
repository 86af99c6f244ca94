package unpack

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// clock is a wall clock that the test sets forward.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func TestRetentionKeepsReceivedSets(t *testing.T) {
	w := newWorld(t)
	var c clock
	cfg := w.config()
	cfg.Now = c.now
	w.some(30)
	_, stop := w.start(cfg)
	w.caughtUp()
	first := w.info(store.Blocks)
	if first.First != 1 {
		t.Fatalf("purged before its time: %+v", first)
	}
	w.wait("checkpoints", func() bool { return w.disposableTo(cfg) == first.Last })
	c.ahead.Store(int64(25 * time.Hour))
	w.wait("purge", func() bool { return w.info(store.Blocks).First > first.Last })
	after := w.info(store.Blocks)
	if after.Messages != uint64(len(w.flows)) {
		t.Errorf("%d messages are left of %d flows", after.Messages, len(w.flows))
	}
	w.checkSets()
	w.redeliver()
	w.some(20) // ingest goes on behind the marks
	w.caughtUp()
	stop()
	w.check()
	w.checkSets()
}

// disposableTo is how far the checkpoints let retention go.
func (w *world) disposableTo(cfg Config) uint64 {
	cfg.Now = func() time.Time { return time.Now().Add(1000 * time.Hour) }
	u, err := New(w.ctx(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	to, err := u.disposable(w.ctx(), w.info(store.Blocks))
	if err != nil {
		w.t.Fatal(err)
	}
	return to
}

// redeliver asks, as ingest would, whether old ranges are known.
func (w *world) redeliver() {
	w.t.Helper()
	for subject, st := range w.flows {
		m, err := w.s.Last(w.ctx(), store.Blocks, subject)
		if err != nil {
			w.t.Fatal(err)
		}
		received, err := wire.ParseRanges(m.Header.Get("Fieldpost-Received"))
		if err != nil {
			w.t.Fatal(err)
		}
		old := &wire.Header{Base: 1, First: 1, Count: st.next - 1}
		if v := uplink.Judge(received, old, true); v != uplink.Received {
			w.t.Errorf("%s: 1-%d is judged %d, want received", subject, st.next-1, v)
		}
	}
}

func TestClosedEpochsAreForgottenInTheEnd(t *testing.T) {
	w := newWorld(t)
	var c clock
	cfg := w.config()
	cfg.Now = c.now
	w.block("dev", 1, wire.Normal, 5)
	w.block("dev", 1, wire.Urgent, 5)
	w.block("dev", 2, wire.Normal, 5)
	u, stop := w.start(cfg)
	w.caughtUp()
	u.CloseEpoch("dev", wire.Epoch{1, 1})
	marked := func(epoch byte, lane wire.Lane) string {
		m, err := w.s.Last(w.ctx(), store.Blocks, wire.BlockSubject("dev", wire.Flow{Epoch: wire.Epoch{1, epoch}, Lane: lane}))
		if errors.Is(err, store.ErrNotFound) {
			return "gone"
		}
		if err != nil {
			t.Fatal(err)
		}
		return m.Header.Get(hdrClosed)
	}
	w.wait("closed marks", func() bool { return marked(1, wire.Normal) != "" && marked(1, wire.Urgent) != "" })
	since := marked(1, wire.Normal)
	for day := 1; day <= 29; day += 7 {
		c.ahead.Store(int64(time.Duration(day) * 24 * time.Hour))
		last := w.info(store.Blocks).Last
		w.wait("a later mark", func() bool { return w.info(store.Blocks).First > last })
		if got := marked(1, wire.Normal); got != since {
			t.Fatalf("day %d: closed since %q, want %q", day, got, since)
		}
	}
	c.ahead.Store(int64(31 * 24 * time.Hour))
	w.wait("forgotten", func() bool { return marked(1, wire.Normal) == "gone" && marked(1, wire.Urgent) == "gone" })
	if got := marked(2, wire.Normal); got != "" {
		t.Errorf("the open epoch: %q", got)
	}
	stop()
	w.check()
}

func TestRetentionWaitsForEveryRoute(t *testing.T) {
	w := newWorld(t)
	w.layout.Routes[1].DiscardNew, w.layout.Routes[1].MaxBytes = true, 100 // ALARMS takes nothing
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	cfg := w.config()
	cfg.Retain = time.Nanosecond
	w.block("dev", 1, wire.Normal, 200)
	u, stop := w.start(cfg)
	w.wait("EDGE has all", func() bool { return w.info("EDGE").Last == uint64(len(w.want["EDGE"])) })
	w.wait("ALARMS is full", func() bool { return errors.Is(u.Status()[0].Err, store.ErrFull) })
	stop()
	if first := w.info(store.Blocks).First; first != 1 {
		t.Fatalf("the ledger begins at %d, and ALARMS has nothing", first)
	}
	w.layout.Routes[1].MaxBytes = 1 << 20
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	_, stop = w.start(cfg)
	w.caughtUp()
	w.wait("purge", func() bool { return w.info(store.Blocks).First > 1 })
	stop()
	w.check()
}

// A ledger that is full to the last byte still gets its marks.
func TestRetentionOfAFullLedger(t *testing.T) {
	w := newWorld(t)
	subject, _, st := w.flow("dev", 1, wire.Normal)
	w.block("dev", 1, wire.Normal, 50)
	w.layout.BlocksMaxBytes = int64(w.info(store.Blocks).Bytes) + 10
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.PublishBatch(w.ctx(), []store.Msg{{Subject: subject, Header: nats.Header{}}}); !errors.Is(err, store.ErrFull) {
		t.Fatalf("the ledger is not full: %v", err)
	}
	cfg := w.config()
	cfg.Retain = time.Nanosecond
	_, stop := w.start(cfg)
	w.wait("purge", func() bool { return w.info(store.Blocks).First > 1 })
	stop()
	if i := w.info(store.Blocks); i.MaxBytes != w.layout.BlocksMaxBytes || i.Bytes > uint64(i.MaxBytes) {
		t.Errorf("max_bytes is %d, want %d again; held: %d", i.MaxBytes, w.layout.BlocksMaxBytes, i.Bytes)
	}
	m, err := w.s.Last(w.ctx(), store.Blocks, subject)
	if err != nil || m.Header.Get("Fieldpost-Received") != st.set.String() {
		t.Errorf("set %v, %v", m.Header, err)
	}
}

// Ingest and retention append to the same flows at the same time.
func TestRetentionRacesIngest(t *testing.T) {
	w := newWorld(t)
	cfg := w.config()
	cfg.Retain, cfg.RetainEvery = time.Nanosecond, time.Millisecond
	_, stop := w.start(cfg)
	other := w.config()
	other.Retain, other.RetainEvery = time.Nanosecond, time.Millisecond
	u2, err := New(w.ctx(), other)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // a second instance without a lease
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := u2.retainOnce(w.ctx()); err != nil && !errors.Is(err, store.ErrGuard) && !strings.Contains(err.Error(), "read the ledger's headers") {
				t.Error(err)
				return
			}
		}
	})
	for i := range 150 {
		w.block(fmt.Sprint("dev", i%3), 1, wire.Lane(i%2), 3)
	}
	w.caughtUp()
	close(done)
	wg.Wait()
	stop()
	w.check()
	w.checkSets()
	if w.info(store.Blocks).First == 1 {
		t.Error("nothing was purged")
	}
}
