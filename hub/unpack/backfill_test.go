package unpack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// late is a world whose second table adds LATE, which takes "a.>" and "x.>" away
// from EDGE.
func late(t *testing.T) *world {
	w := newWorld(t)
	w.layout.Routes = append(w.layout.Routes, store.RouteStream{Name: "LATE", Subjects: []string{"late.>"}, MaxBytes: 64 << 20})
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	return w
}

var lateRoutes = Table{
	{Match: "a.>", Stream: "LATE", Prefix: "late"},
	{Match: "alarm.>", Stream: "ALARMS", Prefix: "alarms"},
	{Match: ">", Stream: "EDGE", Prefix: "edge"},
}

// positions lists where the messages of a stream come from, as blocks of the
// ledger and places in them, in the stream's order.
func (w *world) positions(stream string) (out []string) {
	for _, m := range w.all(stream) {
		out = append(out, m.Header.Get(HdrBlock)+" "+m.Subject)
	}
	return out
}

// given lists the same of what a table gives to a stream from a range of blocks.
func (w *world) given(table Table, stream string, first, end uint64) (out []string) {
	w.t.Helper()
	proj, dec := NewProjector(stream, Tables{{Table: table}}), wire.NewDecoder()
	var parts pieces
	for _, m := range w.all(store.Blocks) {
		m, ok, err := parts.add(m)
		if err != nil || !ok || m.Seq < first || m.Seq >= end || m.Header[hdrVoid] != nil || m.Header[hdrMark] != nil {
			continue
		}
		b, err := dec.Decode(m.Data, true)
		if err != nil {
			continue // poison
		}
		outs, err := proj.Project(nil, m.Seq, m.Subject, b)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range outs {
			out = append(out, o.block+" "+o.Subject)
		}
	}
	return out
}

// ask asks for a back-fill as soon as it is possible.
func (w *world) ask(u *Unpacker, stream string, since Since) (walk Walk) {
	w.t.Helper()
	w.wait("a back-fill is taken", func() bool {
		var err error
		walk, _, err = u.Backfill(w.ctx(), stream, since)
		if err != nil && !errors.Is(err, ErrNotYet) {
			w.t.Fatal(err)
		}
		return err == nil
	})
	return walk
}

// walked waits until the stream has no walk before it.
func (w *world) walked(stream string, walks int) {
	w.t.Helper()
	w.wait(fmt.Sprintf("%d back-fills of %s are complete", walks, stream), func() bool {
		s := saved[entry]{kv: mustKV(w), key: keyCheckpoint(stream)}
		_, err := s.load(w.ctx())
		return err == nil && s.val.Asked == nil && s.val.Walk == nil && len(s.val.Done) == walks
	})
}

// same compares what a stream holds with what it must hold, in order.
func (w *world) same(stream string, want []string) {
	w.t.Helper()
	got := w.positions(stream)
	if !slices.Equal(got, want) {
		w.t.Fatalf("%s holds %d messages, want %d:\n got %q\nwant %q", stream, len(got), len(want), got, want)
	}
}

func TestBackfill(t *testing.T) {
	w := late(t)
	w.some(30)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	from := w.info(store.Blocks).Last + 1
	w.routes = lateRoutes
	u, stop := w.start(w.config())
	w.some(10)
	w.caughtUp() // LATE has what is new
	before := w.positions("LATE")
	walk := w.ask(u, "LATE", Since{})
	if walk.First != 1 || walk.End != from {
		t.Fatalf("the walk is %+v, want 1 to %d", walk, from)
	}
	if _, _, err := u.Backfill(w.ctx(), "LATE", Since{}); !errors.Is(err, ErrBackfilling) && !errors.Is(err, ErrBackfilled) {
		t.Errorf("a second one meanwhile: %v", err)
	}
	w.walked("LATE", 1)
	for name, since := range map[string]Since{"all": {}, "a part": {Seq: 5}, "by time": {Time: time.Now().Add(-time.Hour)}} {
		if _, first, err := u.Backfill(w.ctx(), "LATE", since); !errors.Is(err, ErrBackfilled) || first != 1 || !strings.Contains(err.Error(), "begins at block 1") {
			t.Errorf("%s again: %v (first %d)", name, err, first)
		}
	}
	if _, _, err := u.Backfill(w.ctx(), "PACKED", Since{}); !errors.Is(err, ErrNoRoute) {
		t.Errorf("a stream without a route: %v", err)
	}
	end := w.info(store.Blocks).Last + 1
	mark := len(w.want["LATE"])
	w.some(10)
	walked := w.given(lateRoutes, "LATE", 1, from)
	w.wait("what comes then", func() bool {
		return w.info("LATE").Last == uint64(len(walked)+len(w.want["LATE"]))
	})
	w.caughtUp()
	stop()
	w.same("LATE", slices.Concat(before, walked, w.given(lateRoutes, "LATE", end, 1<<60)))
	for _, m := range w.all("LATE")[mark : mark+len(walked)] {
		if m.Header.Get(HdrBackfill) != "true" {
			t.Fatalf("message %d is not marked as late: %v", m.Seq, m.Header)
		}
	}
	delete(w.want, "LATE")
	w.check()
}

// A walk brings nothing that the stream has: what its route of that time gave,
// and what an earlier walk brought.
func TestBackfillInSteps(t *testing.T) {
	w := late(t)
	w.routes = Table{{Match: "a.>", Stream: "LATE", Prefix: "late"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}}
	w.some(20)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	second := w.info(store.Blocks).Last + 1
	first := w.positions("LATE")
	w.routes = Table{{Match: "*.>", Stream: "LATE", Prefix: "late"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}} // more, and a.> still
	u, stop := w.start(w.config())
	middle := w.blockStart(second / 2)
	w.ask(u, "LATE", Since{Seq: second / 2})
	w.walked("LATE", 1)
	walk := w.ask(u, "LATE", Since{})
	if walk.First != 1 || walk.End != middle {
		t.Fatalf("the second walk is %+v, want 1 to %d", walk, middle)
	}
	w.walked("LATE", 2)
	stop()
	had := map[string]bool{}
	for _, p := range first {
		had[p] = true
	}
	fresh := func(ps []string) []string { return slices.DeleteFunc(ps, func(p string) bool { return had[p] }) }
	w.same("LATE", slices.Concat(first, fresh(w.given(w.routes, "LATE", middle, second)), fresh(w.given(w.routes, "LATE", 1, middle))))
	if n := len(w.positions("LATE")) - len(first); n == 0 {
		t.Error("nothing was back-filled")
	}
}

// blockStart is where the block begins that has a sequence.
func (w *world) blockStart(seq uint64) uint64 {
	w.t.Helper()
	m, err := w.s.Get(w.ctx(), store.Blocks, seq)
	if err != nil {
		w.t.Fatal(err)
	}
	if i, _, _ := wire.ParsePart(m.Header.Get(hdrPiece)); i > 1 {
		return seq - uint64(i-1)
	}
	return seq
}

// Whatever dies during a back-fill, while blocks keep coming: each message of
// the walk is there once, in order, and so is everything else.
func TestBackfillCrashes(t *testing.T) {
	points := []string{"backfill:begin", "backfill:quiet", "backfill:end", "unpack:resume", "unpack:read", "unpack:publish", "unpack:commit", "unpack:checkpoint"}
	for _, point := range points {
		for _, nth := range []int64{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", point, nth), func(t *testing.T) {
				t.Parallel()
				w := late(t)
				w.some(25)
				_, stop := w.start(w.config())
				w.caughtUp()
				stop()
				from := w.info(store.Blocks).Last + 1
				w.routes = lateRoutes
				var armed atomic.Bool
				c := newCrash(point, nth)
				cfg := w.config()
				cfg.CheckpointEvery = time.Duration(nth) * 30 * time.Millisecond
				cfg.Fault = func(p string) error {
					if armed.Load() {
						return c.at(p)
					}
					return nil
				}
				u, stop := w.start(cfg)
				w.ask(u, "LATE", Since{})
				armed.Store(true)
				w.some(10)
				select {
				case <-c.died:
				case <-time.After(300 * time.Millisecond): // a point that is not passed so often
				}
				stop()
				_, stop = w.start(w.config())
				w.walked("LATE", 1)
				w.some(5)
				walked := w.given(lateRoutes, "LATE", 1, from)
				w.wait("all is there", func() bool {
					return w.info("LATE").Last >= uint64(len(walked)+len(w.want["LATE"]))
				})
				w.caughtUp()
				stop()
				w.sameWithWalk("LATE", walked, w.given(lateRoutes, "LATE", from, 1<<60))
				delete(w.want, "LATE")
				w.check()
			})
		}
	}
}

// sameWithWalk wants a stream to hold the walk in one piece, and the rest around
// it in order.
func (w *world) sameWithWalk(stream string, walked, rest []string) {
	w.t.Helper()
	got := w.positions(stream)
	for at := range len(rest) + 1 {
		if slices.Equal(got, slices.Concat(rest[:at], walked, rest[at:])) {
			return
		}
	}
	w.t.Fatalf("%s holds\n%q\nwant in one piece\n%q\namong\n%q", stream, got, walked, rest)
}

// Instances that take each other's lease for their own write one walk.
func TestBackfillRaces(t *testing.T) {
	w := late(t)
	w.some(20)
	w.block("dev", 1, wire.Normal, 3000)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	from := w.info(store.Blocks).Last + 1
	w.routes = lateRoutes
	var stops []func()
	var u *Unpacker
	for range 3 {
		cfg := w.config()
		cfg.Instance = "the same"
		one, stop := w.start(cfg)
		u, stops = one, append(stops, stop)
	}
	w.some(10)
	w.ask(u, "LATE", Since{})
	w.some(10)
	walked := w.given(lateRoutes, "LATE", 1, from)
	w.walked("LATE", 1)
	w.wait("all is there", func() bool { return w.info("LATE").Last >= uint64(len(walked)+len(w.want["LATE"])) })
	for _, stop := range stops {
		stop()
	}
	w.sameWithWalk("LATE", walked, w.given(lateRoutes, "LATE", from, 1<<60))
}

// Another instance may write on after the walk was made durable, before anything
// of it was stored: that is part of the stream, and not written again.
func TestBackfillIsOvertaken(t *testing.T) {
	w := late(t)
	w.block("dev", 1, wire.Normal, 200)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	from := w.info(store.Blocks).Last + 1
	w.routes = lateRoutes
	u, stop := w.start(w.config())
	w.block("dev", 1, wire.Normal, 100)
	w.caughtUp()
	stop() // leaves a checkpoint
	s := saved[entry]{kv: mustKV(w), key: keyCheckpoint("LATE")}
	if found, err := s.load(w.ctx()); err != nil || !found {
		t.Fatal(err)
	}
	old := s.val
	if _, _, err := u.Backfill(w.ctx(), "LATE", Since{}); err != nil {
		t.Fatal(err)
	}
	// The instance that begins the walk dies right then …
	cfg := w.config()
	c := newCrash("unpack:publish", 1)
	cfg.Fault = c.at
	_, stop = w.start(cfg)
	<-c.died
	stop()
	if found, err := s.load(w.ctx()); err != nil || !found || s.val.Walk == nil {
		t.Fatalf("no walk is under way: %+v, %v", s.val, err)
	}
	// … and one that knows only the old checkpoint stores what comes next.
	w.block("dev", 1, wire.Normal, 50)
	// It does not look before it has stored something.
	w.stores(w.behind(old, 1, time.Hour), uint64(len(w.want["LATE"])))
	_, stop = w.start(w.config())
	w.walked("LATE", 1)
	w.block("dev", 1, wire.Normal, 50)
	walked := w.given(lateRoutes, "LATE", 1, from)
	w.wait("all is there", func() bool { return w.info("LATE").Last >= uint64(len(walked)+len(w.want["LATE"])) })
	stop()
	w.sameWithWalk("LATE", walked, w.given(lateRoutes, "LATE", from, 1<<60))
}

// Blocks that a walk still needs stay; those that are gone are not in it.
func TestBackfillAndRetention(t *testing.T) {
	w := late(t)
	for range 8 {
		w.block("dev", 1, wire.Normal, 50)
	}
	var c clock
	cfg := w.config()
	cfg.Now = c.now
	_, stop := w.start(cfg)
	w.caughtUp()
	stop()
	cut := w.blockStart(w.info(store.Blocks).Last / 2)
	if err := w.s.PurgeTo(w.ctx(), store.Blocks, cut-1); err != nil {
		t.Fatal(err)
	}
	from := w.info(store.Blocks).Last + 1
	w.routes = lateRoutes
	var hold atomic.Bool
	hold.Store(true)
	cfg = w.config()
	cfg.Now = c.now
	cfg.Fault = func(p string) error {
		if p == "backfill:begin" && hold.Load() {
			return errInjected
		}
		return nil
	}
	u, stop := w.start(cfg)
	walk := w.ask(u, "LATE", Since{})
	if walk.First != cut {
		t.Errorf("the walk begins at %d, the ledger at %d", walk.First, cut)
	}
	walked := w.given(lateRoutes, "LATE", cut, from)
	c.ahead.Store(int64(25 * time.Hour))
	w.wait("all others have everything", func() bool { return u.Lag("EDGE", w.info(store.Blocks).Last) == 0 })
	if _, err := u.retainOnce(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if first := w.info(store.Blocks).First; first != cut {
		t.Fatalf("the ledger begins at %d, and the walk at %d", first, cut)
	}
	hold.Store(false)
	w.walked("LATE", 1)
	w.wait("purge", func() bool { return w.info(store.Blocks).First > cut })
	stop()
	w.same("LATE", walked)
}
