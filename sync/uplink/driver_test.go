package uplink

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// bench is an uplink over a memNet, running in a synctest bubble.
type bench struct {
	t      *testing.T
	spool  *fakeSpool
	hub    *fakeHub
	net    *memNet
	u      *Uplink
	cancel context.CancelFunc
	ended  chan error

	mu                         sync.Mutex
	ups, downs, again, rewound int
	sent                       int
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, spool: newFakeSpool(), hub: newFakeHub()}
	b.net = newMemNet(b.hub)
	b.u = New(Config{
		Device: "d1", Version: "v1", Source: b.spool, Pins: b.spool, Dialer: b.net, Epoch: b.spool.current,
		Hooks: Hooks{
			Transition: func(up bool) {
				if up {
					b.count(&b.ups, 1)
				} else {
					b.count(&b.downs, 1)
				}
			},
			Redelivered: func(n int) { b.count(&b.again, n) },
			Rewound:     func(n uint64) { b.count(&b.rewound, int(n)) },
			Sent:        func(n int) { b.count(&b.sent, n) },
		},
	})
	return b
}

func (b *bench) count(n *int, by int) { b.mu.Lock(); defer b.mu.Unlock(); *n += by }

func (b *bench) counted(n *int) int { b.mu.Lock(); defer b.mu.Unlock(); return *n }

func (b *bench) run() {
	ctx, cancel := context.WithCancel(b.t.Context())
	b.cancel, b.ended = cancel, make(chan error, 1)
	go func() { b.ended <- b.u.Run(ctx) }()
}

func (b *bench) stop() {
	b.t.Helper()
	b.cancel()
	if err := <-b.ended; err != nil {
		b.t.Errorf("Run: %v", err)
	}
}

// within waits until cond holds and returns how long that took.
func (b *bench) within(d time.Duration, what string, cond func() bool) time.Duration {
	b.t.Helper()
	start := time.Now()
	for !cond() {
		if time.Since(start) > d {
			b.t.Fatalf("%s: not within %s; %+v", what, d, b.u.Status())
		}
		time.Sleep(max(time.Millisecond, d/500))
		synctest.Wait()
	}
	return time.Since(start)
}

func (b *bench) delivered() bool { return b.spool.drained() }

func (b *bench) dials() int { n, _, _, _ := b.net.state(); return n }

func (b *bench) byes() int { _, _, n, _ := b.net.state(); return n }

func (b *bench) beats() []wire.Heartbeat { _, _, _, h := b.net.state(); return h }

func (b *bench) check() {
	b.t.Helper()
	if err := b.hub.check(b.spool.flows); err != nil {
		b.t.Error(err)
	}
}

func TestRunDeliversAndSaysGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.hub.token = "t1"
		b.spool.append(wire.Normal, 10, 100)
		b.run()
		b.within(time.Second, "backlog", b.delivered)
		b.spool.append(wire.Urgent, 1, 100)
		b.within(30*time.Millisecond, "a fresh message", b.delivered)
		b.within(time.Second, "heartbeat", func() bool { return len(b.beats()) == 1 })
		if st := b.u.Status(); !st.Up || st.Hub != "mem://hub (i1)" || st.LastError != "" || st.RTT < 20*time.Millisecond {
			t.Errorf("status %+v", st)
		}
		b.u.Changed()
		b.within(time.Second, "heartbeat after a change", func() bool { return len(b.beats()) == 2 })
		if h := b.beats()[0]; h.Every != 30 || h.Version != "v1" || h.Process == "" {
			t.Errorf("heartbeat %+v", h)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(b.beats()); n != 4 {
			t.Errorf("%d heartbeats after another minute, want 4", n)
		}
		if b.spool.hub != "hub1" || b.spool.tok != "t1" || b.hub.confirmed != "t1" {
			t.Errorf("pinned %q, token %q, confirmed %q", b.spool.hub, b.spool.tok, b.hub.confirmed)
		}
		b.stop()
		if b.byes() != 1 || len(b.hub.sessions) != 0 {
			t.Errorf("%d goodbyes, %d sessions left", b.byes(), len(b.hub.sessions))
		}
		b.check()
	})
}

// TestHeartbeatsTellWhatIsWrong: once in a session, and whenever there is news.
func TestHeartbeatsTellWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		trouble := ""
		b.u.cfg.Heartbeat = func() (h wire.Heartbeat) {
			if b.mu.Lock(); trouble != "" {
				h.Error = &wire.LastError{Text: trouble}
			}
			b.mu.Unlock()
			return h
		}
		n := 0
		next := func(want string) {
			t.Helper()
			n++
			b.within(time.Second, "heartbeat", func() bool { return len(b.beats()) == n })
			h, got := b.beats()[n-1], ""
			if h.Error != nil {
				got = h.Error.Text
			}
			if got != want {
				t.Errorf("heartbeat %d: error %q, want %q", n, got, want)
			}
			if off := h.Now - time.Now().UnixMilli(); off < -1100 || off > 100 {
				t.Errorf("heartbeat %d: its time is off by %d ms", n, off)
			}
		}
		again := func(text, want string) {
			t.Helper()
			b.mu.Lock()
			trouble = text
			b.mu.Unlock()
			b.u.Changed()
			next(want)
		}
		b.net.set(func(n *memNet) { n.refuse = errors.New("connection refused") })
		b.run()
		time.Sleep(time.Minute)
		b.net.set(func(n *memNet) { n.refuse = nil })
		b.u.Changed()
		b.within(time.Minute, "session", func() bool { return b.u.Status().Up })
		next("connection refused")
		again("", "")
		again("disk full", "disk full")
		again("disk full", "")
		again("", "")
		again("disk full", "disk full")
		b.net.last().set(func(c *memConn) { c.dropUp, c.dropDown = true, true })
		b.spool.append(wire.Normal, 1, 0)
		b.within(time.Minute, "another session", func() bool { return b.dials() > 2 && b.u.Status().Up && len(b.beats()) > n })
		n = len(b.beats()) - 1
		next(b.u.Status().History[0].Reason)
		b.stop()
	})
}

func TestHalfOpenLinkIsFound(t *testing.T) {
	cases := map[string]func(*memConn){
		"to the hub":   func(c *memConn) { c.dropUp = true },
		"from the hub": func(c *memConn) { c.dropDown = true },
		"both ways":    func(c *memConn) { c.dropUp, c.dropDown = true, true },
		"socket stuck": func(c *memConn) { c.stuck = make(chan struct{}) },
	}
	for name, break_ := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.spool.append(wire.Normal, 1, 0)
				b.run()
				b.within(time.Second, "first message", b.delivered)
				time.Sleep(17 * time.Second)
				b.net.last().set(break_)
				b.spool.append(wire.Normal, 5, 0)
				took := b.within(30*time.Second, "message over a half-open link", b.delivered)
				t.Logf("found and delivered after %s", took)
				b.stop()
				b.check()
			})
		})
	}
}

// TestSilenceWhileBlocksFlow: the link breaks in the middle of a backlog.
func TestSilenceWhileBlocksFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 2000 {
			b.spool.append(wire.Normal, 10, 100)
		}
		b.run()
		b.within(time.Second, "first", func() bool { return b.spool.told() > 0 })
		b.net.last().set(func(c *memConn) { c.dropDown = true })
		start := time.Now()
		b.within(30*time.Second, "another dial", func() bool { return b.dials() == 2 })
		b.within(time.Minute, "all", b.delivered)
		t.Logf("%s; %d blocks sent again", time.Since(start), b.counted(&b.again))
		b.stop()
		b.check()
	})
}

func TestSlowSocketIsNotSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.within(time.Second, "session", func() bool { return b.u.Status().Up })
		c := b.net.last()
		c.set(func(c *memConn) { c.stuck = make(chan struct{}) })
		b.spool.append(wire.Normal, 1, 0)
		for range 12 { // a minute in which the socket creeps
			time.Sleep(5 * time.Second)
			c.set(func(c *memConn) { c.progress = time.Now() })
		}
		c.set(func(c *memConn) { close(c.stuck); c.stuck = nil })
		b.within(time.Second, "message", b.delivered)
		if b.dials() != 1 {
			t.Errorf("%d dials, want 1", b.dials())
		}
		b.stop()
	})
}

func TestBacklogDrainsAtOnceOnReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.within(time.Second, "session", func() bool { return b.u.Status().Up })
		b.net.set(func(n *memNet) { n.refuse = errors.New("connection refused") })
		b.net.last().cut(errors.New("reset"))
		for range 100 {
			b.spool.append(wire.Normal, 10, 10)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if st := b.u.Status(); st.Up || st.LastError != "connection refused" {
			t.Errorf("status %+v", st)
		}
		b.net.set(func(n *memNet) { n.refuse = nil })
		b.within(31*time.Second, "backlog without a kick", b.delivered)

		b.net.set(func(n *memNet) { n.refuse = errors.New("connection refused") })
		b.net.last().cut(errors.New("reset"))
		b.spool.append(wire.Normal, 10, 10)
		time.Sleep(10 * time.Minute)
		b.net.set(func(n *memNet) { n.refuse = nil })
		b.u.Kick()
		b.within(200*time.Millisecond, "backlog after a kick", b.delivered)
		b.stop()
		b.check()
	})
}

func TestDialsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 40
		var benches []*bench
		for range devices {
			b := newBench(t)
			b.net.refuse = errors.New("connection refused")
			b.run()
			benches = append(benches, b)
		}
		start := time.Now()
		time.Sleep(10 * time.Minute)
		total := 0
		fifth := map[time.Duration]int{}
		for _, b := range benches {
			b.net.set(func(n *memNet) {
				total += len(n.dials)
				fifth[n.dials[4].Sub(start).Truncate(100*time.Millisecond)]++
				for i := 1; i < len(n.dials); i++ {
					if gap, bound := n.dials[i].Sub(n.dials[i-1]), min(backoffBase<<min(i-1, 7), backoffCap); gap > bound {
						t.Errorf("dial %d came after %s, the bound is %s", i, gap, bound)
					}
				}
			})
			b.stop()
		}
		for at, n := range fifth {
			if n > devices/4 {
				t.Errorf("%d of %d devices dial a fifth time at %s", n, devices, at)
			}
		}
		// Once at the cap a dial comes every 750 ms on average: about 800 in ten minutes.
		if each := total / devices; each < 700 || each > 900 {
			t.Errorf("%d dials a device in ten minutes", each)
		}
	})
}

func TestKickRestartsAHangingDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.net.hang = true
		b.spool.append(wire.Normal, 1, 0)
		b.run()
		time.Sleep(time.Second)
		b.net.set(func(n *memNet) { n.hang = false })
		b.u.Kick()
		b.within(100*time.Millisecond, "message", b.delivered)
		b.stop()
	})
}

func TestWrongHubUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.spool.hub = "hub0"
		b.spool.append(wire.Normal, 1, 0)
		b.run()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if st := b.u.Status(); st.Up || !strings.Contains(st.LastError, "hub hub1 is not the pinned one, hub0: run `fieldpost-agent hub reset`") {
			t.Errorf("status %+v", st)
		}
		if _, n, _, _ := b.net.state(); n < 5 || n > 12 {
			t.Errorf("%d attempts in five minutes", n)
		}
		if err := b.u.ResetHub(); err != nil {
			t.Fatal(err)
		}
		b.within(100*time.Millisecond, "message", b.delivered)
		if b.spool.hub != "hub1" {
			t.Errorf("pinned %q", b.spool.hub)
		}
		b.stop()
	})
}

func TestHubForgetsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		b.within(time.Second, "session", func() bool { return b.u.Status().Up })
		b.hub.mu.Lock()
		clear(b.hub.sessions)
		b.hub.mu.Unlock()
		b.spool.append(wire.Normal, 3, 0)
		b.within(time.Second, "message", b.delivered)
		if b.dials() != 1 {
			t.Errorf("%d dials, the connection was good", b.dials())
		}
		b.stop()
		b.check()
	})
}

// TestBacklogIsNotReadIntoMemory: nothing is read beyond what may be in flight
// and one block for each lane.
func TestBacklogIsNotReadIntoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for range 220 {
			b.spool.append(wire.Normal, 1, 50_000)
		}
		b.run()
		b.within(time.Second, "a wide window", func() bool { return b.spool.told() > 60 })
		b.net.last().set(func(c *memConn) { c.dropDown, c.stuck = true, make(chan struct{}) })
		acked := int(b.spool.told())
		time.Sleep(10 * time.Second)
		if n, most := b.spool.taken()-acked, defaultWindow/50_000+2; n > most || n < 10 {
			t.Errorf("%d blocks of 50 KB were read and not acked, at most %d are allowed", n, most)
		}
		b.within(time.Minute, "backlog", b.delivered)
		b.stop()
		b.check()
	})
}

func TestRunEndsWhateverHappens(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			b := newBench(t)
			b.run()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for range 50 {
						b.u.Kick()
						b.u.Changed()
						b.u.Status()
						time.Sleep(time.Millisecond)
					}
				})
			}
			until := time.Duration(rnd.IntN(60)) * time.Millisecond
			wg.Go(func() {
				for range 20 {
					b.spool.append(wire.Lane(rnd.IntN(3)), 1, 10)
					time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
					if c := b.net.last(); c != nil && rnd.IntN(4) == 0 {
						c.cut(errors.New("reset"))
					}
				}
			})
			time.Sleep(until)
			b.stop() // synctest fails if a goroutine is left
			wg.Wait()
		})
	}
}
