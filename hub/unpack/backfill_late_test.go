package unpack

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// behind is a writer of LATE that does not know what happened to its checkpoint
// since it was old, at revision rev.
func (w *world) behind(old entry, rev uint64, look time.Duration) *pump {
	w.t.Helper()
	cfg := w.config()
	cfg.CheckpointEvery = look
	u, err := New(w.ctx(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	tables, err := u.currentTables(w.ctx())
	if err != nil {
		w.t.Fatal(err)
	}
	writer := u.workers["LATE"]
	writer.state.val, writer.state.rev = old, rev
	p := &pump{w: writer, course: writer.course(tables)}
	p.from = start{Checkpoint: old.Checkpoint, last: w.info("LATE").Last, ledger: w.info(store.Blocks).Last}
	p.from.StreamSeq = p.from.last
	return p
}

// stores runs p until LATE has n messages.
func (w *world) stores(p *pump, n uint64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx(), 20*time.Second)
	defer cancel()
	go func() {
		for w.info("LATE").Last < n && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	err := p.run(ctx)
	if last := w.info("LATE").Last; last < n {
		w.t.Errorf("LATE has %d of %d messages: %v", last, n, err)
	}
}

// asked is a world whose stream LATE has some messages and no walk yet, and its
// checkpoint.
func asked(t *testing.T) (w *world, from uint64, old saved[entry]) {
	w = late(t)
	w.block("dev", 1, wire.Normal, 200)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	from = w.info(store.Blocks).Last + 1
	w.routes = lateRoutes
	_, stop = w.start(w.config())
	w.block("dev", 1, wire.Normal, 100)
	w.caughtUp()
	stop() // leaves a checkpoint
	old = saved[entry]{kv: mustKV(w), key: keyCheckpoint("LATE")}
	if found, err := old.load(w.ctx()); err != nil || !found {
		t.Fatal(err)
	}
	return w, from, old
}

// A writer that knows only the old checkpoint stores a few messages, each with a
// guard of its own, after the walk has begun: the walk waits for it, and takes
// them for what they are.
func TestBackfillWaitsForWritersBehind(t *testing.T) {
	w, from, old := asked(t)
	w.block("dev", 1, wire.Normal, 50)
	want := uint64(len(w.want["LATE"]))
	var once sync.Once
	var late atomic.Bool
	cfg := w.config()
	cfg.Fault = func(point string) error {
		if point == "backfill:quiet" {
			once.Do(func() {
				late.Store(true)
				w.stores(w.behind(old.val, old.rev, time.Hour), want)
			})
		}
		return nil
	}
	u, err := New(w.ctx(), w.config())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := u.Backfill(w.ctx(), "LATE", Since{}); err != nil {
		t.Fatal(err)
	}
	_, stop := w.start(cfg)
	w.walked("LATE", 1)
	w.block("dev", 1, wire.Normal, 50)
	walked := w.given(lateRoutes, "LATE", 1, from)
	w.wait("all is there", func() bool { return w.info("LATE").Last >= uint64(len(walked)+len(w.want["LATE"])) })
	stop()
	if !late.Load() {
		t.Fatal("nobody was waited for")
	}
	w.sameWithWalk("LATE", walked, w.given(lateRoutes, "LATE", from, 1<<60))
}

// A writer that has nothing to write learns by itself that a walk has begun, or
// one of its messages could go through in the middle of it later.
func TestWriterBehindLooks(t *testing.T) {
	w, _, old := asked(t)
	p := w.behind(old.val, old.rev, 10*time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- p.run(w.ctx()) }()
	if _, _, err := p.w.u.Backfill(w.ctx(), "LATE", Since{}); err != nil {
		t.Fatal(err)
	}
	s := saved[entry]{kv: mustKV(w), key: keyCheckpoint("LATE")}
	if _, err := s.load(w.ctx()); err != nil {
		t.Fatal(err)
	}
	e := s.val
	e.Walk, e.Asked, e.Then = e.Asked, nil, e.Position // as another instance does it
	e.Checkpoint.Position = Position{Block: e.Walk.First}
	if err := s.store(w.ctx(), e); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, errNews) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it goes on by the old checkpoint")
	}
}
