package uplink

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// ReceiverConfig bounds what devices can ask of a receiver. Zero values mean
// the defaults.
type ReceiverConfig struct {
	HubID string // an open that pins another is refused

	Window      int   // block bytes of one session that are on their way to the ledger; 32 MiB
	MaxBlocks   int   // blocks of one session that wait for the ledger; 65,536
	MaxQueued   int64 // bytes of all sessions together; 256 MiB. One device has at most two windows of it
	MaxChunked  int64 // bytes of blocks that come in chunks; 128 MiB
	MaxBlock    int   // bytes of a block that one message of the ledger holds, unless it turns out to be less; 1 MiB − 8 KiB
	MaxSessions int   // of one device; 4
	MaxFlows    int   // an open may announce, the rest is ignored; 256. As many again may follow
	MaxDevices  int   // known at one time; 100,000

	OpenBurst int           // opens that a device may send at once; 20
	OpenEvery time.Duration // and one more after each; 500 ms

	Idle        time.Duration // a session unheard of for so long ends; 150 s
	MeteredIdle time.Duration // the same in class metered; 15 min
	OpenTimeout time.Duration // an open waits so long for the ledger; 5 s
	Unavailable time.Duration // blocks wait so long for a ledger that fails; 20 s
	Alone       time.Duration // a device whose guard failed is committed alone for so long; 1 min
	LazyAck     time.Duration // an ack that nobody waits for waits so long for more to tell; 1 s
	Stale       time.Duration // a flow unused for so long is read again before the next block; 10 min

	MaxBatches   int           // uncommitted at one time; 4
	BatchBlocks  int           // messages of the ledger in one batch; 1,000
	BatchBytes   int           // in one batch, unless it is one block; 8 MiB
	EarlyBytes   int           // so much is not held back while another batch is under way; 1 MiB
	EarlyBlocks  int           // the same in blocks; 500
	MaxBatchWait time.Duration // nothing is held back for longer; 20 ms

	// Judge replaces the ledger rules, for a model that shows what comes of it; nil: Judge.
	Judge func(received wire.Ranges, h *wire.Header, fifo bool) Verdict
}

func (c ReceiverConfig) withDefaults() ReceiverConfig {
	def(&c.Window, 32<<20)
	def(&c.MaxBlocks, 1<<16)
	def(&c.MaxQueued, 256<<20)
	def(&c.MaxChunked, 128<<20)
	def(&c.MaxBlock, 1<<20-8<<10)
	def(&c.MaxSessions, 4)
	def(&c.MaxFlows, 256)
	def(&c.MaxDevices, 100_000)
	def(&c.OpenBurst, 20)
	def(&c.OpenEvery, 500*time.Millisecond)
	def(&c.Idle, 150*time.Second)
	def(&c.MeteredIdle, 15*time.Minute)
	def(&c.OpenTimeout, 5*time.Second)
	def(&c.Unavailable, 20*time.Second)
	def(&c.Alone, time.Minute)
	def(&c.LazyAck, time.Second)
	def(&c.Stale, 10*time.Minute)
	def(&c.MaxBatches, 4)
	def(&c.BatchBlocks, 1000)
	def(&c.BatchBytes, 8<<20)
	def(&c.EarlyBytes, 1<<20)
	def(&c.EarlyBlocks, 500)
	def(&c.MaxBatchWait, 20*time.Millisecond)
	if c.Judge == nil {
		c.Judge = Judge
	}
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// RecvEvent is what happened: one of the Recv types.
type RecvEvent interface{ recvEvent() }

// The events.
type (
	// RecvOpen is a request to open a session.
	RecvOpen struct {
		Request uint64         // chosen by the driver, names the request in DoReply
		Device  string         // valid, from the subject
		Session wire.SessionID // fresh and random, for the case that it is granted
		Data    []byte         // the JSON of wire.Open
	}
	// RecvFrame is a frame of a device. Data must not change afterwards.
	RecvFrame struct {
		Device string // from the subject
		Data   []byte
	}
	// RecvRead answers a DoRead.
	RecvRead struct {
		Read     uint64
		Last     uint64      // sequence of the subject's last message; 0: it has none
		Received wire.Ranges // that message's received set
		Err      error       // nothing was read
	}
	// RecvDone answers a DoCommit.
	RecvDone struct {
		Batch   uint64
		Last    uint64 // OutcomeStored: the stream sequence of the last message
		Outcome Outcome
	}
	// RecvTick asks for what is due: batches, acks, retries, expiries. The driver
	// sends it when it has handed over all events at hand, and at Next.
	RecvTick struct{}
	// RecvStop refuses new sessions and takes no more blocks in; with Now, all
	// sessions end.
	RecvStop struct{ Now bool }
)

// Outcome is how a batch ended.
type Outcome uint8

// The outcomes.
const (
	OutcomeStored   Outcome = iota // durable
	OutcomeGuard                   // a guard failed, nothing is stored
	OutcomeUnknown                 // stored, or not, or in part
	OutcomeFull                    // the ledger takes no more; nothing is stored
	OutcomeTooLarge                // a message is larger than the ledger takes; nothing is stored
	OutcomeRefused                 // nothing is stored, and trying again does not help
)

// RecvAction is what the driver has to do: one of the Do types.
type RecvAction interface{ recvAction() }

// The actions.
type (
	// DoReply answers a request to open a session. Without an error the driver adds
	// what the receiver does not know (instance, hub id, token, limits, time).
	DoReply struct {
		Request  uint64
		Device   string
		Session  wire.SessionID
		Open     *wire.Open // as far as it could be read
		Received []wire.FlowReceived
		Partial  []wire.Partial
		Err      *wire.SessionError
	}
	// DoIgnore forgets a request: it repeats one that is answered, or will be.
	DoIgnore struct{ Request uint64 }
	// DoAck sends an ack to a session.
	DoAck struct {
		Device  string
		Session wire.SessionID
		Ack     wire.Ack
	}
	// DoEnd tells a session that it has ended; a nil Err means that its agent ended
	// it and needs no message. Stray means that the device has no session here.
	DoEnd struct {
		Device  string
		Session wire.SessionID
		Err     *wire.SessionError
		Stray   bool
	}
	// DoRead reads the last message of a flow's subject from the stream's leader and
	// answers with RecvRead.
	DoRead struct {
		Read   uint64
		Device string
		Flow   wire.Flow
	}
	// DoCommit stores the blocks in one atomic batch and answers with RecvDone.
	DoCommit struct {
		Batch  uint64
		Blocks []LedgerBlock
	}
	// DoConfirm passes on that a device has made a token durable.
	DoConfirm struct {
		Device string
		Token  string
	}
	// DoClose passes on that nothing more will come in an epoch.
	DoClose struct {
		Device string
		Epoch  wire.Epoch
	}
	// DoCount counts what was neither stored nor answered at once.
	DoCount struct {
		Device   string
		What     string // one of the Count constants
		Messages uint64 // CountFound: in the block
	}
)

// What DoCount counts.
const (
	CountDuplicate = "duplicate"       // a block that was received already
	CountFound     = "found"           // a block of a batch without answer that is in the ledger after all
	CountStray     = "unknown_session" // a frame of no session, or of one that has ended
	CountRepeated  = "repeated_frame"  // a frame with a counter that was taken in already
	CountMalformed = "malformed"       // bytes that are no frame
	CountStopping  = "stopping"        // a frame while the instance shuts down
)

// LedgerBlock is one block of a batch, and one message of the ledger unless it is
// too large.
type LedgerBlock struct {
	Device   string
	Flow     wire.Flow
	Range    wire.Range
	Void     wire.Reason // not zero: a void
	Blanked  bool        // messages of which some are blank
	Backfill bool        // newer messages of the lane went ahead
	Data     []byte      // the block
	Pieces   int         // messages of the ledger that it takes
	Received wire.Ranges // the received set of the flow after it
	Guarded  bool        // the first of its flow in the batch
	Guard    uint64      // last sequence of the subject, if Guarded
	Arrived  time.Time
}

func (RecvOpen) recvEvent()  {}
func (RecvFrame) recvEvent() {}
func (RecvRead) recvEvent()  {}
func (RecvDone) recvEvent()  {}
func (RecvTick) recvEvent()  {}
func (RecvStop) recvEvent()  {}

func (DoReply) recvAction()   {}
func (DoIgnore) recvAction()  {}
func (DoAck) recvAction()     {}
func (DoEnd) recvAction()     {}
func (DoRead) recvAction()    {}
func (DoCommit) recvAction()  {}
func (DoConfirm) recvAction() {}
func (DoClose) recvAction()   {}
func (DoCount) recvAction()   {}

// Receiver is the hub's end of all uplink sessions of one instance. It has no
// goroutine, no clock and does no I/O; the same events give the same actions.
//
// What it promises does not rest on sessions: whatever frames arrive from
// whichever session, in whatever order, a block enters a batch only if Judge
// says so of the received set read from, or written to, the ledger under the
// guard that the batch carries; and only what the ledger holds is acked.
type Receiver struct {
	cfg ReceiverConfig
	now time.Time    // of the current Step
	out []RecvAction // of the current Step

	devices  map[string]*recvDevice
	sessions map[wire.SessionID]*recvSession
	order    []*recvSession // the same, for sweeping
	enc      *wire.Encoder  // for what comes through streams; nil before the first
	reads    map[uint64]*recvFlow
	batches  map[uint64]*recvBatch
	lastID   uint64 // of a read or batch

	ready    readyList // flows whose blocks may share a batch
	lone     readyList // flows of devices that are committed alone
	loneNow  int       // batches of lone devices under way
	retries  []*recvFlow
	troubled []*recvFlow
	dirty    []*recvSession // an ack is due
	lazy     []lazyAck      // and these, later; in order
	queued   int64          // bytes held for the ledger, batches included
	chunked  int64          // bytes of blocks that come in chunks

	swept     time.Time
	downUntil time.Time // the ledger was seen to fail: opens are refused
	downReads bool      // because it could not be read
	probeAt   time.Time // but one open is let through from here on
	stopping  bool
}

// NewReceiver returns a receiver without sessions.
func NewReceiver(cfg ReceiverConfig) *Receiver {
	return &Receiver{
		cfg:      cfg.withDefaults(),
		devices:  map[string]*recvDevice{},
		sessions: map[wire.SessionID]*recvSession{},
		reads:    map[uint64]*recvFlow{},
		batches:  map[uint64]*recvBatch{},
	}
}

// Step takes in one event and returns what to do, in this order. The result is
// valid until the next call.
func (r *Receiver) Step(now time.Time, in RecvEvent) []RecvAction {
	r.now = now
	clear(r.out)
	r.out = r.out[:0]
	switch ev := in.(type) {
	case RecvOpen:
		r.open(ev)
	case RecvFrame:
		r.frame(ev)
	case RecvRead:
		r.read(ev)
	case RecvDone:
		r.done(ev)
	case RecvStop:
		r.stop(ev)
	case RecvTick:
		r.retry()
		if now.Sub(r.swept) >= sweepEvery {
			r.swept = now
			r.sweep()
		}
		r.fill()
		r.ackAll()
	}
	return r.out
}

// Next is when a RecvTick is due even if nothing happens.
func (r *Receiver) Next() time.Time {
	next := r.swept.Add(sweepEvery)
	for _, f := range r.retries {
		next = earlier(next, f.retryAt)
	}
	if len(r.lazy) > 0 {
		next = earlier(next, r.lazy[0].at)
	}
	if len(r.batches) < r.cfg.MaxBatches && len(r.ready.flows) > 0 {
		next = earlier(next, r.ready.since().Add(r.cfg.MaxBatchWait))
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Idle reports whether nothing waits for the ledger.
func (r *Receiver) Idle() bool { return r.queued == 0 && len(r.batches) == 0 }

// Load is what the receiver holds: for metrics and tests of its bounds.
func (r *Receiver) Load() (devices, sessions int, queued int64) {
	return len(r.devices), len(r.sessions), r.queued
}

func (r *Receiver) do(a RecvAction) { r.out = append(r.out, a) }

func (r *Receiver) nextID() uint64 {
	r.lastID++
	return r.lastID
}
