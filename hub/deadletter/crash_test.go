package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

var errCrash = errors.New("crash")

// seam fails at one labelled step, once or, like a process that is dead, from
// then on.
type seam struct {
	mu    sync.Mutex
	point string
	after int // passes that go well before
	for_  bool
	hit   chan struct{}
	dead  bool
}

func newSeam(point string, after int, forGood bool) *seam {
	return &seam{point: point, after: after, for_: forGood, hit: make(chan struct{})}
}

func (s *seam) at(point string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return errCrash
	}
	if point != s.point || s.after < 0 {
		return nil
	}
	if s.after--; s.after >= 0 {
		return nil
	}
	close(s.hit)
	s.dead = s.for_
	return errCrash
}

func (s *seam) wasHit() bool {
	select {
	case <-s.hit:
		return true
	default:
		return false
	}
}

// isOf reports whether a step is one of turning advisories into letters.
func isOf(prefixes ...string) func(string) bool {
	return func(point string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return len(point) >= len(p) && point[:len(p)] == p })
	}
}

// TestCrashAtEveryStep: an instance dies, or stumbles, at a labelled step; the
// next one goes on. Each message has one letter.
func TestCrashAtEveryStep(t *testing.T) {
	w := newWorld(t)
	a, b := w.consumer("EDGE", "a"), w.consumer("EDGE", "b")
	want, advisories := 0, uint64(0)
	points := append(slices.DeleteFunc(Points(), isOf("retry:", "dead:settle", "dead:remove")), store.Points()...)
	for _, point := range points {
		for _, forGood := range []bool{true, false} {
			for after := range 2 {
				s := newSeam(point, after, forGood)
				w.publish("edge.d.x", point, nil)
				w.publish("edge.d.y", point, nil)
				w.each(a, 2, term)
				w.each(b, 1, term)
				w.each(b, 1, ack)
				want, advisories = want+3, advisories+3
				w.advised(advisories)
				at := s.at
				w.fault.Store(&at)
				in := w.run(func(c *Config) { c.AckWait, c.Fault = 200*time.Millisecond, s.at })
				w.eventually("the step is met, or all is done", func() bool { return s.wasHit() || w.info(store.Advisories).Messages == 0 })
				if !forGood {
					w.settled()
				}
				in.stop()
				w.fault.Store(nil)
				if !s.wasHit() && after == 0 && point != "dead:return" {
					t.Errorf("%s was not met", point)
				}
				in = w.run(func(c *Config) { c.AckWait = 200 * time.Millisecond })
				if got := len(w.settled()); got != want {
					t.Fatalf("%s after %d, for good %v: %d letters, want %d", point, after, forGood, got, want)
				}
				in.stop()
				w.unique()
			}
		}
	}
}

// TestCrashOfRetryAndPurge: whatever step fails, asking again ends with one
// retry and no letter; the advisory, which comes again, makes no new one.
func TestCrashOfRetryAndPurge(t *testing.T) {
	w := newWorld(t)
	c := w.consumer("EDGE", "a")
	advisories, retried := uint64(0), 0
	points := append(slices.DeleteFunc(Points(), func(p string) bool { return !isOf("retry:", "dead:settle", "dead:remove")(p) }), store.Points()...)
	for _, point := range points {
		for after := range 4 {
			in := w.run()
			w.publish("edge.d.x", fmt.Sprint(point, after), nil)
			w.publish("edge.d.x", fmt.Sprint(point, after, "too"), nil)
			w.each(c, 2, term)
			advisories += 2
			w.advised(advisories)
			var seqs []uint64
			for _, m := range w.settled() {
				seqs = append(seqs, m.Seq)
			}
			in.stop()
			if len(seqs) != 2 {
				t.Fatalf("%d letters", len(seqs))
			}
			s := newSeam(point, after, true)
			at := s.at
			w.fault.Store(&at)
			dying, err := New(Config{Store: w.s, Streams: []string{"EDGE"}, Fault: s.at, Log: w.log})
			if err != nil {
				t.Fatal(err)
			}
			purge := after == 3
			do := func(l *Letters) (Outcome, error) {
				if purge {
					return l.Purge(w.ctx(), seqs)
				}
				return l.Retry(w.ctx(), seqs)
			}
			if _, err := do(dying); (err != nil) != s.wasHit() {
				t.Errorf("%s after %d: hit %v, %v", point, after, s.wasHit(), err)
			}
			w.fault.Store(nil)
			w.forget()
			in = w.run()
			if out, err := do(in.Letters); err != nil || out.Done+out.Gone != 2 {
				t.Errorf("%s after %d: again: %+v, %v", point, after, out, err)
			}
			if !purge {
				retried += 2
			}
			for _, id := range []int{1, 0} { // late, and about letters that were dealt with
				w.advise(store.TerminatedPrefix+"EDGE.a", map[string]any{"id": fmt.Sprint(point, after, id), "timestamp": time.Now(),
					"stream": "EDGE", "consumer": "a", "stream_seq": int(w.info("EDGE").Last) - id, "deliveries": 1})
				advisories++
			}
			w.advised(advisories)
			w.wantDead()
			in.stop()
			if got := w.all(store.Retry); len(got) != retried {
				t.Fatalf("%s after %d: RETRY holds %d messages, want %d", point, after, len(got), retried)
			}
		}
	}
}

// TestAdvisoryComesAgainAfterItsLetterIsGone: an instance dies after the letter
// is stored and before its advisory is acked. Somebody deals with the letter
// before the advisory comes again.
func TestAdvisoryComesAgainAfterItsLetterIsGone(t *testing.T) {
	w := newWorld(t)
	c := w.consumer("EDGE", "a")
	operator, err := New(Config{Store: w.s, Streams: []string{"EDGE"}, Log: w.log})
	if err != nil {
		t.Fatal(err)
	}
	for i, deal := range []func(context.Context, []uint64) (Outcome, error){operator.Purge, operator.Retry} {
		s := newSeam("dead:published", 0, true)
		in := w.run(func(c *Config) { c.Fault = s.at })
		w.publish("edge.d.x", "one", nil)
		w.each(c, 1, term)
		<-s.hit
		in.stop()
		if out, err := deal(w.ctx(), w.seqs()); err != nil || out.Done != 1 {
			t.Fatalf("%d: %+v, %v", i, out, err)
		}
		w.forget()
		in = w.run()
		w.wantDead()
		in.stop()
	}
}

// TestInstanceThatHangs: an instance freezes with an advisory in hand, and
// another one takes over. When the first wakes up, the letter is there, or was
// and has been dealt with.
func TestInstanceThatHangs(t *testing.T) {
	for _, point := range []string{"dead:claimed", "dead:publish"} {
		for _, purge := range []bool{false, true} {
			w := newWorld(t)
			frozen, wake := make(chan struct{}), make(chan struct{})
			var once sync.Once
			first := w.run(func(c *Config) {
				c.AckWait = 200 * time.Millisecond
				c.Fault = func(at string) error {
					if at == point {
						once.Do(func() { close(frozen); <-wake })
					}
					return nil
				}
			})
			w.publish("edge.d.x", "one", nil)
			w.each(w.consumer("EDGE", "a"), 1, term)
			<-frozen
			second := w.run(func(c *Config) { c.AckWait = 200 * time.Millisecond })
			want := 1
			if got := len(w.settled()); got != 1 {
				t.Fatalf("%s: %d letters", point, got)
			}
			if purge {
				if out, err := second.Purge(w.ctx(), w.seqs()); err != nil || out.Done != 1 {
					t.Fatalf("%+v, %v", out, err)
				}
				want = 0
			}
			w.forget()
			close(wake)
			w.publish("edge.d.x", "two", nil) // so that the first is seen to go on, or not
			w.each(w.consumer("EDGE", "a"), 1, term)
			w.advised(2)
			w.settled()
			first.stop()
			second.stop()
			if got := w.all(store.Dead); len(got) != want+1 || string(got[want].Data) != "two" {
				t.Errorf("%s, purged %v: %d letters", point, purge, len(got))
			}
		}
	}
}
