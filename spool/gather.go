package spool

import (
	"bytes"
	"fmt"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// fill takes requests into g until the queue is empty or g is full. While the
// committer has nothing to do, half of a long queue is enough: the other half is
// encoded while the first is written.
func (l *lane) fill(g *group) {
	most := maxGroup
	if !l.busy {
		most = min(most, max(l.s.cfg.BlockBytes, (g.bytes+l.waiting())/2))
	}
	for !g.full {
		r := l.peek()
		switch {
		case r == nil:
			return
		case len(g.requests) > 0 && (g.bytes+r.bytes > most || r.alone || g.solo):
			g.full = true
			return
		}
		copies, other := l.recognise(g, r)
		switch {
		case other != nil && len(g.requests) > 0:
			g.full = true
		case other != nil:
			l.waitFor(other)
		case copies != nil && len(g.requests) == 0:
			l.pop()
			r.done(*copies, nil)
		case l.roomFor(g, r):
			l.take(g, r)
		}
	}
}

// recognise returns the answer to a request of which everything is durable
// already, or a group other than g that is still committing one of its messages.
func (l *lane) recognise(g *group, r *request) (copies *Receipt, other *group) {
	rc, fresh := Receipt{}, false
	for i := range r.msgs {
		if r.msgs[i].ID == "" {
			fresh = true
			continue
		}
		st := l.s.ids.lookup(hashID(r.msgs[i].ID), l.s.clock())
		switch {
		case st.group != nil && st.group != g:
			return nil, st.group
		case st.known && st.group == nil:
			rc.duplicate(st.flow, st.seq)
		default:
			fresh = true
		}
	}
	if fresh {
		return nil, nil
	}
	rc.onlyCopies()
	return &rc, nil
}

// waitFor returns when other is answered. Nothing is held meanwhile: no number,
// no id, so two lanes can wait for each other's groups without a deadlock.
func (l *lane) waitFor(other *group) {
	for {
		select {
		case <-other.done:
			return
		case <-l.idle:
			l.busy = false
		}
	}
}

// roomFor makes sure that a head has room for r in g before r is numbered. It
// is false if g must be committed first, or r was refused and answered.
func (l *lane) roomFor(g *group, r *request) bool {
	// A large request gets larger blocks, so that it fits one transaction. Two
	// blocks that follow each other are larger than blockSize together.
	g.blockSize = max(g.blockSize, r.bytes/8+1)
	total := g.bytes + r.bytes
	blocks, bytes := 2*total/g.blockSize+1, bound(total)
	fits := int64(blocks+1)*threshold <= l.s.geo.maxTxn() || len(g.requests) == 0
	if fits && l.usable() && l.fitsBeside(bytes, blocks+1) && !l.better(g) { // one for a void
		return true
	}
	if len(g.requests) > 0 {
		g.full = true
		return false
	}
	l.drain()
	if l.holds() { // it goes to the old head; then look again
		if err := l.spill(); err != nil {
			l.pop()
			r.done(Receipt{}, err)
		}
		return false
	}
	if err := l.newHead(bytes); err != nil {
		l.pop()
		r.done(Receipt{}, err)
		return false
	}
	return true
}

// better reports whether a group is better begun in the next head, which is
// open already: this one would fill with ever smaller groups, as its rest is
// compared with what they take uncompressed.
func (l *lane) better(g *group) bool {
	if len(g.requests) > 0 || l.head.room(min(bound(l.waiting()), l.s.geo.bytes/8), 1) {
		return false
	}
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	return l.s.spare != nil
}

// bound is what messages take when they do not compress at all.
func bound(bytes int) int64 { return int64(bytes) + int64(bytes)/64 + 8<<10 }

// usable reports whether the lane's head takes commits.
func (l *lane) usable() bool { return l.seg != nil && !l.seg.failed.Load() }

// take numbers r's messages and lets them join g. r stays in the queue if
// another lane was faster with one of its ids.
func (l *lane) take(g *group, r *request) {
	if err := l.beginFlow(); err != nil {
		l.pop()
		r.done(Receipt{}, err)
		return
	}
	if len(g.requests) == 0 {
		g.flow, g.base, g.seg = l.flow, l.base, l.seg
		g.first, g.next, g.coded = l.next, l.next, l.next
	}
	states, other := l.claim(g, r)
	if other != nil {
		return
	}
	l.pop()
	g.requests = append(g.requests, r)
	g.solo = r.alone
	g.bytes += r.bytes
	rc := Receipt{Flow: g.flow}
	for i := range r.msgs {
		if states != nil && states[i].known {
			rc.duplicate(states[i].flow, states[i].seq)
			continue
		}
		if rc.Accepted == 0 {
			rc.First = g.next
		}
		rc.Last = g.next
		rc.Accepted++
		g.next++
		l.put(g, &r.msgs[i])
	}
	if rc.Accepted == 0 {
		rc.onlyCopies()
	}
	r.receipt = rc
	l.next = g.next
}

// claim takes the ids of r for g; nothing to do if it has none.
func (l *lane) claim(g *group, r *request) ([]idState, *group) {
	var keys []idKey
	for i := range r.msgs {
		if id := r.msgs[i].ID; id != "" {
			if keys == nil {
				keys = make([]idKey, len(r.msgs))
			}
			keys[i] = hashID(id)
		}
	}
	if keys == nil {
		return nil, nil
	}
	return l.s.ids.claim(keys, g, g.next, l.s.clock())
}

// put adds a message to the open block. A block that it does not fit is closed
// before.
func (l *lane) put(g *group, m *wire.Message) {
	size := m.Size() + messageCost
	if len(l.open) > 0 && (l.openBytes+size > g.blockSize || len(l.open) == wire.MaxCount) {
		l.encode(g)
	}
	l.open = append(l.open, *m)
	l.openBytes += size
	g.messages++
}

// encode closes the open block.
func (l *lane) encode(g *group) {
	if len(l.open) == 0 {
		return
	}
	b := wire.Block{Messages: l.open}
	b.Kind, b.Flow, b.Base = wire.KindMessages, g.flow, g.base
	b.First, b.Count = g.coded, uint64(len(l.open))
	b.Accepted = l.s.time.stamp()
	data, err := l.encoder().Append(l.scratch[:0], &b)
	if err != nil && g.err == nil {
		g.err = err
	}
	g.records = append(g.records, record{flow: g.flow, Range: b.Range(), data: bytes.Clone(data), accepted: b.Accepted, ttl: ttlOf(&b)})
	g.coded += b.Count
	clear(l.open)
	l.open, l.openBytes, l.scratch = l.open[:0], 0, data
	if cap(l.open) > 8192 || cap(l.scratch) > 1<<20 { // after a rare large one
		l.open, l.scratch = nil, nil
	}
}

// encoder is made when the lane is first used: it holds about 2 MB.
func (l *lane) encoder() *wire.Encoder {
	if l.enc == nil {
		l.enc = wire.NewEncoder(wire.Fast)
	}
	return l.enc
}

// hand gives g to the committer, as soon as that has finished the one before.
func (l *lane) hand(g *group) {
	if len(g.requests) == 0 {
		return
	}
	l.expect(len(g.requests))
	l.encode(g)
	if g.err != nil {
		l.undo(g)
		return
	}
	l.drain()
	if g.messages == 0 { // duplicates only, of messages in this very group: cannot be
		g.answer(nil)
		return
	}
	if l.keep(g) {
		return
	}
	if l.holds() {
		if err := l.spill(); err != nil {
			l.fail(g, err)
			return
		}
	}
	if l.seg != g.seg || !l.usable() { // the commit before failed and took the head with it
		if err := l.newHead(bound(g.bytes)); err != nil {
			l.fail(g, err)
			return
		}
		g.seg = l.seg
	}
	l.head.take(g.records)
	if l.head.halfFull() {
		l.s.keeper.wantSpare()
	}
	l.busy = true
	l.commits <- g
}

// drain waits until the committer has nothing in hand.
func (l *lane) drain() {
	if l.busy {
		<-l.idle
		l.busy = false
	}
}

// undo takes back a group that could not be encoded. None of its numbers was
// seen by anybody. Its requests come again one by one, so that only the one
// that spoils its block is refused.
func (l *lane) undo(g *group) {
	l.next = g.first
	l.s.ids.finish(g, false, 0)
	close(g.done)
	if len(g.requests) == 1 {
		g.requests[0].done(Receipt{}, fmt.Errorf("%w: %w", ErrInvalid, g.err))
		return
	}
	for _, r := range g.requests {
		r.alone = true
	}
	l.unpop(g.requests)
}

// beginFlow starts this run's flow of the lane, and the run's epoch if this is
// its first message.
func (l *lane) beginFlow() error {
	if l.base != 0 {
		return nil
	}
	epoch, err := l.s.beginEpoch()
	if err != nil {
		return err
	}
	l.flow, l.base = wire.Flow{Epoch: epoch, Lane: l.name}, l.next
	l.s.mu.Lock()
	l.s.flow(l.flow).base = l.base
	l.s.mu.Unlock()
	l.noteBegun()
	return nil
}
