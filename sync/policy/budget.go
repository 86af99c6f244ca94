package policy

import "time"

const (
	// dayBehind is how long a day that the clock has not reached yet is counted:
	// the clock was ahead of the time and was set back.
	dayBehind = 24 * time.Hour
	// dayLongest is how long one day is counted at most, by running time: the
	// clock is set back again and again, to the same day. A real day has 25 hours
	// at most where summer time ends.
	dayLongest = 26 * time.Hour
)

// Day is a calendar day as a number that grows: 20060102.
type Day int

func dayOf(t time.Time) Day {
	y, m, d := t.Date()
	return Day((y*100+int(m))*100 + d)
}

// Usage is what was used of a day's budget.
type Usage struct {
	Day     Day           `json:"day"`     // 0: none yet
	Bytes   int64         `json:"bytes"`   // all lanes
	Over    int64         `json:"over"`    // of them, what normal and bulk sent beyond the budget
	Running time.Duration `json:"running"` // since the day began, in nanoseconds; time while nothing ran is not known
}

// Valid reports whether a Policy can have said this.
func (u Usage) Valid() bool {
	return u.Day >= 0 && u.Bytes >= 0 && u.Over >= 0 && u.Over <= u.Bytes && u.Running >= 0
}

// budget counts a day. The day only ever moves on: a clock that goes back finds
// the day counted already. It moves back only after a day of running time, so
// that a clock that was ten years ahead does not stop the link for ten years.
type budget struct {
	limit int64 // 0: unlimited
	usage Usage
	at    time.Time // of the last turn; zero: none in this run
}

// turn begins a new day if it is time; local is now in the zone of days.
func (b *budget) turn(now, local time.Time) {
	u := &b.usage
	if !b.at.IsZero() {
		if d := now.Sub(b.at); d > 0 { // the monotonic clock's, if now has it
			u.Running = min(u.Running+min(d, dayLongest), dayLongest)
		}
	}
	b.at = now
	day := dayOf(local)
	if day > u.Day || day < u.Day && u.Running >= dayBehind || u.Running >= dayLongest {
		*u = Usage{Day: day, Bytes: u.Over}
	}
}

func (b *budget) take(bytes int64, urgent bool) {
	u := &b.usage
	u.Bytes += max(bytes, 0)
	if over := u.Bytes - b.limit; b.limit > 0 && over > 0 && !urgent {
		u.Over += min(over, bytes)
	}
}

// wait is how long there is nothing left for normal and bulk; 0: there is.
func (b *budget) wait(local time.Time) time.Duration {
	if b.limit <= 0 || b.usage.Bytes < b.limit {
		return 0
	}
	return b.renewed(local).Sub(local)
}

// renewed is when the next day begins, unless the clock is set.
func (b *budget) renewed(local time.Time) time.Time {
	if dayOf(local) < b.usage.Day {
		return local.Add(max(dayBehind-b.usage.Running, time.Second))
	}
	y, m, d := local.Date()
	return firstInstant(time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC), local.Location())
}
