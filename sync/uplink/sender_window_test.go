package uplink

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// simulateLink runs a window over a link of so many bytes a second for a while
// and returns its size and the share of the link's time that was used.
func simulateLink(t *testing.T, rate float64, rtt time.Duration, frame int, limit int, d time.Duration) (size int, used float64) {
	w := newWindow(limit, 8<<20, rtt)
	start := time.Unix(1_800_000_000, 0)
	now, free := start, start // free: when the link has sent everything
	type out struct {
		sent, acked time.Time
		limited     bool
	}
	var flying []out
	var busy time.Duration
	for now.Sub(start) < d {
		for w.room(frame) {
			took := time.Duration(float64(frame) / rate * float64(time.Second))
			free = latest(now, free).Add(took)
			busy += took
			w.inflight += frame
			flying = append(flying, out{now, free.Add(rtt), w.full()})
		}
		if len(flying) == 0 {
			t.Fatal("nothing is in flight, and nothing may be sent")
		}
		o := flying[0]
		flying = flying[1:]
		now = o.acked
		w.landed(now, frame, now.Sub(o.sent), o.limited)
	}
	return w.size, float64(busy) / float64(free.Sub(start))
}

func TestWindowAdaptsToTheLink(t *testing.T) {
	for _, c := range []struct {
		name             string
		rate             float64 // bytes a second
		rtt              time.Duration
		frame            int
		minSize, maxSize int
		used             float64
	}{
		{"modem: a short queue", 16e3, 200 * time.Millisecond, 8 << 10, minWindow, 96 << 10, 0.95},
		{"modem, large blocks: one after another", 16e3, 200 * time.Millisecond, 100 << 10, minWindow, 128 << 10, 0.9},
		{"satellite: fills the pipe", 2e6, 600 * time.Millisecond, 64 << 10, 1200 << 10, 4 << 20, 0.9},
		{"local network: as far as allowed", 100e6, time.Millisecond, 64 << 10, 4 << 20, 4 << 20, 0.9},
	} {
		t.Run(c.name, func(t *testing.T) {
			size, used := simulateLink(t, c.rate, c.rtt, c.frame, 4<<20, 5*time.Minute)
			if size < c.minSize || size > c.maxSize {
				t.Errorf("size %d, want %d to %d", size, c.minSize, c.maxSize)
			}
			if used < c.used {
				t.Errorf("the link is used %.2f of the time, want %.2f", used, c.used)
			}
		})
	}
}

func TestWindowLetsOneFramePass(t *testing.T) {
	w := newWindow(1000, 500, 0)
	if !w.room(1 << 20) {
		t.Error("an empty window refuses a frame that is larger than all limits")
	}
	w.inflight = 400
	if w.room(101) {
		t.Error("more than the hub allows")
	}
	if !w.room(100) {
		t.Error("refuses what the hub allows")
	}
}

// TestManyEpochs: more flows than an open request can name, some of them sent in
// part and trimmed: nothing may be taken for lost.
func TestManyEpochs(t *testing.T) {
	hub, spool := newFakeHub(), newFakeSpool()
	w := &senderWorld{tb: t, now: time.Unix(1_800_000_000, 0), spool: spool, hub: hub, lastRun: map[wire.Epoch]bool{}}
	for i := range 250 {
		if i > 0 {
			spool.restart()
		}
		spool.append(wire.Urgent, 1, 0)
		for range 2 {
			spool.append(wire.Normal, 2, 0)
		}
	}
	// The hub has the first block of the last epoch, the spool no longer.
	last := spool.flows[len(spool.flows)-1]
	hub.ledger[last.Flow] = &fakeLedger{received: wire.Ranges{last.blocks[0].r}, messages: []uint64{last.base, last.base + 1}}
	spool.drop(last.Flow, last.blocks[0].r)

	w.s = NewSender(SenderConfig{Process: "p", Rand: func() float64 { return 0.5 }})
	w.spooled()
	w.settle()
	if err := hub.check(spool.flows); err != nil {
		t.Fatal(err)
	}
	for flow, l := range hub.ledger {
		if len(l.voids) > 0 {
			t.Errorf("flow %s: voids %s, nothing was lost", flow, l.voids)
		}
	}
	if len(hub.closed) != 249 {
		t.Errorf("%d epochs are reported drained, want 249", len(hub.closed))
	}
	if hub.last > 4 {
		t.Errorf("%d sessions; one more for the flow that was not announced would do", hub.last)
	}
}
