package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Errors that callers branch on. Each is wrapped with what happened and where.
var (
	ErrFull      = errors.New("spool: full")       // max_bytes reached: 507 spool_full
	ErrDiskFull  = errors.New("spool: disk full")  // the file system is: 507 disk_full
	ErrDiskFault = errors.New("spool: disk fault") // a write or fsync failed: 503 disk_fault
	ErrClosed    = errors.New("spool: closed")     // 503 stopping
	ErrUnknown   = errors.New("spool: unknown sequence")
	ErrEnd       = fmt.Errorf("spool: nothing more: %w", io.EOF) // Read only; io.EOF to those who do not import spool
)

// Config configures a spool. The zero value of every field but Dir is a default.
type Config struct {
	Dir          string
	MaxBytes     int64         // real disk bytes; 0: the smaller of 1 GiB and 25 % of the file system
	KeepFree     int64         // bytes of the file system left to others; 0: 64 MiB
	CommitDelay  time.Duration // how long a lone message waits for company; 0: 2 ms; negative: not at all
	BlockBytes   int           // uncompressed size at which a block is sealed; 0: 128 KiB
	SegmentBytes int64         // blocks per segment; 0: 8 MiB, less in a small spool
	MaxBatch     int           // messages of one Append; 0: wire.MaxCount

	// Fault is called at every labelled step ("commit:vlog-sync", "seal:write", …).
	// A returned error takes the place of the step's own. Tests only; nil in production.
	Fault func(point string) error
	Log   *slog.Logger
	Now   func() time.Time
}

// Receipt is the answer to an Append: durable, and under which numbers.
type Receipt struct {
	Flow        wire.Flow
	First, Last uint64 // of the accepted messages; of the first copy if all were duplicates
	Accepted    int
	Duplicates  int // messages whose id was accepted before
}

// Stats is a snapshot for status and metrics.
type Stats struct {
	Epoch      wire.Epoch // zero until the first message of this run
	Lanes      [wire.NumLanes]LaneStats
	DiskUsed   int64 // allocated bytes of everything in the spool folder
	DiskMax    int64
	DiskFree   int64
	LiveBytes  int64 // encoded bytes of blocks not yet received by the hub
	Dropped    map[wire.Reason]uint64
	Quarantine Quarantine
}

// LaneStats is what a lane holds that the hub has not.
type LaneStats struct {
	Messages uint64
	Bytes    int64
	Oldest   time.Time // acceptance of the oldest; zero if none
}

// Quarantine is what damage has cost so far.
type Quarantine struct {
	Segments, Messages uint64
	Reports            []string // file names of the reports, newest last
}

// API is what this package offers; it is here to be agreed upon and goes when
// the methods stand on *Spool.
type API interface {
	// Append stores msgs, all or none, in order, and returns when they are
	// durable. Concurrent calls share a commit. ctx bounds the wait only: what was
	// handed to a commit may become durable all the same.
	Append(ctx context.Context, lane wire.Lane, msgs []wire.Message) (Receipt, error)
	// Enqueue is Append without the wait: done is called once, from the commit
	// loop, and must not block. Order of calls is order of sequences.
	Enqueue(lane wire.Lane, msgs []wire.Message, done func(Receipt, error))

	// Flows lists what is still held, in sending order: lanes by urgency, in each
	// lane older epochs first.
	Flows() []wire.FlowHeld
	// Read returns the encoded block that holds the lowest sequence ≥ from that is
	// held, or ErrEnd.
	Read(f wire.Flow, from uint64) ([]byte, error)
	// Received tells that the hub has these sequences durably. Segments that hold
	// nothing else are removed.
	Received(f wire.Flow, set wire.Ranges) error
	// Updates receives a value after commits; it never blocks the spool (capacity 1).
	Updates() <-chan struct{}
	// Delivered reports whether the hub has seq; ErrUnknown if it was never assigned.
	Delivered(f wire.Flow, seq uint64) (bool, error)
	// WaitDelivered returns when Delivered is true or ctx ends.
	WaitDelivered(ctx context.Context, f wire.Flow, seq uint64) error

	// HubID and Token are small durable facts of the session (fsynced before Set returns).
	HubID() string
	SetHubID(id string) error
	Token() string
	SetToken(t string) error

	Stats() Stats
	// Err is nil while the spool takes messages, else why not (ErrFull …).
	Err() error
	// Close finishes what was accepted, seals and releases everything.
	Close() error
}
