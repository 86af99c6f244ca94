package uplink

import (
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// recvFlow is what the instance knows of one flow of one device, and what waits
// to be stored in it. It belongs to the instance, not to a session.
type recvFlow struct {
	device   *recvDevice
	flow     wire.Flow
	attached []*attached
	openers  []*recvSession // whose open waits for the state

	// The ledger, valid if known: as read from the leader or written under the guard.
	known    bool
	last     uint64      // sequence of the subject's last message, the next guard
	received wire.Ranges // its received set
	base     uint64      // of the blocks stored here; 0: not seen
	used     time.Time

	// At most one of reading and batch is set: while a batch is uncommitted, a read
	// says nothing about it.
	reading uint64 // id of the read under way
	batch   *recvBatch

	// Blocks in the order of arrival, those of the batch not included. If the state
	// is known they are judged, and coming is received ∪ batch ∪ queue.
	queue  []*recvBlock
	coming wire.Ranges

	inReady  bool // is in Receiver.ready or lone
	readyAt  time.Time
	retryAt  time.Time
	retrying bool      // is in Receiver.retries
	unread   bool      // the last read failed
	suspect  bool      // a batch with it failed by a guard: did its own move?
	single   bool      // its blocks are committed one by one
	failures int       // in a row
	failing  time.Time // since then
	troubled bool      // is in Receiver.troubled
}

// recvBlock is a block that waits to be stored.
type recvBlock struct {
	s        *recvSession
	header   wire.Range
	base     uint64
	void     wire.Reason
	blanked  bool
	backfill bool
	data     []byte
	sent     int         // bytes on the wire
	after    wire.Ranges // received set after it, once it is in a batch: of all that wait they would take too much
	pieces   int         // messages of the ledger that it takes, once it is in a batch
	unsure   bool        // was in a batch without answer
	arrived  time.Time
}

func (b *recvBlock) messages() uint64 {
	if b.void != 0 {
		return 0
	}
	return b.header.Len()
}

// busy reports whether anything waits for the ledger.
func (f *recvFlow) busy() bool {
	return f.batch != nil || f.reading != 0 || len(f.queue) > 0 || len(f.openers) > 0
}

// judge applies the ledger rules to b against set. A nil error with Store means
// that it may follow; then the set after it is returned too.
func (r *Receiver) judge(f *recvFlow, set wire.Ranges, b *recvBlock) (Verdict, wire.Ranges, *wire.SessionError) {
	if len(set) > 0 && set[0].First < b.base || f.base != 0 && f.base != b.base {
		return Partial, nil, &wire.SessionError{
			Code:   wire.CodeProtocol,
			Detail: fmt.Sprintf("%s: base %d contradicts what was received (%.200s)", f.flow, b.base, set),
		}
	}
	h := wire.Header{Flow: f.flow, Base: b.base, First: b.header.First, Count: b.header.Len()}
	v := r.cfg.Judge(set, &h, b.s.fifo)
	switch v {
	case Partial:
		return v, nil, &wire.SessionError{
			Code:   wire.CodePartial,
			Detail: fmt.Sprintf("%s: %s is partly received", f.flow, b.header),
		}
	case Early:
		return v, nil, &wire.SessionError{
			Code:   wire.CodeEarly,
			Detail: fmt.Sprintf("%s: %s comes before %d", f.flow, b.header, next(set, b.base)),
		}
	case Store:
		after := set.Add(b.header)
		if len(after) > wire.MaxRanges {
			return Early, nil, &wire.SessionError{
				Code:   wire.CodeEarly,
				Detail: fmt.Sprintf("%s: %s would leave more than %d gaps", f.flow, b.header, wire.MaxRanges-1),
			}
		}
		return v, after, nil
	}
	return v, nil, nil
}

// arrive takes a block in: it is judged against everything that is received or
// on its way, or as soon as that is known.
func (r *Receiver) arrive(f *recvFlow, b *recvBlock) {
	if f.known && !f.busy() && r.now.Sub(f.used) >= r.cfg.Stale {
		f.known = false
	}
	f.used = r.now
	if !f.known {
		r.enqueue(f, b)
		r.refresh(f)
		return
	}
	switch v, after, err := r.judge(f, f.coming, b); {
	case err != nil:
		r.refuse(f, b, err)
	case v == Received:
		// If it is not received but on its way, the commit will tell the session.
		r.do(DoCount{Device: f.device.id, What: CountDuplicate})
		if f.received.Contains(b.header) {
			r.tell(b.s.byFlow[f.flow])
		}
	default:
		f.coming = after
		r.enqueue(f, b)
	}
}

// refuse ends the session of a block that the rules forbid, and tells it first
// what is received.
func (r *Receiver) refuse(f *recvFlow, b *recvBlock, err *wire.SessionError) {
	if a := b.s.byFlow[f.flow]; a != nil && !b.s.ended && f.known {
		r.tell(a)
	}
	r.end(b.s, err.Code, err.Detail)
}

func (r *Receiver) enqueue(f *recvFlow, b *recvBlock) {
	b.s.queued += b.sent
	b.s.blocks++
	f.device.queued += heldBy(len(b.data))
	r.queued += heldBy(len(b.data))
	f.queue = append(f.queue, b)
	r.offer(f)
}

// settle undoes the accounting of enqueue.
func (r *Receiver) settle(f *recvFlow, b *recvBlock) {
	b.s.queued -= b.sent
	b.s.blocks--
	f.device.queued -= heldBy(len(b.data))
	r.queued -= heldBy(len(b.data))
}

// refresh reads the flow's state, unless something is under way that will tell
// it, or a retry is due later.
func (r *Receiver) refresh(f *recvFlow) {
	if f.batch != nil || f.reading != 0 || f.retrying {
		return
	}
	f.reading = r.nextID()
	r.reads[f.reading] = f
	r.do(DoRead{f.reading, f.device.id, f.flow})
}

func (r *Receiver) read(ev RecvRead) {
	f := r.reads[ev.Read]
	if f == nil {
		return
	}
	delete(r.reads, ev.Read)
	f.reading = 0
	f.unread = ev.Err != nil
	if f.unread {
		f.known = false
		r.fail(f)
		r.later(f, max(backoff(f.failures), firstBackoff))
		return
	}
	if r.downReads {
		r.downUntil = time.Time{}
	}
	moved := !f.known || f.last != ev.Last
	if f.suspect && f.last != ev.Last {
		f.device.aloneUntil = r.now.Add(r.cfg.Alone)
		f.failures = 0 // it was not the ledger
	}
	f.suspect = false
	changed := !slices.Equal(f.received, ev.Received)
	f.known, f.last, f.received, f.used = true, ev.Last, ev.Received, r.now
	if changed {
		r.tellAll(f)
	}
	if moved {
		r.rejudge(f)
	}
	if changed || len(f.queue) == 0 {
		f.failures = 0
	}
	r.resume(f)
}

// rejudge applies the rules to what waits, in order, against the state just read.
func (r *Receiver) rejudge(f *recvFlow) {
	waiting := f.queue
	f.queue, f.coming = nil, f.received
	var refused *wire.SessionError
	for _, b := range waiting {
		v, after, err := r.judge(f, f.coming, b)
		if err == nil && v == Store {
			f.coming = after
			f.queue = append(f.queue, b)
			continue
		}
		r.settle(f, b)
		if err != nil {
			r.refuse(f, b, err)
			refused = err
			continue
		}
		if b.unsure {
			r.do(DoCount{Device: f.device.id, What: CountFound, Messages: b.messages()})
		} else {
			r.do(DoCount{Device: f.device.id, What: CountDuplicate})
		}
		if a := b.s.byFlow[f.flow]; a != nil && f.received.Contains(b.header) {
			r.tell(a)
		}
	}
	if refused != nil {
		r.endSenders(f, refused.Code, refused.Detail)
	}
}

// endSenders ends every session that sent a block of f: one that was dropped may
// have been the reason to drop theirs as a duplicate.
func (r *Receiver) endSenders(f *recvFlow, code, detail string) {
	for _, a := range slices.Clone(f.attached) {
		if a.sent {
			r.end(a.s, code, detail)
		}
	}
}

// tellAll puts the received set into the next ack of every session concerned.
func (r *Receiver) tellAll(f *recvFlow) {
	for _, a := range f.attached {
		r.tell(a)
	}
}

// resume goes on with a flow whose state is known.
func (r *Receiver) resume(f *recvFlow) {
	waiting := f.openers
	f.openers = nil
	for _, s := range waiting {
		if s.waiting--; s.waiting == 0 {
			r.opened(s)
		}
	}
	r.offer(f)
	r.release(f)
}

// release forgets a flow that nobody is interested in; the next block reads it again.
func (r *Receiver) release(f *recvFlow) {
	if len(f.attached) == 0 && !f.busy() && !f.retrying && f.device.flows[f.flow] == f {
		delete(f.device.flows, f.flow)
	}
}
