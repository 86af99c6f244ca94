package unpack

import (
	"slices"
	"strings"
	"time"
)

// Route gives the messages whose subject matches to a stream.
type Route struct {
	Match  string `json:"match"`  // NATS wildcards, against the publisher's subject
	Stream string `json:"stream"` // several routes may share one
	Prefix string `json:"prefix"` // of subjects in the stream
	// Packed routes are not unpacked; their blocks stay in the ledger for MaxAge.
	Packed bool          `json:"packed,omitempty"`
	MaxAge time.Duration `json:"-"`
}

// Table is the routes in order: the first that matches takes the message.
type Table []Route

// Route returns the first route that matches, or nil.
func (t Table) Route(subject string) *Route {
	for i := range t {
		if match(t[i].Match, subject) {
			return &t[i]
		}
	}
	return nil
}

// gives returns the route that gives messages of the subject to the stream, or nil.
func (t Table) gives(stream, subject string) *Route {
	if r := t.Route(subject); r != nil && r.Stream == stream && !r.Packed {
		return r
	}
	return nil
}

// Streams lists the streams that are unpacked into, each once.
func (t Table) Streams() (out []string) {
	for _, r := range t {
		if !r.Packed && !slices.Contains(out, r.Stream) {
			out = append(out, r.Stream)
		}
	}
	return out
}

// all reports whether it has a route for every subject, as far as one route
// tells. A table of none is not known yet.
func (t Table) all() bool {
	return slices.ContainsFunc(t, func(r Route) bool { return r.Match == ">" }) || len(t) == 0
}

// unpacks reports whether any message can go to the stream.
func (t Table) unpacks(stream string) bool { return slices.Contains(t.Streams(), stream) }

// same reports whether both tables project alike.
func (t Table) same(u Table) bool {
	return slices.EqualFunc(t, u, func(a, b Route) bool {
		a.MaxAge, b.MaxAge = 0, 0
		return a == b
	})
}

// match reports whether the literal subject falls under the pattern.
func match(pattern, subject string) bool {
	for {
		p, pRest, pMore := strings.Cut(pattern, ".")
		s, sRest, sMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return s != ""
		case p != "*" && p != s:
			return false
		case !pMore || !sMore:
			return pMore == sMore
		}
		pattern, subject = pRest, sRest
	}
}

// Version is a route table and the ledger sequence from which it holds.
type Version struct {
	From  uint64 `json:"from"`
	Table Table  `json:"routes"`
}

// Tables is every version, oldest first.
type Tables []Version

// At returns the table that holds for the block at seq.
func (ts Tables) At(seq uint64) Table {
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].From <= seq {
			return ts[i].Table
		}
	}
	return nil
}

// since returns a copy without the versions of which the ledger, which begins at
// first, has no block any more.
func (ts Tables) since(first uint64) Tables {
	for len(ts) > 1 && ts[1].From <= first {
		ts = ts[1:]
	}
	return slices.Clone(ts)
}

// ever reports whether blocks from first to before end can have messages for the
// stream.
func (ts Tables) ever(stream string, first, end uint64) bool {
	for i, v := range ts {
		if v.From < end && (i+1 == len(ts) || ts[i+1].From > first) && v.Table.unpacks(stream) {
			return true
		}
	}
	return false
}

// End returns the sequence from which on nothing goes to the stream any more; 0
// if something does, or if nothing ever did.
func (ts Tables) End(stream string) (end uint64) {
	for i, v := range ts {
		if v.Table.unpacks(stream) {
			end = 0
			if i+1 < len(ts) {
				end = ts[i+1].From
			}
		}
	}
	return end
}

// former lists the streams that only older versions unpack into.
func (ts Tables) former() (out []string) {
	for _, v := range ts {
		for _, s := range v.Table.Streams() {
			if !slices.Contains(out, s) && !ts[len(ts)-1].Table.unpacks(s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// same reports whether both end with the same version: others are only added
// behind it.
func (ts Tables) same(us Tables) bool {
	n, m := len(ts), len(us)
	return n > 0 && m > 0 && ts[n-1].From == us[m-1].From && ts[n-1].Table.same(us[m-1].Table)
}
