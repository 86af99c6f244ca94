package downlink

import "time"

const (
	// pollEvery is a safety net: the hub wakes the device when there is something.
	pollEvery        = 5 * time.Minute
	pollEveryMetered = time.Hour

	// gap keeps below the 20 requests a second that a hub takes of one device:
	// reports that come up meanwhile go together.
	gap = 60 * time.Millisecond

	backoffBase = time.Second
	// backoffCap is for a hub that has answered before; one that never did may
	// know no commands, and is asked as rarely as by the safety net.
	backoffCap = time.Minute

	// timeoutBase is enough for an answer of any size at 128 kbit/s. A slower link
	// gets more each time, so that it comes to an end on every link.
	timeoutBase = 30 * time.Second
	timeoutCap  = 8 * timeoutBase
)

// Event is what happens to a core.
type Event interface{ event() }

type (
	// Woken: the session has begun, or the hub has something.
	Woken struct{}
	// Updated: the store has something to say.
	Updated struct{}
	// Ticked: the deadline may be over.
	Ticked struct{}
	// Answered: the hub has answered, and the store has it.
	Answered struct{ More bool } // it has more
	// Failed: there was no answer, or the store could not take it.
	Failed struct{ Timeout bool }
)

func (Woken) event()    {}
func (Updated) event()  {}
func (Ticked) event()   {}
func (Answered) event() {}
func (Failed) event()   {}

// Ask is what a core has its driver do: to ask the hub, and to tell the outcome.
type Ask struct{ Timeout time.Duration }

// core decides when the hub is asked, in one session. It has no clock and does
// no I/O.
type core struct {
	metered func() bool
	rand    func() float64 // [0,1)

	busy     bool // a request is under way
	due      bool // and another one has to follow
	answered bool // the hub has, in this session
	fails    int  // in a row
	timeouts int  // that lengthen the timeout
	last     time.Time
	next     time.Time // when to ask, unless busy
}

// Step takes in an event; it returns at most one action.
func (c *core) Step(now time.Time, ev Event) []Ask {
	switch ev := ev.(type) {
	case Woken:
		if c.fails > 0 && !c.busy { // the hub is there: do not wait for long, nor ask with every wake
			c.next = earlier(c.next, latest(now, c.last.Add(backoffBase)))
			break
		}
		return c.ask(now)
	case Updated:
		if c.fails == 0 || c.busy {
			return c.ask(now)
		}
	case Ticked:
		if !c.busy && !now.Before(c.next) {
			return c.ask(now)
		}
	case Answered:
		c.busy, c.answered, c.fails = false, true, 0
		c.timeouts = max(0, c.timeouts-1)
		c.next = now.Add(spread(c.poll(), c.rand()))
		if ev.More || c.due {
			return c.ask(now)
		}
	case Failed:
		c.busy, c.due = false, false
		c.fails++
		if ev.Timeout {
			c.timeouts++
		}
		limit := c.poll()
		if c.answered {
			limit = min(limit, backoffCap)
		}
		wait := min(backoffBase<<min(c.fails, 12), limit)
		c.next = now.Add(time.Duration(c.rand() * float64(wait)))
	}
	return nil
}

// ask begins a request, or has one follow.
func (c *core) ask(now time.Time) []Ask {
	if c.busy {
		c.due = true
		return nil
	}
	if at := c.last.Add(gap); now.Before(at) {
		c.next = at
		return nil
	}
	c.busy, c.due, c.last = true, false, now
	return []Ask{{min(timeoutBase<<min(c.timeouts, 8), timeoutCap)}}
}

// Deadline is when to tick; zero: not until something else happens.
func (c *core) Deadline() time.Time {
	if c.busy {
		return time.Time{}
	}
	return c.next
}

func (c *core) poll() time.Duration {
	if c.metered() {
		return pollEveryMetered
	}
	return pollEvery
}

// spread is d, or up to a tenth less: devices that began together part.
func spread(d time.Duration, r float64) time.Duration {
	return d - time.Duration(r*float64(d)/10)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
