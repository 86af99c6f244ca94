// Package store is JetStream as the hub uses it: the embedded server or an
// external cluster, the streams, atomic batches and reads from the leader.
package store

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
)

// Errors that callers branch on.
var (
	// ErrGuard means that an expected sequence did not match; nothing of the batch is stored.
	ErrGuard = errors.New("store: guard failed")
	// ErrUnknownOutcome means that no answer came: the batch may be stored, or not, or (R1, disk error) in part. Re-read.
	ErrUnknownOutcome = errors.New("store: outcome unknown")
	// ErrFull means that the stream or the store takes no more.
	ErrFull = errors.New("store: full")
	// ErrNotFound means that the subject has no message.
	ErrNotFound = errors.New("store: not found")
)

// Msg is one message of a batch.
type Msg struct {
	Subject string
	Header  nats.Header // without Nats-Batch-*; guards (Nats-Expected-*) are the caller's
	Data    []byte
}

// Stored is a message read back.
type Stored struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Seq     uint64
}

// API is agreed upon here and goes when the methods stand on *Store.
type API interface {
	// PublishBatch stores 1..1000 messages atomically in the stream that takes
	// their subjects and returns the stream sequence of the last; the others
	// precede it without a gap.
	PublishBatch(ctx context.Context, msgs []Msg) (last uint64, err error)
	// Last reads the newest message of a literal subject from the stream's leader.
	Last(ctx context.Context, stream, subject string) (Stored, error)
}
