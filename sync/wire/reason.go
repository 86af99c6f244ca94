package wire

import "fmt"

// Reason says why sequences will never come, or why an entry was blanked. The
// values are part of the formats.
type Reason uint8

// Zero is "not removed".
const (
	ReasonTTL          Reason = 1 + iota // the message's own time to live ran out
	ReasonMaxAge                         // older than spool.max_age
	ReasonDropOldest                     // spool full, when_full: drop-oldest
	ReasonPurge                          // an operator purged it
	ReasonQuarantine                     // unreadable after damage
	ReasonFailedCommit                   // numbered but never durable, never acked
	ReasonHubRewound                     // delivered once; the hub has lost it since
	numReasons
)

var reasonNames = [numReasons]string{"", "ttl", "max_age", "drop_oldest", "purge", "quarantine", "failed_commit", "hub_rewound"}

// Valid reports whether r is a reason of this version.
func (r Reason) Valid() bool { return r > 0 && r < numReasons }

func (r Reason) String() string {
	if r >= numReasons {
		return fmt.Sprintf("reason(%d)", uint8(r))
	}
	return reasonNames[r]
}

// Reasons lists all reasons, for metrics and status.
func Reasons() []Reason {
	out := make([]Reason, 0, numReasons-1)
	for r := Reason(1); r < numReasons; r++ {
		out = append(out, r)
	}
	return out
}
