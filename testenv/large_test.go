package testenv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestLargeMessages: messages above what NATS takes in one piece, random and
// repetitive, are there once and whole, however often link, hub and agent go
// while they travel, and small ones pass between their chunks.
func TestLargeMessages(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.PrepareAgent("press-7", "press-7", "")
	a.Env = append(a.Env, "FIELDPOST_AGENT_SOCKET_MAX_PAYLOAD=8MiB", "FIELDPOST_AGENT_SOCKET_MAX_INFLIGHT=32MiB")
	a.Start()
	w.WaitAgent(a)
	load := w.StartLoad(a, 5*time.Millisecond, s)
	src := &source{w: w, a: a, name: "large", lane: wire.Bulk, rnd: rand.New(rand.NewPCG(s, 9))}
	for i, size := range []int{1 << 20, 3 << 20, 8 << 20, 600_000, 8<<20 - 1, 1<<20 + 1} {
		a.Link.ShapeLike(Shape{Delay: 10 * time.Millisecond, Rate: [2]int64{16 << 20, 16 << 20}, Seed: s})
		src.large(size, i%2 == 0)
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond) // the moment is the point
		switch i % 3 {
		case 0:
			a.Link.Cut(false)
		case 1:
			w.Hub.Kill()
			w.StartHub()
		case 2:
			a.Kill()
			a.Start()
			w.WaitAgent(a)
		}
	}
	load.Stop()
	report(t, w)
}

// TestLargeMessageOverShortLinks: a message that takes longer than the link ever
// lives gets across all the same.
func TestLargeMessageOverShortLinks(t *testing.T) {
	short(t)
	s, _ := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	a.Link.Cut(true)
	src := &source{w: w, a: a, name: "large", lane: wire.Normal, rnd: rand.New(rand.NewPCG(s, 9))}
	src.large(500_000, true)
	a.Link.ShapeLike(Shape{Delay: 5 * time.Millisecond, Rate: [2]int64{128 << 10, 128 << 10}, Seed: s})
	cuts := 0
	Eventually(t, time.Minute, "it is across", func() error {
		if n, err := a.Backlog(); err != nil || n == 0 {
			return err
		}
		a.Link.Cut(false)
		cuts++
		time.Sleep(1500 * time.Millisecond) // the life of a link: it takes 4 s
		return fmt.Errorf("not after %d links", cuts)
	})
	if cuts < 3 {
		t.Errorf("%d links were enough", cuts)
	}
	if c := w.Settle(time.Minute); c.Stored != 1 {
		t.Errorf("%v", c)
	}
	t.Logf("%d links", cuts)
}

// large publishes one message of a size until it is acked, under an id.
func (s *source) large(size int, random bool) {
	s.n++
	p := Published{Device: s.a.Device, Source: s.name, N: s.n, Lane: s.lane, Subject: "load.large"}
	p.Payload = fmt.Appendf(nil, "%s %d ", s.name, s.n)
	for len(p.Payload) < size {
		b := byte('x')
		if random {
			b = byte(s.rnd.IntN(256))
		}
		p.Payload = append(p.Payload, b)
	}
	s.w.History.Sent(p)
	for range 100 {
		if r, err := s.post(p, fmt.Sprint("large/", s.n)); err == nil {
			s.w.History.Acked(p, r)
			return
		}
		s.pause(context.Background(), 100*time.Millisecond)
	}
	s.w.TB.Fatalf("a message of %d bytes was not taken", size)
}
