package uplink

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// simulateLink runs a window over a link of so many bytes a second for a while.
// After it has settled: the share of the link's time that was used, and the
// longest that a frame waited for others before it; and the same from the start.
func simulateLink(t *testing.T, rate float64, rtt, disk time.Duration, d time.Duration) (used float64, wait, ever time.Duration) {
	w := newWindow(64<<20, 64<<20, rtt)
	start := time.Unix(1_800_000_000, 0)
	now, free := start, start // free: when the link has sent everything
	type out struct {
		n           int
		sent, acked time.Time
		mark        mark
	}
	var flying []out
	var busy time.Duration
	settled := start.Add(d / 3)
	for now.Sub(start) < d {
		for n := w.frame(); !w.full(); n = w.frame() {
			took := time.Duration(float64(n) / rate * float64(time.Second))
			queued := free.Sub(now)
			if ever = max(ever, queued); now.After(settled) {
				wait, busy = max(wait, queued), busy+took
			}
			free = latest(now, free).Add(took)
			flying = append(flying, out{n, now, free.Add(rtt + disk), w.sent(now, n)})
		}
		if len(flying) == 0 {
			t.Fatal("nothing is in flight, and nothing may be sent")
		}
		flying[len(flying)-1].mark.limited = true
		o := flying[0]
		flying = flying[1:]
		now = o.acked
		w.landed(now, o.n, now.Sub(o.sent), o.mark)
	}
	return float64(busy) / float64(now.Sub(settled)), wait, ever
}

// TestWindowAdaptsToTheLink: it is used, and an urgent message finds a short queue.
func TestWindowAdaptsToTheLink(t *testing.T) {
	for _, c := range []struct {
		name      string
		rate      float64 // bytes a second
		rtt, disk time.Duration
		wait      time.Duration
	}{
		{"modem", 8e3, 200 * time.Millisecond, 5 * time.Millisecond, 700 * time.Millisecond},
		{"modem over a satellite", 8e3, 2 * time.Second, 5 * time.Millisecond, 1200 * time.Millisecond},
		{"satellite", 2e6, 600 * time.Millisecond, 20 * time.Millisecond, 700 * time.Millisecond},
		{"local network", 100e6, time.Millisecond, 3 * time.Millisecond, 150 * time.Millisecond},
		{"far and fast", 125e6, 200 * time.Millisecond, 3 * time.Millisecond, 200 * time.Millisecond},
		{"slow disk", 1e6, 30 * time.Millisecond, 300 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			used, wait, ever := simulateLink(t, c.rate, c.rtt, c.disk, 3*time.Minute)
			t.Logf("used %.3f, a frame waits %s, from the start %s", used, wait, ever)
			if used < 0.9 {
				t.Errorf("the link is used %.2f of the time, want 0.9", used)
			}
			if wait > c.wait {
				t.Errorf("a frame waits %s, want %s", wait, c.wait)
			}
			if ever > 1500*time.Millisecond {
				t.Errorf("a frame waits %s while the window finds out what the link carries", ever)
			}
		})
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

// TestFramesOfALimitedRate: a link that is faster than it may be used gets frames
// of the rate that is allowed.
func TestFramesOfALimitedRate(t *testing.T) {
	w := newWindow(64<<20, 64<<20, time.Millisecond)
	w.rates[0] = 100e6
	if n := w.frame(); n != frameMost {
		t.Fatalf("%d bytes without a limit", n)
	}
	for rate, want := range map[float64]int{100: frameLeast, 32e3: 9600, 1e9: frameMost} {
		if w.most = frameAt(rate); w.frame() != want {
			t.Errorf("%v B/s: %d bytes, not %d", rate, w.frame(), want)
		}
	}
}

// A session goes on with other frames when the limits change, up and down.
func TestTuneSizesFrames(t *testing.T) {
	s := NewSender(SenderConfig{})
	s.tune(Tuning{MaxFrame: 9000}) // before there is a session
	s.phase, s.window = phaseOpen, newWindow(0, 1<<20, time.Second)
	for _, c := range []struct {
		t    Tuning
		want int
	}{
		{Tuning{MaxFrame: 9000}, 9000}, {Tuning{MaxFrame: 1}, frameLeast}, {Tuning{}, frameMost},
		{Tuning{MaxRate: 20_000}, frameAt(20_000)}, {Tuning{MaxRate: 1, MaxFrame: 9000}, frameLeast},
	} {
		s.tune(c.t)
		if s.window.most != c.want {
			t.Errorf("%+v: frames of %d bytes, want %d", c.t, s.window.most, c.want)
		}
	}
}
