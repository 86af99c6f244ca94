package wire

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// Lane is a message's priority class. Order is kept within a lane only.
type Lane uint8

// The lanes, most urgent first. The values are part of the formats.
const (
	Urgent Lane = iota
	Normal
	Bulk
	NumLanes = 3
)

var laneNames = [NumLanes]string{"urgent", "normal", "bulk"}

// ParseLane accepts urgent, normal or bulk.
func ParseLane(s string) (Lane, error) {
	for i, n := range laneNames {
		if s == n {
			return Lane(i), nil
		}
	}
	return 0, fmt.Errorf("lane %q is not one of urgent, normal, bulk", s)
}

// Valid reports whether l is a lane of this version.
func (l Lane) Valid() bool { return l < NumLanes }

func (l Lane) String() string {
	if !l.Valid() {
		return fmt.Sprintf("lane(%d)", uint8(l))
	}
	return laneNames[l]
}

// MarshalText makes lanes readable in JSON and YAML.
func (l Lane) MarshalText() ([]byte, error) {
	if !l.Valid() {
		return nil, fmt.Errorf("%s is not a lane", l)
	}
	return []byte(l.String()), nil
}

// UnmarshalText is the inverse of MarshalText.
func (l *Lane) UnmarshalText(b []byte) (err error) {
	*l, err = ParseLane(string(b))
	return err
}

// Epoch names one run of an agent. It is random, so that two copies of one
// spool can never number two messages alike.
type Epoch [8]byte

// NewEpoch returns a fresh random epoch.
func NewEpoch() Epoch {
	var e Epoch
	rand.Read(e[:]) // never fails (crypto/rand, Go 1.24)
	return e
}

// ParseEpoch reads the 16 lower-case hex digits that String prints.
func ParseEpoch(s string) (Epoch, error) {
	var e Epoch
	if len(s) != hex.EncodedLen(len(e)) {
		return e, fmt.Errorf("epoch %q is not 16 hex digits", s)
	}
	if _, err := hex.Decode(e[:], []byte(s)); err != nil || e.String() != s {
		return Epoch{}, fmt.Errorf("epoch %q is not 16 lower-case hex digits", s)
	}
	return e, nil
}

func (e Epoch) String() string { return hex.EncodeToString(e[:]) }

// IsZero reports whether e was never set.
func (e Epoch) IsZero() bool { return e == Epoch{} }

// MarshalText writes the 16 hex digits.
func (e Epoch) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (e *Epoch) UnmarshalText(b []byte) (err error) {
	*e, err = ParseEpoch(string(b))
	return err
}

// Flow is the unit of numbering, order and deduplication: the messages of one
// lane in one epoch, sequences consecutive from the flow's base.
type Flow struct {
	Epoch Epoch `json:"epoch"`
	Lane  Lane  `json:"lane"`
}

func (f Flow) String() string { return f.Epoch.String() + "/" + f.Lane.String() }
