package client

import (
	"fmt"
	"time"
)

// Lane is a priority class. Order is kept within a lane only.
type Lane string

// The lanes, most urgent first.
const (
	Urgent Lane = "urgent"
	Normal Lane = "normal"
	Bulk   Lane = "bulk"
)

var lanes = [...]Lane{Urgent, Normal, Bulk} // by their number in frames

// Ack is what a publish waits for.
type Ack uint8

const (
	Disk   Ack = iota // it survives a power cut
	Memory            // the agent has it; no epoch and sequence in the receipt
	Hub               // the hub has it, or HubTimeout is over: see Receipt.Hub
)

// Message is one message to publish. Subject is required.
type Message struct {
	Subject string // tokens separated by dots, no wildcards, at most 255 bytes
	Payload []byte // at most socket.max_payload, 512 KiB by default

	ID      string        // makes a retry idempotent: remembered for 10 minutes or 100,000 ids
	Lane    Lane          // empty: the agent's rules decide
	TTL     time.Duration // from acceptance; 0: never expires
	Time    time.Time     // zero: acceptance
	Headers []Header      // at most 4 KiB together

	Ack        Ack
	HubTimeout time.Duration // with Ack Hub; 0: 30 s
}

// Header is one header of a message.
type Header struct{ Key, Value string }

// Receipt says under which numbers a message was accepted.
type Receipt struct {
	Epoch     string // 16 hex digits; empty with Ack Memory
	Lane      Lane
	Seq       uint64 // 0 with Ack Memory
	Duplicate bool   // the ID was accepted before; these are the numbers of then
	Hub       bool   // the hub has it (asked for by Ack Hub only)
}

// Codes of errors that do not come from the agent. Those that do are in the
// documentation of its HTTP API: bad_subject, spool_full, stopping …
const (
	CodeUnknown  = "unknown_outcome" // the connection broke before the answer
	CodeClosed   = "closed"          // Close was called before it was sent
	CodeProtocol = "protocol"        // the other end does not speak this protocol
)

// Error says why a message was not accepted.
type Error struct {
	Code   string
	Detail string
	Retry  time.Duration // after which a retry may help; 0: unknown
}

func (e *Error) Error() string { return "fieldpost: " + e.Code + ": " + e.Detail }

// Is makes errors.Is compare codes: errors.Is(err, &client.Error{Code: "spool_full"}).
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

func errorf(code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}
