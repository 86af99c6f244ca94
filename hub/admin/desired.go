package admin

import (
	"encoding/json"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// DesiredState is what became of the settings that are wanted of a device.
type DesiredState string

// Of a device that says nothing of what is wanted now, the state is not_yet.
const (
	DesiredNone     DesiredState = "none" // nothing is wanted of it
	DesiredNotYet   DesiredState = "not_yet"
	DesiredTrial    DesiredState = DesiredState(wire.DesiredTrial)
	DesiredApplied  DesiredState = DesiredState(wire.DesiredApplied)
	DesiredRefused  DesiredState = DesiredState(wire.DesiredRefused)
	DesiredTooLarge DesiredState = "too_large" // merged they are more than wire.MaxDesired: nothing is sent
)

// DesiredDocument is what was set for one device, or for all that have one label.
type DesiredDocument struct {
	Device   string          `json:"device,omitempty"`
	Label    string          `json:"label,omitempty"` // site=north
	Revision uint64          `json:"revision"`        // later ones lie over earlier ones; for If-Match
	By       string          `json:"by"`              // the caller's address, or local
	At       time.Time       `json:"at"`
	Document json.RawMessage `json:"document,omitempty"` // left out of lists
}

// DesiredReport is what a device said last of its settings.
type DesiredReport struct {
	Version string            `json:"version"`
	State   wire.DesiredState `json:"state"`
	Reason  string            `json:"reason,omitempty"`
	At      time.Time         `json:"at,omitzero"` // by the device's clock
	Heard   time.Time         `json:"heard"`       // by the hub's
}

// DesiredDevice is GET /v1/devices/{device}/desired.
type DesiredDevice struct {
	Device    string            `json:"device"`
	State     DesiredState      `json:"state"`
	Reason    string            `json:"reason,omitempty"`
	Version   string            `json:"version,omitempty"` // of Merged; empty if nothing is wanted
	Merged    json.RawMessage   `json:"merged"`
	Documents []DesiredDocument `json:"documents"`        // that Merged is made of, in this order
	Report    *DesiredReport    `json:"report,omitempty"` // nil: it never said anything
	Labels    bool              `json:"labels_known"`     // false: the device has not been heard of, and gets nothing
}

// DesiredLabel is GET /v1/desired?label=key=value.
type DesiredLabel struct {
	Label    string               `json:"label"`
	Document *DesiredDocument     `json:"document,omitempty"` // nil: nothing was set for it
	Devices  int                  `json:"devices"`            // that have the label
	States   map[DesiredState]int `json:"states"`
	// Refused names the first devices that refused what is wanted of them now.
	Refused map[string]string `json:"refused,omitempty"`
}

// DesiredList is GET /v1/desired?after=&limit=: one page of what was set.
type DesiredList struct {
	Documents []DesiredDocument `json:"documents"`      // never null
	Next      string            `json:"next,omitempty"` // value of after for the next page
}
