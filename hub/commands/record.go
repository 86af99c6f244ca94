package commands

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// record is what the bucket holds of a command. Times are Unix milliseconds of
// the hub's clock, 0 for never.
type record struct {
	ID      string            `json:"id"`
	Device  string            `json:"device"`
	Group   string            `json:"group,omitempty"`
	Subject string            `json:"subject"`
	Sum     string            `json:"sum,omitempty"` // of subject and payload; empty: unknown
	State   wire.CommandState `json:"state"`

	Stream  string `json:"stream"` // incarnation of COMMANDS that Seq is of
	Seq     uint64 `json:"seq"`
	Sent    int64  `json:"sent"` // stored in COMMANDS
	Expires int64  `json:"expires"`

	Offered    int64  `json:"offered,omitempty"` // first handed out: the device may have it
	Delivered  int64  `json:"delivered,omitempty"`
	Settled    int64  `json:"settled,omitempty"`
	Deliveries int    `json:"deliveries,omitempty"`
	Cancelling bool   `json:"cancelling,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Result     []byte `json:"result,omitempty"`

	rev uint64 // of the bucket's value, 0 if there is none
}

// away reports whether the device may have the command.
func (r *record) away() bool { return r.Offered > 0 || r.Delivered > 0 }

// reported takes in what the device says; false if that is nothing new.
func (r *record) reported(p wire.CommandReport, now time.Time) bool {
	if r.State.Settled() || p.State == r.State {
		return false
	}
	at := min(max(p.At, r.Sent), max(now.UnixMilli(), r.Sent)) // the device's clock is its own
	if r.Delivered == 0 {
		r.Delivered = at
	}
	r.State, r.Deliveries = p.State, max(r.Deliveries, p.Deliveries)
	if p.State.Settled() {
		r.Settled, r.Reason, r.Result = max(at, r.Delivered), p.Reason, p.Result
	}
	return true
}

// settle ends the command on the hub's own account; false if it has ended.
func (r *record) settle(to wire.CommandState, reason string, now time.Time) bool {
	if r.State.Settled() {
		return false
	}
	r.State, r.Settled, r.Reason = to, now.UnixMilli(), reason
	return true
}

// forgotten is how long after its expiry a device that may have a command can
// still say what became of it.
const forgotten = 7 * 24 * time.Hour

// sum tells commands of one id apart.
func sum(subject string, payload []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", subject) // a subject has no line break
	h.Write(payload)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// due is when the hub itself lets the command expire.
func (r *record) due() int64 {
	if r.away() {
		return r.Expires + forgotten.Milliseconds()
	}
	return r.Expires
}

// why is the reason of a command that the hub lets expire.
func (r *record) why() string {
	if r.away() {
		return "the device may have got it, and has not said what became of it"
	}
	return "the device did not ask for it in time"
}

// show is the record as the API has it.
func (r *record) show(payload []byte) admin.Command {
	return admin.Command{
		ID: r.ID, Device: r.Device, Group: r.Group, Subject: r.Subject, State: r.State, Payload: payload,
		Sent: stamp(r.Sent), Expires: stamp(r.Expires), Delivered: stamp(r.Delivered), Settled: stamp(r.Settled),
		Deliveries: r.Deliveries, Cancelling: r.Cancelling && !r.State.Settled(), Reason: r.Reason, Result: r.Result,
	}
}

func stamp(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
