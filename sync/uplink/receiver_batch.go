package uplink

import (
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	firstBackoff = 250 * time.Millisecond
	maxBackoff   = 5 * time.Second
	leastPiece   = 8 << 10 // a ledger that does not even take this is not cut for
)

// recvBatch is blocks on their way into the ledger.
type recvBatch struct {
	parts  []batchPart
	blocks int
	pieces int // messages of the ledger
	bytes  int
	lone   *recvDevice // the only one, if it is committed alone
}

// batchPart is the blocks of one flow, in order.
type batchPart struct {
	f      *recvFlow
	blocks []*recvBlock
}

// readyList is flows with blocks to commit, in the order in which they became
// ready. A flow may have ceased to be ready while it waits here.
type readyList struct{ flows []*recvFlow }

func (l *readyList) push(f *recvFlow) { l.flows = append(l.flows, f) }

func (l *readyList) pop() {
	l.flows[0] = nil
	l.flows = l.flows[1:]
}

// since is when the first flow became ready.
func (l *readyList) since() time.Time { return l.flows[0].readyAt }

// offer queues a flow for the next batch, if it has blocks that may go.
func (r *Receiver) offer(f *recvFlow) {
	if f.inReady || !f.mayCommit() {
		return
	}
	f.inReady, f.readyAt = true, r.now
	if r.alone(f.device) {
		r.lone.push(f)
	} else {
		r.ready.push(f)
	}
}

func (f *recvFlow) mayCommit() bool {
	return len(f.queue) > 0 && f.known && f.batch == nil && f.reading == 0 && !f.retrying
}

func (r *Receiver) alone(d *recvDevice) bool { return r.now.Before(d.aloneUntil) }

// fill starts batches. Devices that are committed alone get at most half of them.
func (r *Receiver) fill() {
	for len(r.batches) < r.cfg.MaxBatches && r.loneNow < max(1, r.cfg.MaxBatches/2) && r.commit(&r.lone) {
	}
	for len(r.batches) < r.cfg.MaxBatches && r.worthwhile() && r.commit(&r.ready) {
	}
}

// worthwhile reports whether another batch should start now. Every batch costs
// an fsync: while one is under way, a small one gathers more instead.
func (r *Receiver) worthwhile() bool {
	if len(r.ready.flows) == 0 {
		return false
	}
	if len(r.batches) == 0 || r.now.Sub(r.ready.since()) >= r.cfg.MaxBatchWait {
		return true
	}
	blocks, bytes := 0, 0
	for _, f := range r.ready.flows {
		blocks += len(f.queue)
		for _, b := range f.queue {
			if bytes += len(b.data); bytes >= r.cfg.EarlyBytes {
				return true
			}
		}
		if blocks >= r.cfg.EarlyBlocks {
			return true
		}
	}
	return false
}

// commit takes one batch from the list; it reports whether there was one.
func (r *Receiver) commit(list *readyList) bool {
	b := &recvBatch{}
	for len(list.flows) > 0 {
		f := list.flows[0]
		switch {
		case !f.mayCommit():
			list.pop()
			f.inReady = false
			continue
		case list == &r.ready && r.alone(f.device):
			list.pop()
			r.lone.push(f)
			continue
		}
		if b.lone != nil && b.lone != f.device || f.single && b.blocks > 0 || !r.take(b, f) {
			break
		}
		if list == &r.lone {
			b.lone = f.device
		}
		list.pop()
		f.inReady = false
		if f.single {
			break
		}
	}
	if b.blocks == 0 {
		return false
	}
	if b.lone != nil {
		r.loneNow++
	}
	id := r.nextID()
	r.batches[id] = b
	r.do(DoCommit{id, b.ledger()})
	return true
}

// take moves what fits of a flow's queue into b, and reports whether anything did.
func (r *Receiver) take(b *recvBatch, f *recvFlow) bool {
	n, limit, set := 0, len(f.queue), f.received
	if f.single {
		limit = 1
	}
	for n < limit {
		size, pieces := len(f.queue[n].data), r.pieces(f.queue[n])
		if b.blocks > 0 && (b.bytes+size > r.cfg.BatchBytes || b.pieces+pieces > r.cfg.BatchBlocks) {
			break
		}
		b.bytes += size
		b.pieces += pieces
		set = set.Add(f.queue[n].header)
		f.queue[n].pieces, f.queue[n].after = pieces, set
		b.blocks++
		n++
	}
	if n == 0 {
		return false
	}
	b.parts = append(b.parts, batchPart{f, f.queue[:n:n]})
	f.queue, f.batch = f.queue[n:], b
	return true
}

// pieces is how many messages of the ledger a block takes.
func (r *Receiver) pieces(b *recvBlock) int {
	return max((len(b.data)+r.cfg.MaxBlock-1)/r.cfg.MaxBlock, 1)
}

// ledger lists the batch's blocks: the first of each flow is guarded, the others
// follow it without a gap.
func (b *recvBatch) ledger() []LedgerBlock {
	out := make([]LedgerBlock, 0, b.blocks)
	for _, p := range b.parts {
		for i, q := range p.blocks {
			m := LedgerBlock{
				Device: p.f.device.id, Flow: p.f.flow, Range: q.header, Void: q.void, Blanked: q.blanked, Backfill: q.backfill,
				Data: q.data, Pieces: q.pieces, Received: q.after, Arrived: q.arrived,
			}
			if i == 0 {
				m.Guarded, m.Guard = true, p.f.last
			}
			out = append(out, m)
		}
	}
	return out
}

// smaller makes the pieces smaller that blocks are cut to; false: they cannot be.
func (r *Receiver) smaller(b *recvBatch) bool {
	size := 0
	for _, p := range b.parts {
		p.f.failures = 0
		for _, q := range p.blocks {
			size = max(size, (len(q.data)+q.pieces-1)/q.pieces)
		}
	}
	// Another batch may have found out before.
	r.cfg.MaxBlock = min(r.cfg.MaxBlock, max(size/2, leastPiece))
	return size > leastPiece
}

// done takes in how a batch ended. Unless it is stored, nothing is assumed:
// every flow in it is read again, and judged by what the ledger says.
func (r *Receiver) done(ev RecvDone) {
	b := r.batches[ev.Batch]
	if b == nil {
		return
	}
	delete(r.batches, ev.Batch)
	if b.lone != nil {
		r.loneNow--
	}
	if ev.Outcome == OutcomeStored && ev.Last < uint64(b.pieces) {
		ev.Outcome = OutcomeUnknown // an answer that cannot be
	}
	if ev.Outcome == OutcomeTooLarge && r.smaller(b) {
		ev.Outcome = OutcomeGuard // as if it had not been sent
	}
	seq := ev.Last - uint64(b.pieces)
	for _, p := range b.parts {
		p.f.batch = nil
		switch ev.Outcome {
		case OutcomeStored:
		case OutcomeRefused, OutcomeTooLarge:
			r.refused(p, b.blocks == 1)
			continue
		default:
			r.undone(p, ev.Outcome)
			continue
		}
		for _, q := range p.blocks {
			seq += uint64(q.pieces)
		}
		r.stored(p, seq)
	}
	if ev.Outcome == OutcomeStored {
		r.downUntil = time.Time{}
	}
}

func (r *Receiver) stored(p batchPart, last uint64) {
	f := p.f
	for _, q := range p.blocks {
		r.settle(f, q)
	}
	q := p.blocks[len(p.blocks)-1]
	f.last, f.received, f.base = last, q.after, q.base
	f.used, f.failures, f.single = r.now, 0, false
	r.tellAll(f)
	r.resume(f)
}

func (r *Receiver) undone(p batchPart, how Outcome) {
	f := p.f
	for _, b := range p.blocks {
		b.unsure = b.unsure || how == OutcomeUnknown
	}
	f.queue = slices.Concat(p.blocks, f.queue)
	f.known, f.suspect = false, how == OutcomeGuard
	r.fail(f)
	if r.now.Sub(f.failing) >= r.cfg.Unavailable {
		r.abandon(f)
		return
	}
	wait := backoff(f.failures)
	if how == OutcomeFull {
		wait = max(wait, firstBackoff)
	}
	if wait > 0 {
		r.later(f, wait)
		return
	}
	r.refresh(f)
}

// refused deals with a batch that will never be taken: its flows go alone and
// block by block until the culprit is found, which is not stored.
func (r *Receiver) refused(p batchPart, found bool) {
	f := p.f
	f.device.aloneUntil, f.single = r.now.Add(r.cfg.Alone), true
	f.queue, f.known = slices.Concat(p.blocks, f.queue), false
	if found {
		b := f.queue[0]
		f.queue = f.queue[1:]
		r.settle(f, b)
		detail := fmt.Sprintf("%s: the ledger does not take %s", f.flow, b.header)
		r.end(b.s, wire.CodeRefused, detail)
		r.endSenders(f, wire.CodeRefused, detail)
	}
	r.refresh(f)
}

// backoff is how long to wait after n failures in a row. The first is forgiven.
func backoff(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	return min(firstBackoff<<min(n-2, 10), maxBackoff)
}

func (r *Receiver) fail(f *recvFlow) {
	if f.failures == 0 {
		f.failing = r.now
	}
	f.failures++
	if !f.troubled {
		f.troubled = true
		r.troubled = append(r.troubled, f)
	}
}

// later leaves the flow alone for a while.
func (r *Receiver) later(f *recvFlow, wait time.Duration) {
	f.retryAt = r.now.Add(wait)
	if !f.retrying {
		f.retrying = true
		r.retries = append(r.retries, f)
	}
}

// retry goes on with flows whose wait is over.
func (r *Receiver) retry() {
	r.retries = slices.DeleteFunc(r.retries, func(f *recvFlow) bool {
		if r.now.Before(f.retryAt) {
			return false
		}
		f.retrying = false
		if f.known && len(f.openers) == 0 {
			r.offer(f)
		} else if f.busy() {
			r.refresh(f)
		}
		r.release(f)
		return true
	})
}

// giveUp ends what waited too long for a ledger that fails.
func (r *Receiver) giveUp() {
	r.troubled = slices.DeleteFunc(r.troubled, func(f *recvFlow) bool {
		if f.batch == nil && f.failures > 0 && r.now.Sub(f.failing) >= r.cfg.Unavailable {
			r.abandon(f)
		}
		f.troubled = f.failures > 0 && f.busy()
		return !f.troubled
	})
}

// abandon drops the blocks that wait in f, and with them the sessions that count
// on them: nothing was acked, their agents send again.
func (r *Receiver) abandon(f *recvFlow) {
	r.failing(f.unread)
	for _, b := range f.queue {
		r.settle(f, b)
	}
	f.queue, f.known, f.coming = nil, false, nil
	f.failures = 0
	r.endSenders(f, wire.CodeUnavailable, "the hub cannot store at present")
	r.release(f)
}
