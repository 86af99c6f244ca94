package unpack

import (
	"slices"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestTablesOfAStream(t *testing.T) {
	a, b := Table{{Match: ">", Stream: "A", Prefix: "a"}}, Table{{Match: ">", Stream: "B", Prefix: "b"}}
	packed := Table{{Match: ">", Packed: true}}
	ts := Tables{{From: 0, Table: a}, {From: 10, Table: b}, {From: 20, Table: a}, {From: 30, Table: packed}}
	for _, tt := range []struct {
		ts        Tables
		a, b      uint64
		former    []string
		aFrom5To9 bool
		aIn10To20 bool
	}{
		{ts[:1], 0, 0, nil, true, true},
		{ts[:2], 10, 0, []string{"A"}, true, false},
		{ts[:3], 0, 20, []string{"B"}, true, false},
		{ts, 30, 20, []string{"A", "B"}, true, false},
	} {
		if got := tt.ts.End("A"); got != tt.a {
			t.Errorf("%d versions: A ends at %d, want %d", len(tt.ts), got, tt.a)
		}
		if got := tt.ts.End("B"); got != tt.b {
			t.Errorf("%d versions: B ends at %d, want %d", len(tt.ts), got, tt.b)
		}
		if got := tt.ts.former(); !slices.Equal(got, tt.former) {
			t.Errorf("%d versions: former streams %q, want %q", len(tt.ts), got, tt.former)
		}
		if tt.ts.ever("A", 5, 9) != tt.aFrom5To9 || tt.ts.ever("A", 10, 20) != tt.aIn10To20 {
			t.Errorf("%d versions: ever is wrong", len(tt.ts))
		}
	}
	for first, want := range map[uint64]int{0: 4, 9: 4, 10: 3, 19: 3, 29: 2, 30: 1, 99: 1} {
		if got := ts.since(first); len(got) != want {
			t.Errorf("of a ledger from %d on: %d versions, want %d", first, len(got), want)
		}
	}
}

// A stream whose route is removed still gets what was received for it, and then
// holds nothing back.
func TestRemovedRouteGetsWhatIsIts(t *testing.T) {
	w := newWorld(t)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	w.some(15)
	w.block("dev", 1, wire.Normal, 200)
	w.routes = Table{{Match: ">", Stream: "EDGE", Prefix: "edge"}}
	cfg := w.config()
	cfg.Retain = time.Nanosecond
	u, stop := w.start(cfg)
	w.some(10)
	w.caughtUp()
	w.wait("ALARMS is done with", func() bool {
		s := u.Status()
		return len(s) == 2 && s[1].Stream == "ALARMS" && s[1].Done && s[1].Err == nil && u.Lag("ALARMS", w.info(store.Blocks).Last) == 0
	})
	w.some(5)
	w.caughtUp()
	w.wait("ALARMS holds no block back", func() bool { return w.info(store.Blocks).First > u.Status()[1].End })
	stop()
	w.check()

	// The route comes back: nothing is missed, nothing repeated.
	w.routes = Table{{Match: "alarm.>", Stream: "ALARMS", Prefix: "alarms"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}}
	_, stop = w.start(w.config())
	w.some(10)
	w.caughtUp()
	stop()
	w.check()
}

// Who removes the stream too gives up what was still to come.
func TestRemovedRouteAndStream(t *testing.T) {
	w := newWorld(t)
	w.some(10)
	_, stop := w.start(w.config())
	w.caughtUp()
	stop()
	w.block("dev", 1, wire.Normal, 100)
	if err := w.s.JetStream().DeleteStream(w.ctx(), "ALARMS"); err != nil {
		t.Fatal(err)
	}
	w.routes = Table{{Match: ">", Stream: "EDGE", Prefix: "edge"}}
	cfg := w.config()
	cfg.Retain = time.Nanosecond
	u, stop := w.start(cfg)
	w.wait("it is given up", func() bool { s := u.Status(); return len(s) == 2 && s[1].Done })
	w.wait("purge", func() bool { return w.info(store.Blocks).First > 1 })
	stop()
}

// A message that no route takes is counted once, whatever dies.
func TestUnroutedAreCounted(t *testing.T) {
	w := newWorld(t)
	w.routes = Table{{Match: "alarm.>", Stream: "ALARMS", Prefix: "alarms"}, {Match: "lost.>", Packed: true}, {Match: "*", Stream: "EDGE", Prefix: "edge"}}
	count := func() (n uint64) { // of all that was made
		dec := wire.NewDecoder()
		var parts pieces
		for _, m := range w.all(store.Blocks) {
			m, ok, err := parts.add(m)
			if err != nil || !ok || m.Header[hdrVoid] != nil || m.Header[hdrMark] != nil {
				continue
			}
			b, err := dec.Decode(m.Data, true)
			if err != nil {
				continue
			}
			for _, msg := range b.Messages {
				if msg.Blank == 0 && w.routes.Route(msg.Subject) == nil {
					n++
				}
			}
		}
		return n
	}
	w.some(20)
	for _, nth := range []int64{1, 2, 5} {
		c := newCrash("gap:checkpoint", nth)
		cfg := w.config()
		cfg.Fault = c.at
		_, stop := w.start(cfg)
		w.some(20)
		select {
		case <-c.died:
		case <-time.After(300 * time.Millisecond): // a point that is not passed so often
		}
		stop()
	}
	u, stop := w.start(w.config())
	want := count()
	if want == 0 {
		t.Fatal("every message has a route")
	}
	w.wait("all are counted", func() bool { return u.Unrouted().Messages >= want })
	w.caughtUp()
	stop()
	got := u.Unrouted()
	if got.Messages != want || w.routes.Route(got.Subject) != nil || got.Block == 0 {
		t.Errorf("unrouted: %+v, want %d", got, want)
	}
	w.check()
}

// However often the routes change, whatever dies, and while blocks keep coming:
// each block is unpacked by the table of its time.
func TestRoutesChangeUnderCrashes(t *testing.T) {
	alarms, edge := Route{Match: "alarm.>", Stream: "ALARMS", Prefix: "alarms"}, Route{Match: ">", Stream: "EDGE", Prefix: "edge"}
	tables := []Table{
		{alarms, edge},
		{edge},
		{{Match: "alarm.>", Packed: true}, edge},
		{{Match: "a.>", Stream: "ALARMS", Prefix: "alarms"}, {Match: "x.>", Packed: true}, edge},
		{alarms, {Match: "temp", Stream: "EDGE", Prefix: "edge"}},
	}
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			for range 6 {
				w.routes = tables[w.rng.IntN(len(tables))]
				c := newCrash("", 20+w.rng.Int64N(200)) // at any point
				cfg := w.config()
				cfg.Fault = c.at
				_, stop := w.start(cfg)
				w.some(6)
				select {
				case <-c.died:
				case <-time.After(200 * time.Millisecond): // or at the stop, or not at all
				}
				stop()
				w.some(3)
			}
			_, stop := w.start(w.config())
			w.some(5)
			w.caughtUp()
			stop()
			w.check()
			w.checkSets()
		})
	}
}
