package wire

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxDesired is what the desired settings of one device may have, in bytes.
const MaxDesired = 64 << 10

// DesiredState is what a device has made of its desired settings.
type DesiredState string

// States. A trial ends in one of the others.
const (
	DesiredTrial   DesiredState = "trial"   // in effect, until it is known whether the link comes back with it
	DesiredApplied DesiredState = "applied" // in effect
	DesiredRefused DesiredState = "refused" // the ones before are in effect again, or still
)

// Desired is what the hub wants of a device: one JSON object, merged from what
// was set for the device and for its labels. It rides in the answer to a request
// for commands.
type Desired struct {
	Version  string          `json:"version"`  // another one is another document
	Document json.RawMessage `json:"document"` // a JSON object
}

// DesiredReport rides in a request for commands. A device that knows of desired
// settings always sends one.
type DesiredReport struct {
	Version string       `json:"version,omitempty"` // that it was given last; empty: none yet
	State   DesiredState `json:"state,omitempty"`   // empty with Version
	Reason  string       `json:"reason,omitempty"`  // why it was refused, for a person
	At      int64        `json:"at,omitempty"`      // since when, device's clock, Unix milliseconds
}

func (r *DesiredReport) check() error {
	switch {
	case r == nil:
		return nil
	case r.Version != "" && !token(r.Version, maxName):
		return errToken("version of desired settings")
	case !printable(r.Reason, maxText):
		return errText("reason")
	case r.At < 0 || r.At > MaxTime:
		return fmt.Errorf("at %d ms is not a time", r.At)
	}
	switch r.State {
	case DesiredTrial, DesiredApplied, DesiredRefused:
		return nil
	case "":
		if r.Version == "" {
			return nil
		}
	}
	return fmt.Errorf("state %.40q of desired settings", r.State)
}

func (d *Desired) check() error {
	switch {
	case d == nil:
		return nil
	case !token(d.Version, maxName):
		return errToken("version of desired settings")
	case len(d.Document) > MaxDesired:
		return fmt.Errorf("desired settings of %d bytes; the limit is %d", len(d.Document), MaxDesired)
	case len(d.Document) == 0 || d.Document[0] != '{':
		return errors.New("desired settings that are not a JSON object")
	}
	return nil
}
