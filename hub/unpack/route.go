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

// Streams lists the streams that are unpacked into, each once.
func (t Table) Streams() (out []string) {
	for _, r := range t {
		if !r.Packed && !slices.Contains(out, r.Stream) {
			out = append(out, r.Stream)
		}
	}
	return out
}

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
