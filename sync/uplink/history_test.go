package uplink

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestHistory: the last ten transitions, newest first, with hub and reason.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.net.set(func(n *memNet) { n.refuse = errors.New("connection refused") })
		b.run()
		b.within(time.Minute, "a failed dial", func() bool { return b.u.Status().LastError != "" })
		if h := b.u.Status().History; len(h) != 0 {
			t.Errorf("history before anything changed: %+v", h)
		}
		b.net.set(func(n *memNet) { n.refuse = nil })
		for i := range 6 {
			b.within(time.Minute, "up", func() bool { return b.counted(&b.ups) == i+1 })
			if i == 5 {
				b.net.set(func(n *memNet) { n.refuse = errors.New("gone") })
			}
			b.net.last().cut(errors.New("cut"))
			b.within(time.Minute, "down", func() bool { return b.counted(&b.downs) == i+1 })
		}
		h := b.u.Status().History
		if len(h) != maxHistory {
			t.Fatalf("%d transitions: %+v", len(h), h)
		}
		for i, x := range h {
			if x.Up != (i%2 == 1) || x.Hub != "mem://hub (i1)" || x.Reason != "cut" || i > 0 && x.At.After(h[i-1].At) {
				t.Errorf("transition %d: %+v", i, x)
			}
		}
		b.stop()
	})
}
