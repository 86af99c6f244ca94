package testenv

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// publish publishes one message of a source with a ttl, "" for none, and says
// whether it was accepted.
func (s *source) publish(ttl string, pad int) bool {
	s.n++
	p := Published{Device: s.a.Device, Source: s.name, N: s.n, Lane: s.lane, Subject: fmt.Sprintf("load.%s.s%d", s.name, s.n%7),
		Payload: fmt.Appendf(nil, "%d %s", s.n, noise(s, pad))}
	s.w.History.Sent(p)
	r, err := s.postWith(p, "", ttl)
	if err == nil {
		s.w.History.Acked(p, r)
	}
	return err == nil
}

// noise does not compress.
func noise(s *source, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(byte('a' + s.rnd.IntN(26)))
	}
	return b.String()
}

// TestRemovedIsReported: what a policy or an operator removes while the link is
// down is counted, and reported by the hub with exact ranges; the rest arrives.
func TestRemovedIsReported(t *testing.T) {
	short(t)
	for _, c := range []struct {
		name, yaml string
		run        func(t *testing.T, a *Agent, s *source)
		want       map[string]int64 // dropped by reason; -1: some
	}{
		{"ttl", "", func(t *testing.T, a *Agent, s *source) {
			for i := range 60 { // among others, and alone
				if i%3 > 0 || i > 40 {
					s.publish("1s", 20)
				} else {
					s.publish("", 20)
				}
			}
		}, map[string]int64{"ttl": 46}},
		{"max_age", "spool: {max_age: 2s}", func(t *testing.T, a *Agent, s *source) {
			for range 50 {
				s.publish("", 20)
			}
		}, map[string]int64{"max_age": 50}},
		{"drop-oldest", "spool: {max_bytes: 8MiB, when_full: drop-oldest}", func(t *testing.T, a *Agent, s *source) {
			for range 400 {
				s.publish("", 40_000)
			}
		}, map[string]int64{"drop_oldest": -1}},
		{"purge", "", func(t *testing.T, a *Agent, s *source) {
			for range 70 {
				s.publish("", 20)
			}
			if err := a.Post("/v1/spool/purge", `{"filter":"load.*.s3"}`); err != nil {
				t.Fatal(err)
			}
		}, map[string]int64{"purge": 10}},
		{"all of them", "spool: {max_bytes: 8MiB, when_full: drop-oldest}", func(t *testing.T, a *Agent, s *source) {
			for i := range 300 {
				s.publish([]string{"", "1s", "1h"}[i%3], 40_000)
				if i == 250 {
					if err := a.Post("/v1/spool/purge", `{"filter":"load.*.s3"}`); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, map[string]int64{"drop_oldest": -1, "purge": -1, "ttl": -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed, _ := seed(t)
			w := NewWorld(t, "")
			a := w.AddAgent("press-7", c.yaml)
			s := &source{w: w, a: a, name: "policy", lane: wire.Normal, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 10 { // before the link fails
				s.publish("", 20)
			}
			w.Drain(30 * time.Second)
			a.Link.Cut(true)
			c.run(t, a, s)
			Eventually(t, 20*time.Second, "what is removed is counted", func() error {
				st, err := a.Status()
				for why, n := range c.want {
					if got := st.Dropped[why]; err == nil && (got != n && n >= 0 || got == 0) {
						err = fmt.Errorf("%s: %d dropped, want %d", why, got, n)
					}
				}
				return err
			})
			a.Link.Cut(false)
			counts := w.Settle(60 * time.Second)
			checkGaps(t, w, a, counts)
			t.Log(counts)
		})
	}
}

// checkGaps compares the agent's counts with the gaps that the hub reports, where
// the outcome of every publish is known.
func checkGaps(t *testing.T, w *World, a *Agent, c Counts) {
	t.Helper()
	checkOpenGaps(t, w, a, c, false)
}

// checkOpenGaps is checkGaps; open: the outcome of some publishes is not known.
func checkOpenGaps(t *testing.T, w *World, a *Agent, c Counts, open bool) {
	t.Helper()
	Eventually(t, 30*time.Second, "the gaps add up", func() error {
		st, err := a.Status()
		if err != nil {
			return err
		}
		if err := w.readStreams(); err != nil {
			return err
		}
		byReason, total := map[string]int64{}, int64(0)
		for _, g := range w.History.gaps {
			byReason[g.Reason] += int64(g.Last - g.First + 1)
			total += int64(g.Last - g.First + 1)
		}
		if fmt.Sprint(byReason) != fmt.Sprint(st.Dropped) {
			return fmt.Errorf("gaps %v, dropped %v", byReason, st.Dropped)
		}
		if every := int64(c.Gone) == total && c.Stored+c.Gone == c.Acked; !every && !open {
			return fmt.Errorf("%v; %d in gaps", c, total)
		}
		return nil
	})
}

// TestRemovedUnderChaos: the same while the link comes and goes, the agent is
// killed, and messages are removed on their way to the hub.
func TestRemovedUnderChaos(t *testing.T) {
	short(t)
	seed, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "spool: {max_bytes: 8MiB, when_full: drop-oldest, max_age: 4s}")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for p := range 3 {
		s := &source{w: w, a: a, name: fmt.Sprint("chaos", p), lane: wire.Lane(p), rnd: rand.New(rand.NewPCG(seed, uint64(p)))}
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					s.publish([]string{"", "300ms", "", "2s"}[i%4], []int{10, 200, 20_000}[i%3])
				}
			}
		})
	}
	for end := time.Now().Add(*chaosTime / 2); time.Now().Before(end); {
		time.Sleep(time.Duration(rnd.IntN(800)) * time.Millisecond) // the moment is the point
		switch rnd.IntN(7) {
		case 0:
			a.Kill()
			a.Start()
			w.WaitAgent(a)
		case 1:
			a.Link.Cut(true)
			time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
			a.Link.Cut(false)
		case 2: // acks are lost, or frames, then the connection
			d := Direction(rnd.IntN(2))
			a.Link.Hole(d, true)
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			a.Link.Cut(false)
			a.Link.Hole(d, false)
		case 5:
			if err := a.Post("/v1/spool/purge", `{"filter":"load.*.s3"}`); err != nil {
				t.Log(err) // the agent may be starting
			}
		}
	}
	close(stop)
	wg.Wait()
	w.WaitAgent(a)
	c := w.Settle(120 * time.Second)
	t.Log(c)
	if c.Gone == 0 || c.Stored == 0 {
		t.Fatal("the run proves nothing")
	}
	checkOpenGaps(t, w, a, c, true)
}
