package testenv

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// edgeOf subscribes to what the hub stores of an agent's subject.
func (w *World) edgeOf(tb testing.TB, a *Agent, subject string) *nats.Subscription {
	tb.Helper()
	nc, err := nats.Connect("nats://" + w.NATS)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync("edge." + a.Device + "." + subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return sub
}

// TestFreshFirst: after each of two outages, the second while the first one's
// backlog is still on its way, new messages go ahead; what was there before is
// marked and nothing else is; all of it comes once, and in order.
func TestFreshFirst(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	w.History.FreshFirst = true
	a := w.AddAgent("press-7", "spool: {order: fresh-first}\n")
	a.Link.ShapeLike(profile(16_000, 200*time.Millisecond))
	fresh := w.edgeOf(t, a, "test.fresh.>")
	for i := range 2 {
		a.Link.Cut(true)
		linkIs(t, a, false, 10*time.Second)
		w.publishNoise(a, fmt.Sprint("cut", i), wire.Normal, 100, 4000)
		w.publishNoise(a, fmt.Sprint("bulk", i), wire.Bulk, 10, 4000)
		a.Link.Cut(false)
		linkIs(t, a, true, 10*time.Second)
		for n := range 10 {
			from := fmt.Sprintf("fresh.%d-%d", i, n)
			w.publishNoise(a, from, wire.Normal, 1, 200)
			m, err := fresh.NextMsg(10 * time.Second)
			if err != nil || !strings.HasSuffix(m.Subject, "."+from) {
				t.Fatalf("%s: %+v, %v", from, m, err)
			}
		}
		// Not one of them may stand behind the backlog that was there first.
		switch left, err := a.Backlog(); {
		case err != nil:
			t.Fatal(err)
		case left < int64(50*(i+1)):
			t.Errorf("outage %d: only %d messages of the backlog were left when the fresh ones had come", i, left)
		}
	}
	if err := w.edgeHolds(20 + 1); err != nil {
		t.Errorf("the backlog does not fill in: %v", err)
	}
	a.Link.Shape(0, 0)
	if c := w.Settle(60 * time.Second); c.Stored != 240 {
		t.Fatalf("%v", c)
	}
	for _, s := range w.History.stored {
		if old := !strings.HasPrefix(s.Subject, "test.fresh"); old != s.backfill() {
			t.Errorf("%s %v: headers %v", s.Subject, s.Receipt, s.Headers)
		}
	}
	if slices.IsSortedFunc(w.History.stored, func(a, b Stored) int { return int(a.Receipt.Seq) - int(b.Receipt.Seq) }) {
		t.Error("nothing was overtaken")
	}
}
