package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Cron is a schedule of five fields: minute, hour, day of the month, month, day
// of the week (0 and 7 are Sunday). A field is *, or a list of values, ranges
// and steps: 1,5 1-5 */15 1-31/2; months and days have names too, jan and mon. If
// both days are given, either makes a day of it.
type Cron struct {
	minute, hour, dom, month, dow uint64 // bit n: n is in the field
	everyHour                     bool
	anyDom, anyDow                bool
}

var (
	months = []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	days   = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}
)

// cronField describes one of the five.
type cronField struct {
	name     string
	min, max int
	names    []string // of min and on
}

var cronFields = [5]cronField{
	{"minute", 0, 59, nil}, {"hour", 0, 23, nil}, {"day of the month", 1, 31, nil}, {"month", 1, 12, months}, {"day of the week", 0, 7, days},
}

// ParseCron reads a schedule. One that never comes is a mistake.
func ParseCron(text string) (c Cron, err error) {
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return c, fmt.Errorf("%q has %d fields, not five: minute hour day-of-month month day-of-week, such as \"0 1 * * *\"", text, len(parts))
	}
	var sets [5]uint64
	for i, f := range cronFields {
		if sets[i], err = f.parse(parts[i]); err != nil {
			return c, fmt.Errorf("%s %q: %w", f.name, parts[i], err)
		}
	}
	if sets[4]&(1<<7) != 0 {
		sets[4] = sets[4]&^(1<<7) | 1
	}
	c = Cron{
		minute: sets[0], hour: sets[1], dom: sets[2], month: sets[3], dow: sets[4],
		everyHour: parts[1] == "*", anyDom: parts[2] == "*", anyDow: parts[4] == "*",
	}
	if c.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return c, fmt.Errorf("%q never comes: no month has such a day", text)
	}
	return c, nil
}

func (f cronField) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("step %q is not a number from 1", stepText)
			}
		}
		from, to := f.min, f.max
		if f.max == 7 {
			to = 6 // * is each day once
		}
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if from, err = f.value(first); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.value(last); err != nil {
					return 0, err
				}
			case !stepped:
				to = from
			}
		}
		if from > to {
			return 0, fmt.Errorf("%q ends before it begins", span)
		}
		for n := from; n <= to; n += step {
			set |= 1 << n
		}
	}
	return set, nil
}

func (f cronField) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	if text == "" {
		return 0, errors.New("a value is missing")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.min || n > f.max || text[0] == '+' {
		return 0, fmt.Errorf("%q is not between %d and %d", text, f.min, f.max)
	}
	return n, nil
}

// day reports whether the schedule comes on a day, of which the calendar counts.
func (c Cron) day(t time.Time) bool {
	if c.month&(1<<t.Month()) == 0 {
		return false
	}
	dom, dow := c.dom&(1<<t.Day()) != 0, c.dow&(1<<t.Weekday()) != 0
	if c.anyDom || c.anyDow {
		return dom && dow
	}
	return dom || dow
}

// searched is how far Next looks: over two leap years, and 2100 which is none.
const searched = 366 * 9

// Next is the first time after t, in the zone of t; zero: none in the next nine
// years. What falls into the hour that summer time skips comes at its end. What
// falls into the hour that comes twice comes the first time, and the second time
// too if the hour is *.
func (c Cron) Next(t time.Time) time.Time {
	zone := t.Location()
	y, m, d := t.Date()
	for i := range searched {
		date := time.Date(y, m, d+i, 0, 0, 0, 0, time.UTC)
		if !c.day(date) {
			continue
		}
		if first := c.first(date, t, zone); !first.IsZero() {
			return first
		}
	}
	return time.Time{}
}

// first is the earliest time of a date that is after t.
func (c Cron) first(date, t time.Time, zone *time.Location) (best time.Time) {
	for n := range 24 * 60 {
		h, min := n/60, n%60
		if c.hour&(1<<h) == 0 || c.minute&(1<<min) == 0 {
			continue
		}
		wall := date.Add(time.Duration(n) * time.Minute)
		at := firstInstant(wall, zone)
		if !at.After(t) && c.everyHour {
			at = secondInstant(at)
		}
		if at.After(t) && (best.IsZero() || at.Before(best)) {
			best = at
		}
		if !best.IsZero() && at.Sub(best) > 4*time.Hour { // no zone turns back by more
			break
		}
	}
	return best
}

// firstInstant is when the clocks of a zone first show wall, which is given in
// UTC; where they skip it, the end of what they skip.
func firstInstant(wall time.Time, zone *time.Location) time.Time {
	y, m, d := wall.Date()
	t := time.Date(y, m, d, wall.Hour(), wall.Minute(), 0, 0, zone)
	start, end := t.ZoneBounds()
	shown := showing(t)
	switch {
	case shown.Before(wall):
		return end.In(zone)
	case shown.After(wall):
		return start.In(zone)
	case start.IsZero():
		return t
	}
	if earlier := t.Add(-turnedBack(start)); earlier.Before(start) && !earlier.Equal(t) {
		return earlier
	}
	return t
}

// secondInstant is when the clocks of its zone show the same as at t once more,
// or t.
func secondInstant(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if end.IsZero() {
		return t
	}
	if later := t.Add(turnedBack(end)); turnedBack(end) > 0 && !later.Before(end) {
		return later
	}
	return t
}

// turnedBack is by how much the clocks are turned back at a transition.
func turnedBack(at time.Time) time.Duration {
	_, before := at.Add(-1).Zone()
	_, after := at.Zone()
	return time.Duration(max(before-after, 0)) * time.Second
}

// showing is what the clocks show at t, as a time in UTC.
func showing(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), 0, 0, time.UTC)
}
