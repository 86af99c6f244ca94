package spool

import (
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
	ErrRemoved   = errors.New("spool: removed")                  // a *RemovedError
	ErrEnd       = fmt.Errorf("spool: nothing more: %w", io.EOF) // Read only; io.EOF to who cannot import spool
	ErrTooLarge  = errors.New("spool: append too large")         // more messages or bytes than one Append takes
	ErrInvalid   = errors.New("spool: invalid message")          // the block format has no place for it
	ErrLocked    = errors.New("spool: in use")                   // another process has the folder open
	ErrLayout    = errors.New("spool: unknown layout")           // written by a newer Fieldpost
	ErrConfig    = errors.New("spool: bad configuration")        // Open only
	ErrKey       = errors.New("spool: a key is missing")         // what is held is encrypted with another; Open only
)

// Limits of one Append.
const (
	maxAppend = 8<<20 + 64<<10 // bytes by wire.Message.Size: one message of 8 MiB, its subject and headers
	minSpool  = 8 << 20        // a spool smaller than this cannot hold a head for every lane
)

// Config configures a spool. The zero value of every field but Dir is a default.
type Config struct {
	Dir          string
	MaxBytes     int64         // real disk bytes; 0: the smaller of 1 GiB and 25 % of the file system
	KeepFree     int64         // bytes of the file system left to others; 0: 64 MiB; negative: none
	CommitDelay  time.Duration // how long a lone message waits for company; 0: 2 ms; negative: not at all
	BlockBytes   int           // uncompressed size at which a block is sealed; 0: 128 KiB
	SegmentBytes int64         // blocks per segment; 0: 8 MiB, less in a small spool
	MaxBatch     int           // messages of one Append; 0: wire.MaxCount
	WhenFull     WhenFull      // Reject, or DropOldest
	MaxAge       time.Duration // by the spool clock; older messages are removed; 0: never

	// Keys encrypt the spool, 16, 24 or 32 bytes each: the first what is written
	// from now on, the others what is still held. Without a key, or if the first
	// is empty, what is written is not encrypted.
	Keys [][]byte

	// MemoryFirst answers publishers when memory holds their messages, as long as
	// LinkUp says that the hub takes them: at most 4 MiB, for at most 5 s, then
	// they are written. A crash or power cut loses what the hub has not got of
	// that, publisher ids included.
	MemoryFirst bool

	// Fault is called at every labelled step (Points lists them).
	// A returned error takes the place of the step's own. Tests only; nil in production.
	Fault func(point string) error
	// Synced is told how long each commit took to become durable. It must not
	// block. nil: nobody.
	Synced func(time.Duration)
	Log    *slog.Logger     // nil: discard
	Now    func() time.Time // nil: time.Now

	shape *geometry // tests only: segments that fill after a few blocks
	host  *host     // tests only: where time comes from
}

// validate fills in the defaults and refuses what cannot work.
func (c *Config) validate() error {
	if c.Dir == "" {
		return fmt.Errorf("%w: no folder", ErrConfig)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.host == nil {
		c.host = hostOf(c.Now)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	setDefault(&c.KeepFree, 64<<20)
	setDefault(&c.CommitDelay, 2*time.Millisecond)
	setDefault(&c.BlockBytes, 128<<10)
	setDefault(&c.MaxBatch, wire.MaxCount)
	switch {
	case c.MaxAge < 0:
		return fmt.Errorf("%w: max_age is negative", ErrConfig)
	case c.MaxBytes < 0 || c.BlockBytes < 0 || c.SegmentBytes < 0:
		return fmt.Errorf("%w: a size is negative", ErrConfig)
	case c.MaxBytes != 0 && c.MaxBytes < minSpool:
		return fmt.Errorf("%w: max_bytes is %d; the smallest spool takes %d", ErrConfig, c.MaxBytes, minSpool)
	case c.MaxBatch < 1 || c.MaxBatch > wire.MaxCount:
		return fmt.Errorf("%w: a batch of %d messages; choose 1 to %d", ErrConfig, c.MaxBatch, wire.MaxCount)
	case c.SegmentBytes > 256<<20:
		return fmt.Errorf("%w: segments of %d bytes; choose at most 256 MiB", ErrConfig, c.SegmentBytes)
	}
	for i, key := range c.Keys {
		if n := len(key); n != 16 && n != 24 && n != 32 && (n != 0 || i > 0) {
			return fmt.Errorf("%w: key %d has %d bytes; a key has 16, 24 or 32", ErrConfig, i+1, n)
		}
	}
	c.BlockBytes = min(c.BlockBytes, 1<<20)
	return nil
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Receipt is the answer to an Append: durable, and under which numbers.
type Receipt struct {
	Flow        wire.Flow
	First, Last uint64 // of the accepted messages; if all were duplicates, of the first copies in Flow
	Accepted    int
	Duplicates  int    // messages whose id was accepted before
	Copies      []Copy // where the duplicates' first copies are, in order; any flow
}

// Copy is the first copy of a message that came again.
type Copy struct {
	Flow wire.Flow
	Seq  uint64
}

// duplicate adds a message that is known already.
func (r *Receipt) duplicate(f wire.Flow, seq uint64) {
	r.Duplicates++
	r.Copies = append(r.Copies, Copy{f, seq})
}

// onlyCopies numbers a receipt of which nothing was accepted: by the flow of the
// first message's first copy.
func (r *Receipt) onlyCopies() {
	r.Flow, r.First, r.Last = r.Copies[0].Flow, r.Copies[0].Seq, r.Copies[0].Seq
	for _, c := range r.Copies {
		if c.Flow == r.Flow {
			r.First, r.Last = min(r.First, c.Seq), max(r.Last, c.Seq)
		}
	}
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
	Keys       []KeyUse // nothing is encrypted: empty
	Memory     int64    // of LiveBytes, what only memory holds
}

// LaneStats is what a lane holds that the hub has not.
type LaneStats struct {
	Messages uint64
	Bytes    int64
	Oldest   time.Time // acceptance of the oldest, or a little before it; zero if none
}

// Quarantine is what damage has cost so far.
type Quarantine struct {
	Segments, Messages uint64
	Reports            []string // file names of the reports, newest last
}

// RemovedError says that a message will never be delivered. It is ErrRemoved.
type RemovedError struct {
	Flow   wire.Flow
	Seq    uint64
	Reason wire.Reason
}

func (e *RemovedError) Error() string {
	return fmt.Sprintf("%v: %s %d, reason %s", ErrRemoved, e.Flow, e.Seq, e.Reason)
}

// Unwrap returns ErrRemoved.
func (e *RemovedError) Unwrap() error { return ErrRemoved }

// CorruptError says that a segment does not hold what was written into it.
type CorruptError struct {
	Segment string // folder
	Detail  string
	Err     error // may be nil
}

func (e *CorruptError) Error() string {
	s := "spool: segment " + e.Segment + " is damaged: " + e.Detail
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }
