package wire

import (
	"errors"
	"fmt"
	"slices"
)

// A command travels the other way: it lies in COMMANDS on its device's literal
// subject until the device has it durably, and the device reports what became of
// it. Both go in one request of the device on fp.up.<device>, of which the
// instances of the hub are one queue group.

// CommandSubject is where a device's commands are stored.
func CommandSubject(device string) string { return "fp.cmd." + device }

// Limits of commands and of what is reported of them.
const (
	MaxCommand        = 256 << 10 // bytes of a payload
	MaxCommandResult  = 64 << 10  // bytes
	MaxCommandReports = 64        // in one request
	MaxCommandBatch   = 64        // commands in one reply
	MaxCommandMessage = 1 << 20   // bytes of a request or a reply
)

// CommandState is what is known of a command.
type CommandState string

// States. The last four are final: none of them is ever left.
const (
	CommandPending   CommandState = "pending"   // at the hub only
	CommandDelivered CommandState = "delivered" // durable at the device
	CommandAcked     CommandState = "acked"     // a program there has done it
	CommandFailed    CommandState = "failed"    // terminated by a program, or delivered max_deliver times
	CommandExpired   CommandState = "expired"   // its time to live was over before
	CommandCancelled CommandState = "cancelled" // by the sender, before
)

// Settled reports whether the state is final.
func (s CommandState) Settled() bool {
	switch s {
	case CommandAcked, CommandFailed, CommandExpired, CommandCancelled:
		return true
	}
	return false
}

// Command is one instruction for a device.
type Command struct {
	ID         string `json:"id"`  // effects are idempotent by it
	Seq        uint64 `json:"seq"` // in COMMANDS
	Subject    string `json:"subject"`
	Payload    []byte `json:"payload,omitempty"`
	Sent       int64  `json:"sent"`        // hub's clock, Unix milliseconds
	TTL        int64  `json:"ttl_ms"`      // what is left of its time to live
	AckWait    int64  `json:"ack_wait_ms"` // of one delivery to a program
	MaxDeliver int    `json:"max_deliver"` // deliveries to programs
}

// CommandRequest asks for commands and reports of others.
type CommandRequest struct {
	HubID   string          `json:"hub_id"`
	Stream  string          `json:"stream,omitempty"`  // incarnation of COMMANDS that After is of
	After   uint64          `json:"after"`             // everything up to this sequence is durable here, or not for this device
	Room    int             `json:"room"`              // bytes of payloads that the device takes now
	Reports []CommandReport `json:"reports,omitempty"` // repeated until they are noted
	Desired *DesiredReport  `json:"desired,omitempty"` // nil: the device knows no desired settings
}

// CommandReport says what became of a command, or that the device has it.
type CommandReport struct {
	ID         string       `json:"id"`
	State      CommandState `json:"state"` // not pending
	At         int64        `json:"at"`    // device's clock, Unix milliseconds
	Deliveries int          `json:"deliveries,omitempty"`
	Reason     string       `json:"reason,omitempty"` // of a failure, for a person
	Result     []byte       `json:"result,omitempty"` // what the program returned
}

// CommandReply answers CommandRequest.
type CommandReply struct {
	Error    *SessionError `json:"error,omitempty"`
	Stream   string        `json:"stream,omitempty"`
	Commands []Command     `json:"commands,omitempty"` // by sequence; those that the device has already may be among them
	Next     uint64        `json:"next"`               // what After is once Commands are durable
	More     bool          `json:"more,omitempty"`     // ask again at once
	Noted    []string      `json:"noted,omitempty"`    // ids of reports that the hub has durably, or has no use for
	Cancel   []string      `json:"cancel,omitempty"`   // ids that the device is to give up unless they are settled
	Desired  *Desired      `json:"desired,omitempty"`  // if the version that the device reports is another one
	Time     int64         `json:"time"`               // hub's clock, Unix milliseconds
}

// ParseCommandRequest reads and checks what a device asks.
func ParseCommandRequest(data []byte) (*CommandRequest, error) {
	var r CommandRequest
	if err := unmarshal(data, MaxCommandMessage, &r); err != nil {
		return nil, fmt.Errorf("command request: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("command request: %w: %w", ErrCorrupt, err)
	}
	return &r, nil
}

func (r *CommandRequest) check() error {
	switch {
	case !token(r.HubID, maxName):
		return errToken("hub_id")
	case r.Stream != "" && !token(r.Stream, maxName):
		return errToken("stream")
	case r.Room < 0:
		return errors.New("room below 0")
	case len(r.Reports) > MaxCommandReports:
		return fmt.Errorf("%d reports; the limit is %d", len(r.Reports), MaxCommandReports)
	}
	for _, p := range r.Reports {
		switch {
		case !token(p.ID, maxName):
			return errToken("id")
		case p.State != CommandDelivered && !p.State.Settled():
			return fmt.Errorf("state %.40q cannot be reported", p.State)
		case p.At < 0 || p.At > MaxTime:
			return fmt.Errorf("at %d ms is not a time", p.At)
		case p.Deliveries < 0:
			return errors.New("deliveries below 0")
		case !printable(p.Reason, maxText):
			return errText("reason")
		case len(p.Result) > MaxCommandResult:
			return fmt.Errorf("a result of %d bytes; the limit is %d", len(p.Result), MaxCommandResult)
		}
	}
	return r.Desired.check()
}

// ParseCommandReply reads and checks the hub's answer.
func ParseCommandReply(data []byte) (*CommandReply, error) {
	var r CommandReply
	if err := unmarshal(data, MaxCommandMessage, &r); err != nil {
		return nil, fmt.Errorf("command reply: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("command reply: %w: %w", ErrCorrupt, err)
	}
	return &r, nil
}

func (r *CommandReply) check() error {
	switch {
	case r.Error != nil:
		if r.Error.Code == "" || !printable(r.Error.Code, maxCode) || !printable(r.Error.Detail, maxDetail) {
			return errText("error")
		}
		return nil
	case !token(r.Stream, maxName):
		return errToken("stream")
	case len(r.Commands) > MaxCommandBatch:
		return fmt.Errorf("%d commands; the limit is %d", len(r.Commands), MaxCommandBatch)
	}
	last := uint64(0)
	for _, c := range r.Commands {
		switch {
		case !token(c.ID, maxName):
			return errToken("id")
		case c.Seq <= last || c.Seq > r.Next:
			return fmt.Errorf("command %s: sequence %d after %d, next %d", c.ID, c.Seq, last, r.Next)
		case CheckSubject(c.Subject) != nil:
			return fmt.Errorf("command %s: subject %.80q", c.ID, c.Subject)
		case len(c.Payload) > MaxCommand:
			return fmt.Errorf("command %s: %d bytes; the limit is %d", c.ID, len(c.Payload), MaxCommand)
		case c.TTL < 0 || c.AckWait < 1 || c.MaxDeliver < 1:
			return fmt.Errorf("command %s: ttl %d ms, ack_wait %d ms, max_deliver %d", c.ID, c.TTL, c.AckWait, c.MaxDeliver)
		}
		last = c.Seq
	}
	for _, id := range slices.Concat(r.Noted, r.Cancel) {
		if !token(id, maxName) {
			return errToken("id")
		}
	}
	return r.Desired.check()
}
