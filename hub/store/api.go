package store

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Errors that callers branch on.
var (
	// ErrGuard means that an expected sequence did not match; nothing of the batch is stored.
	ErrGuard = errors.New("store: guard failed")
	// ErrUnknownOutcome means that no answer came: the batch may be stored, or not, or (R1, disk error) in part. Re-read.
	ErrUnknownOutcome = errors.New("store: outcome unknown")
	// ErrFull means that the stream or the store takes no more; nothing of the batch is stored.
	ErrFull = errors.New("store: full")
	// ErrSubjectFull means that the stream holds as many messages of this subject as it may.
	ErrSubjectFull = errors.New("store: too many messages of one subject")
	// ErrTooLarge means that a message is larger than the server or the stream takes; nothing of the batch is stored.
	ErrTooLarge = errors.New("store: message too large")
	// ErrNotFound means that there is no such message, or nothing more to read.
	ErrNotFound = errors.New("store: not found")
)

// MaxBatch is how many messages one batch may hold.
const MaxBatch = 1000

// Headers that guard a message. The first is checked against the last sequence
// of the message's own subject, the second against that of the stream; JetStream
// allows the second on the first message of a batch only.
const (
	GuardSubject = "Nats-Expected-Last-Subject-Sequence"
	GuardStream  = "Nats-Expected-Last-Sequence"
)

// Msg is one message of a batch.
type Msg struct {
	Subject string
	Header  nats.Header // without Nats-Batch-*; guards are the caller's. Borrowed and restored by the call
	Data    []byte
}

// Stored is a message read back.
type Stored struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Seq     uint64
	Time    time.Time // when it was stored
}
