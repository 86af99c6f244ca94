package agent

import (
	"context"
	"errors"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// grouping collects the publishes of one read of a connection, so that those
// which can share an answer cost one call of the spool.
type grouping struct {
	f    *frameConn
	now  time.Time
	open *group // nil: none
}

// group is publishes of consecutive numbers for one lane. It is reused.
type group struct {
	f      *frameConn
	chunk  *chunk // holds the payloads
	began  time.Time
	first  uint64 // number of the first publish
	lane   wire.Lane
	memory bool // was answered when it was handed over
	hub    time.Duration
	msgs   []wire.Message
	done   func(spool.Receipt, *problem) // g.settle, made once
}

// maxGroup bounds the messages of a group: the size of a block, roughly.
const maxGroup = 1024

func (a *Agent) newGroup() *group {
	if g := a.frames.spareGroups.get(); g != nil {
		return g
	}
	g := &group{}
	g.done = g.settle
	return g
}

// add appends one publish, or answers why not.
func (gs *grouping) add(pub *frame.View) {
	m, lane, p := gs.f.message(pub, gs.now)
	if p != nil {
		gs.submit()
		gs.f.refuse(gs.f.count, 1, p)
		gs.f.await() // a flood of what is refused does not fill memory with answers
		return
	}
	// The spool answers a call with one receipt: a message whose id may have been
	// seen, or that waits for the hub, goes alone.
	alone := m.ID != "" || pub.Hub > 0
	if g := gs.open; g != nil && (alone || g.lane != lane || g.memory != pub.Memory || len(g.msgs) == maxGroup) {
		gs.submit()
	}
	if gs.open == nil {
		g := gs.f.a.newGroup()
		g.f, g.chunk, g.began, g.first = gs.f, gs.f.in.hold(), gs.now, gs.f.count
		g.lane, g.memory, g.hub = lane, pub.Memory, time.Duration(pub.Hub)*time.Millisecond
		gs.open = g
	}
	gs.open.msgs = append(gs.open.msgs, m)
	if alone {
		gs.submit()
	}
}

// message makes a message of a publish; its payload still aliases the input.
func (f *frameConn) message(pub *frame.View, now time.Time) (m wire.Message, lane wire.Lane, p *problem) {
	if m.Subject, p = f.subject(pub.Subject); p != nil {
		return m, 0, p
	}
	if p := f.a.checkPayload(len(pub.Payload)); p != nil {
		return m, 0, p
	}
	m.Payload = pub.Payload
	switch lane = wire.Lane(pub.Lane); {
	case !pub.HasLane:
		lane = f.a.lane(m.Subject)
	case !lane.Valid():
		return m, 0, newProblem(codeBadLane, "%s is not one of urgent, normal, bulk", lane)
	}
	if len(pub.ID) > 0 {
		m.ID = string(pub.ID)
		if p := checkID(m.ID); p != nil {
			return m, 0, p
		}
	}
	if pub.TTL > wire.MaxTTL {
		return m, 0, newProblem(codeBadTTL, "ttl of %d ms; at most %d are allowed", pub.TTL, int64(wire.MaxTTL))
	}
	m.TTL = int64(pub.TTL)
	if m.Time = now.UnixMilli(); pub.HasTime {
		m.Time = pub.Time
	}
	if m.Time < wire.MinTime || m.Time > wire.MaxTime {
		return m, 0, newProblem(codeBadHeader, "time of %d ms is not in the years 1 to 9999", m.Time)
	}
	if pub.HeaderBytes() > 2*wire.MaxHeaders {
		return m, 0, newProblem(codeBadHeader, "headers are larger than %d bytes", wire.MaxHeaders)
	}
	for _, h := range pub.Headers() {
		m.Headers = append(m.Headers, wire.Pair(h))
	}
	if err := wire.CheckHeaders(m.Headers); err != nil {
		return m, 0, newProblem(codeBadHeader, "%v", err)
	}
	return m, lane, nil
}

// submit hands the open group to the spool.
func (gs *grouping) submit() {
	g := gs.open
	if g == nil {
		return
	}
	gs.open = nil
	f, n := g.f, len(g.msgs)
	// Waits for the spool only, which answers for those before.
	f.a.frames.messages.wait(context.Background(), int64(n))
	f.mu.Lock()
	f.pending += n
	f.mu.Unlock()
	if g.memory && f.a.trouble() != nil {
		g.memory = false // answer what comes of it
	}
	first, lane, memory := g.first, g.lane, g.memory
	if g.hub > 0 {
		f.a.expectHub()
	}
	if p := f.a.submit(g.lane, g.msgs, g.done); p != nil {
		f.refuse(first, n, p)
		f.a.frames.messages.give(int64(n))
		g.free()
		f.settled(n)
		return
	}
	if memory {
		f.answer(func(out []byte) []byte {
			return frame.AppendReceipt(out, frame.Receipt{First: first, Count: uint64(n), Memory: true, Lane: uint8(lane)})
		})
	}
}

// settle is called from the spool's commit loop.
func (g *group) settle(rc spool.Receipt, p *problem) {
	f, n, first := g.f, len(g.msgs), g.first
	switch {
	case g.memory:
		if p != nil {
			f.a.metrics.refused(p)
		}
	case p != nil:
		f.refuse(first, n, p)
	case g.hub > 0:
		f.awaitHub(first, rc, g.hub)
	default:
		f.a.metrics.duration.Update(time.Since(g.began).Seconds())
		f.receipt(first, n, rc, false)
	}
	f.a.frames.messages.give(int64(n))
	waitsForHub := g.hub > 0 && p == nil
	g.free()
	if !waitsForHub {
		f.settled(n)
	}
}

// free lets go of the messages and what they refer to.
func (g *group) free() {
	a := g.f.a
	g.chunk.drop(a)
	clear(g.msgs)
	g.f, g.chunk, g.msgs = nil, nil, g.msgs[:0]
	a.frames.spareGroups.put(g)
}

func (f *frameConn) receipt(first uint64, n int, rc spool.Receipt, hub bool) {
	f.answer(func(out []byte) []byte {
		return frame.AppendReceipt(out, frame.Receipt{
			First: first, Count: uint64(n), Duplicate: rc.Accepted == 0, Hub: hub,
			Lane: uint8(rc.Flow.Lane), Epoch: rc.Flow.Epoch, Seq: rc.First,
		})
	})
}

func (f *frameConn) refuse(first uint64, n int, p *problem) {
	f.a.metrics.refusals[p.code].Add(n)
	f.answer(func(out []byte) []byte {
		return frame.AppendError(out, frame.Error{First: first, Count: uint64(n), Code: p.code, Retry: uint64(p.retry()), Detail: p.detail})
	})
}

// awaitHub answers when the hub has the message, or cannot in time. It must not
// block: whoever cannot wait any more is told that it is on disk.
func (f *frameConn) awaitHub(first uint64, rc spool.Receipt, timeout time.Duration) {
	if !f.a.frames.hub.take(1) {
		f.receipt(first, 1, rc, false)
		f.settled(1)
		return
	}
	go func() { // finish waits for it: it is pending until settled
		err := f.a.waitDelivered(context.Background(), rc.Flow, rc.First, timeout)
		f.a.frames.hub.give(1)
		if errors.Is(err, spool.ErrRemoved) {
			f.refuse(first, 1, problemOf(err))
		} else {
			f.receipt(first, 1, rc, err == nil)
		}
		f.settled(1)
	}()
}
