package unpack

import (
	"testing"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// lostOf is what an instance says of a stream.
func lostOf(u *Unpacker, stream string) Lost {
	for _, s := range u.Status() {
		if s.Stream == stream {
			return s.Lost
		}
	}
	return Lost{}
}

// TestRemovedBeforeUnpacked: what somebody purges too early is counted, once, at
// whatever place of the ledger it was, and across restarts.
func TestRemovedBeforeUnpacked(t *testing.T) {
	w := newWorld(t)
	blocks := func(n int) {
		for range n {
			w.block("dev", 1, wire.Normal, 20)
		}
	}
	blocks(4)
	u, stop := w.start(w.config())
	w.caughtUp()
	if got := lostOf(u, "EDGE"); got != (Lost{}) {
		t.Fatalf("lost before anything was removed: %+v", got)
	}
	stop()

	from := w.info(store.Blocks).Last + 1
	blocks(6)
	cut := w.blockStart(w.info(store.Blocks).Last)
	if err := w.s.PurgeTo(w.ctx(), store.Blocks, cut-1); err != nil {
		t.Fatal(err)
	}
	want := Lost{Blocks: cut - from, First: from, Last: cut - 1}
	for range 2 { // a restart counts nothing again
		u, stop = w.start(w.config())
		w.wait("the blocks are counted", func() bool { return lostOf(u, "EDGE") == want && lostOf(u, "ALARMS") == want })
		w.wait("the rest is unpacked", func() bool { return u.Lag("EDGE", w.info(store.Blocks).Last) == 0 })
		if got := lostOf(u, "EDGE"); got != want {
			t.Errorf("lost %+v, want %+v", got, want)
		}
		stop()
	}

	blocks(1)
	hole := w.info(store.Blocks).Last
	blocks(2)
	if ok, err := w.s.Delete(w.ctx(), store.Blocks, hole); err != nil || !ok {
		t.Fatalf("remove block %d: %v %v", hole, ok, err)
	}
	want = Lost{Blocks: want.Blocks + 1, First: hole, Last: hole}
	for range 2 {
		u, stop = w.start(w.config())
		w.wait("the hole is counted", func() bool { return lostOf(u, "EDGE") == want })
		w.wait("the rest is unpacked", func() bool { return u.Lag("EDGE", w.info(store.Blocks).Last) == 0 })
		if got := lostOf(u, "EDGE"); got != want {
			t.Errorf("lost %+v, want %+v", got, want)
		}
		stop()
	}
}

// TestPurgedLedgerIsCounted: nothing is left, and nothing new comes either.
func TestPurgedLedgerIsCounted(t *testing.T) {
	w := newWorld(t)
	w.block("dev", 1, wire.Normal, 20)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	from := w.info(store.Blocks).Last + 1
	w.block("dev", 1, wire.Normal, 20)
	last := w.info(store.Blocks).Last
	if err := w.s.PurgeTo(w.ctx(), store.Blocks, last); err != nil {
		t.Fatal(err)
	}
	want := Lost{Blocks: last + 1 - from, First: from, Last: last}
	for range 3 {
		u, stop := w.start(w.config())
		w.wait("the blocks are counted", func() bool { return lostOf(u, "EDGE") == want })
		stop()
	}
}
