package settings

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	// trialTime is for a link that was up with the settings before.
	trialTime = time.Minute
	// trialLongest is when it is not known whether it would be: that it does not
	// come up says little about the settings.
	trialLongest = time.Hour
	// maxStarts of the agent within one trial: settings that crash it end too.
	maxStarts = 3
)

// Part is what the agent's member of a document comes to.
type Part struct {
	// Link is what it says about the link, as text to compare.
	Link string
	// Apply puts it into effect; renewed: the link is made anew for it.
	Apply func() (renewed bool)
}

// Version is a document.
type Version struct {
	Version  string          `json:"version"`
	Document json.RawMessage `json:"document"`
}

// Kept is what survives the process.
type Kept struct {
	Version
	State  wire.DesiredState `json:"state,omitempty"` // of the agent's part
	Reason string            `json:"reason,omitempty"`
	At     int64             `json:"at,omitempty"` // since when; wall clock, milliseconds
	// Before is what a trial falls back to, and what is in effect if Version is
	// refused; nil: the configuration. A refused document itself is not kept.
	Before *Version `json:"before,omitempty"`
	Starts int      `json:"starts,omitempty"` // of the agent during the trial

	Refusal   string `json:"refusal,omitempty"`   // of a program
	Confirmed int64  `json:"confirmed,omitempty"` // when a program said that it has applied it; wall clock, milliseconds
}

// effective is the document that is in effect; nil: none.
func (k *Kept) effective() *Version {
	switch {
	case k.State == wire.DesiredRefused:
		return k.Before
	case k.Version.Version == "":
		return nil
	}
	v := k.Version // a copy: k goes on
	return &v
}

// report is what the hub is told.
func (k *Kept) report() wire.DesiredReport {
	r := wire.DesiredReport{Version: k.Version.Version, State: k.State, Reason: k.Reason, At: max(0, k.At)}
	if k.State == wire.DesiredApplied && k.Refusal != "" {
		r.State, r.Reason = wire.DesiredRefused, k.Refusal
	}
	return r
}

// core decides what becomes of documents. It has no clock and does no I/O;
// what it decides is in effect when its driver has called the Part's Apply.
type core struct {
	parse func(member json.RawMessage) (Part, error)
	trial time.Duration // for trialTime

	k      Kept
	proven string // Part.Link with which the hub was heard

	// Of a trial.
	fresh    bool // only a new session proves anything
	patience time.Duration
	deadline time.Time
}

// part is what a document comes to; nil is the empty one.
func (c *core) part(v *Version) (Part, error) {
	member := json.RawMessage("{}")
	if v != nil {
		m, err := own(v.Document)
		if err != nil {
			return Part{}, err
		}
		if m != nil {
			member = m
		}
	}
	return c.parse(member)
}

// fallback is part of a document that was in effect; what the configuration no
// longer allows falls back to the configuration.
func (c *core) fallback(v *Version) Part {
	p, err := c.part(v)
	if err != nil {
		if p, err = c.part(nil); err != nil {
			return Part{Apply: func() bool { return false }}
		}
	}
	return p
}

// given is what becomes of a document that the hub sends, and what is to be put
// into effect; it changes nothing.
func (c *core) given(wall int64, d Version) (Kept, Part) {
	before := c.k.effective()
	if c.k.State == wire.DesiredTrial {
		before = c.k.Before
	}
	p, err := c.part(&d)
	switch {
	case err != nil:
		return Kept{Version: Version{Version: d.Version}, State: wire.DesiredRefused, Reason: clean(err.Error()), At: wall, Before: before}, c.fallback(before)
	case p.Link != c.proven:
		return Kept{Version: d, State: wire.DesiredTrial, At: wall, Before: before}, p
	}
	return Kept{Version: d, State: wire.DesiredApplied, At: wall}, p
}

// begin takes up what given returned and is in effect now. renewed: the link was
// made anew for it; up: it was up with the settings before.
func (c *core) begin(now time.Time, k Kept, renewed, up bool) {
	c.k, c.fresh, c.patience = k, renewed, c.trial
	if !up {
		c.patience = trialLongest
	}
	c.deadline = now.Add(c.patience)
}

// start takes up what an earlier process left. The hub was not heard yet.
func (c *core) start(now time.Time, wall int64, k Kept) Part {
	c.k = k
	before := c.fallback(c.k.Before)
	switch c.k.State {
	case wire.DesiredTrial:
		c.proven = before.Link
		if c.k.Starts++; c.k.Starts > maxStarts {
			return c.refuse(wall, fmt.Sprintf("the agent was started %d times before the link came back", c.k.Starts))
		}
		c.fresh, c.patience = true, trialLongest
		c.deadline = now.Add(c.patience)
	case wire.DesiredRefused:
		c.proven = before.Link
		return before
	}
	p, err := c.part(c.k.effective())
	switch {
	case err != nil:
		return c.refuse(wall, "after a start of the agent: "+err.Error())
	case c.k.State != wire.DesiredTrial:
		c.proven = p.Link
	}
	return p
}

// heard takes in that a session is up, or the answer to a request that told of
// report. It says whether a trial has ended by it.
func (c *core) heard(wall int64, report *wire.DesiredReport) bool {
	switch {
	case c.k.State != wire.DesiredTrial:
		return false
	case report == nil: // a session
	case c.fresh, report.Version != c.k.Version.Version, report.State != wire.DesiredTrial:
		return false
	}
	c.k.State, c.k.Starts, c.k.Before, c.k.At = wire.DesiredApplied, 0, nil, wall
	c.proven = c.fallback(&c.k.Version).Link
	return true
}

// tick ends a trial whose time is over; the Part is that of the settings before.
func (c *core) tick(now time.Time, wall int64) (Part, bool) {
	if c.k.State != wire.DesiredTrial || now.Before(c.deadline) {
		return Part{}, false
	}
	return c.refuse(wall, fmt.Sprintf("the link did not come back within %s", c.patience)), true
}

// refuse goes back to the settings before.
func (c *core) refuse(wall int64, reason string) Part {
	before := c.k.Before
	c.k = Kept{Version: Version{Version: c.k.Version.Version}, State: wire.DesiredRefused, Reason: clean(reason), At: wall, Before: before}
	p := c.fallback(before)
	c.proven = p.Link
	return p
}

// clean makes a text fit for a report.
func clean(text string) string { return wire.NewLastError(text, time.Time{}).Text }
