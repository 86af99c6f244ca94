package testenv

import (
	"fmt"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// profile is a link of so many bytes a second each way, and the delay of a round trip.
func profile(bytesPerSecond int64, rtt time.Duration) Shape {
	return Shape{Delay: rtt / 2, Rate: [2]int64{bytesPerSecond, bytesPerSecond}}
}

// linkIs waits until the agent says that its link is up, or not.
func linkIs(tb testing.TB, a *Agent, up bool, limit time.Duration) {
	tb.Helper()
	Eventually(tb, limit, fmt.Sprintf("link up: %v", up), func() error {
		s, err := a.Status()
		if err == nil && s.Link.Up != up {
			err = fmt.Errorf("up is %v, last error %q", s.Link.Up, s.Link.LastError)
		}
		return err
	})
}

// TestFlapsOnSlowLink: a slow link that goes every moment loses nothing. Some
// sessions carry something before they are cut, whatever the moments; what is left
// drains as long as it gets less.
func TestFlapsOnSlowLink(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	a.Link.ShapeLike(Shape{Delay: 20 * time.Millisecond, Rate: [2]int64{64 << 10, 64 << 10}, Loss: 0.01, Seed: s})
	load := w.StartLoad(a, 50*time.Millisecond, s)
	carried := 0
	for i := range *kills {
		before := a.Link.Bytes(Up)
		if i%10 == 0 { // a session opens, and is cut while it sends
			linkIs(t, a, true, 20*time.Second)
		}
		time.Sleep(time.Duration(rnd.IntN(350)) * time.Millisecond) // the moment is the point
		a.Link.Cut(true)
		if a.Link.Bytes(Up)-before > 2048 { // more than it takes to connect
			carried++
		}
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
		a.Link.Cut(false)
	}
	load.Stop()
	t.Logf("%d of %d sessions carried something", carried, *kills)
	for left := int64(1 << 62); left > 0; {
		Eventually(t, 20*time.Second, "the backlog gets less", func() error {
			n, err := a.Backlog()
			if err == nil && n >= left {
				err = fmt.Errorf("%d of %d messages left", n, left)
			}
			left = min(left, n)
			return err
		})
	}
	if report(t, w); carried < *kills/20 {
		t.Errorf("%d of %d sessions carried something: the run proves nothing", carried, *kills)
	}
}

// TestSlowLinkIsNotDead: a queue that takes a slow link minutes is no silence; one
// that nobody carries any more is, in either direction, and is noticed in 30 s.
func TestSlowLinkIsNotDead(t *testing.T) {
	short(t)
	for d, name := range []string{"frames", "acks"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld(t, "")
			a := w.AddAgent("press-7", "")
			a.Link.Cut(true)
			w.publishNoise(a, "cut", wire.Bulk, 200, 16000) // 1.6 MB, compressed
			a.Link.ShapeLike(profile(8_000, 2*time.Second))
			before := len(a.Link.Opened())
			a.Link.Cut(false)
			linkIs(t, a, true, 40*time.Second)
			sent := a.Link.Bytes(Up)
			Eventually(t, 90*time.Second, "the link is in use", func() error {
				if n := a.Link.Bytes(Up) - sent; n < 300_000 {
					return fmt.Errorf("%d bytes", n)
				}
				return nil
			})
			if n := len(a.Link.Opened()) - before; n != 1 {
				t.Errorf("%d connections: the slow link was taken for dead", n)
			}
			a.Link.Hole(Direction(d), true)
			linkIs(t, a, false, 30*time.Second)
			a.Link.Shape(0, 0)
			a.Link.Cut(false)
			a.Link.Hole(Direction(d), false)
			if c := w.Settle(60 * time.Second); c.Stored != 200 {
				t.Fatalf("%v", c)
			}
		})
	}
}

// TestResumesWithoutPublish: what waits flows when the link is back, though
// nobody publishes and nobody tells the agent.
func TestResumesWithoutPublish(t *testing.T) {
	short(t)
	for _, outage := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			t.Parallel()
			w := NewWorld(t, "")
			a := w.AddAgent("press-7", "")
			linkIs(t, a, true, 20*time.Second)
			a.Link.Cut(true)
			w.publishNoise(a, "cut", wire.Normal, 5, 400)
			time.Sleep(outage) // its length is the point
			a.Link.Cut(false)
			back := time.Now()
			Eventually(t, 5*time.Second, "EDGE has it", func() error { return w.edgeHolds(5) })
			t.Logf("%v after the link was back", time.Since(back))
			if c := w.Settle(20 * time.Second); c.Stored != 5 {
				t.Fatalf("%v", c)
			}
		})
	}
}
