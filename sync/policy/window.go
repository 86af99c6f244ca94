package policy

import (
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// MaxWindow is how long a window may stay open.
const MaxWindow = 31 * 24 * time.Hour

// Window opens lanes at certain times only. Several for one lane add up.
type Window struct {
	Class string      // it holds only while the link is of this class; empty: always
	Lanes []wire.Lane // those that it opens, and that are closed otherwise
	Cron  Cron        // when it opens
	For   time.Duration
}

// Check reports what is wrong with a window, but for Cron.
func (w Window) Check() error {
	switch {
	case len(w.Lanes) == 0:
		return fmt.Errorf("names no lane; name those that may send only in this window: urgent, normal, bulk")
	case w.For < time.Minute || w.For > MaxWindow:
		return fmt.Errorf("a window of %s is not between 1m and 744h", w.For)
	}
	return nil
}

func (w Window) names(class string, l wire.Lane) bool {
	return (w.Class == "" || w.Class == class) && slices.Contains(w.Lanes, l)
}

// span is a time in which a window is open, or closed, as a whole.
type span struct {
	open        bool
	from, until time.Time // until: of a closed one, zero if the window never opens
}

func (s span) holds(t time.Time) bool {
	return !s.from.IsZero() && !t.Before(s.from) && (s.until.IsZero() || t.Before(s.until))
}

// spanAt is what the window is at t, in the zone of t.
func (w Window) spanAt(t time.Time) span {
	if opened := w.Cron.Next(t.Add(-w.For)); !opened.IsZero() && !opened.After(t) {
		return span{true, opened, opened.Add(w.For)}
	}
	return span{false, t, w.Cron.Next(t)}
}

// closed is how long no window opens the lane; 0: it may send.
func (p *Policy) closed(now time.Time, class string, l wire.Lane) time.Duration {
	open, until := p.lane(now, class, l)
	switch {
	case open:
		return 0
	case until.IsZero():
		return recheck
	}
	return max(until.Sub(now.Round(0)), 1)
}

// lane is what the windows say about a lane, and when they say it next; a zero
// until: always.
func (p *Policy) lane(now time.Time, class string, l wire.Lane) (open bool, until time.Time) {
	wall := now.Round(0).In(p.cfg.Zone) // without the monotonic reading
	named := false
	for i, w := range p.cfg.Windows {
		if !w.names(class, l) {
			continue
		}
		s := &p.spans[i]
		if !s.holds(wall) {
			*s = w.spanAt(wall)
		}
		switch {
		case s.open && (!open || s.until.After(until)):
			open, until = true, s.until
		case !s.open && !open && !s.until.IsZero() && (until.IsZero() || s.until.Before(until)):
			until = s.until
		}
		named = true
	}
	return open || !named, until
}
