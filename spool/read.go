package spool

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// flowState is what is known of one flow. Guarded by Spool.mu.
type flowState struct {
	wire.Flow
	base, last uint64      // last: highest sequence that was ever durable
	received   wire.Ranges // by the hub, since this start
	removals               // what will never come; read as voids and blanks
	removed    wire.Ranges // whose segments were removed
	untold     bool        // removed is not known: an earlier version wrote the meta file
	segs       []*segment  // that hold a part, in order of sequences
	waiters    []waiter
}

// flow returns the state of f, made if need be. mu is held.
func (s *Spool) flow(f wire.Flow) *flowState {
	fl := s.flows[f]
	if fl == nil {
		fl = &flowState{Flow: f}
		s.flows[f] = fl
	}
	return fl
}

// Flows lists what is still held and not received, in sending order: lanes by
// urgency, in each lane older epochs first.
func (s *Spool) Flows() []wire.FlowHeld {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []wire.FlowHeld
	for l := range wire.Lane(wire.NumLanes) {
		for _, e := range s.epochs {
			fl := s.flows[wire.Flow{Epoch: e, Lane: l}]
			if fl == nil {
				continue
			}
			if first, ok := fl.firstHeld(); ok {
				out = append(out, wire.FlowHeld{Flow: fl.Flow, Base: fl.base, First: first, Last: fl.last})
			}
		}
	}
	return out
}

// firstHeld is the lowest sequence that the hub still has to get.
func (fl *flowState) firstHeld() (seq uint64, ok bool) {
	note := func(r wire.Range) bool {
		m := fl.received.Missing(r)
		if len(m) > 0 && (!ok || m[0].First < seq) {
			seq, ok = m[0].First, true
		}
		return len(m) > 0
	}
	for _, g := range fl.gone {
		if g.reason != 0 && note(g.Range) {
			break
		}
	}
	for _, g := range fl.segs {
		if p := partOf(g.parts, fl.Flow); p != nil && slices.ContainsFunc(p.ranges, note) {
			break
		}
	}
	return seq, ok
}

// Read returns the encoded block that holds the lowest sequence ≥ from that is
// held, or ErrEnd. The caller must not change it.
func (s *Spool) Read(f wire.Flow, from uint64) ([]byte, error) {
	for range 1000 { // each turn but the last opened, waited or put something aside
		data, again, err := s.tryRead(f, from)
		if !again || err != nil {
			return data, err
		}
	}
	return nil, fmt.Errorf("%w: %s from %d: the segments change faster than they can be read", ErrDiskFault, f, from)
}

func (s *Spool) tryRead(f wire.Flow, from uint64) (data []byte, again bool, err error) {
	s.mu.RLock()
	closed := s.closed
	g, seq, gone := s.flows[f].locate(from)
	s.mu.RUnlock()
	switch {
	case closed:
		return nil, false, ErrClosed
	case gone:
		data, err = s.handVoid(f, seq)
		return data, data == nil, err
	case g == nil:
		return nil, false, ErrEnd
	}
	r, data, again, err := s.tryFetch(g, f, seq)
	if data != nil && err == nil {
		data, err = s.handOut(f, r, seq, data)
		again = data == nil
	}
	return data, again, err
}

// tryFetch reads the block of g that holds the lowest sequence of f ≥ seq.
// again: something had to be done first, or the segment has left.
func (s *Spool) tryFetch(g *segment, f wire.Flow, seq uint64) (r wire.Range, data []byte, again bool, err error) {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return r, nil, false, ErrClosed
	}
	if g.memory != nil {
		rec := g.memory.get(seq)
		s.mu.RUnlock()
		return rec.Range, rec.data, rec.data == nil, s.fault("read:block")
	}
	r, found, open := g.find(f, seq)
	if found {
		if data := s.tail.get(f, r); data != nil {
			s.mu.RUnlock()
			return r, data, false, s.fault("read:block")
		}
	}
	held := g.use.TryRLock() // never waited for under mu
	s.mu.RUnlock()
	if !held {
		g.use.RLock()
		//lint:ignore SA2001 it is being opened, sealed or removed: only the wait counts
		g.use.RUnlock()
		return r, nil, true, nil
	}
	if g.src == nil || !open {
		g.use.RUnlock()
		return r, nil, true, s.tryOpen(g)
	}
	if !found {
		g.use.RUnlock()
		return r, nil, true, nil
	}
	g.lastRead.Store(time.Now().UnixNano())
	err = s.fault("read:block")
	if err == nil {
		data, err = g.get(f, r)
	}
	g.use.RUnlock()
	if ce := (*CorruptError)(nil); errors.As(err, &ce) {
		return r, nil, true, s.damaged(g, f, r, err)
	}
	return r, data, false, err
}

// locate finds where the lowest sequence ≥ from is: in a segment, or among what
// is gone.
func (fl *flowState) locate(from uint64) (g *segment, seq uint64, gone bool) {
	if fl == nil {
		return nil, 0, false
	}
	for {
		g, seq = nil, 0
		for _, c := range fl.segs {
			if p := partOf(c.parts, fl.Flow); p != nil {
				if at, ok := lowest(p.ranges, from); ok && (g == nil || at < seq) {
					g, seq = c, at
				}
			}
		}
		if lost, ok := fl.gone.at(from); ok && (g == nil || max(lost.First, from) <= seq) {
			return nil, max(lost.First, from), true
		}
		mixed, ok := fl.gone.holds(seq)
		if g == nil || !ok || mixed.reason != 0 {
			return g, seq, false
		}
		from = mixed.Last + 1 // removed in part and left by its segment, which is back from the dead
	}
}

// tryOpen opens a sealed segment; a damaged one is put aside.
func (s *Spool) tryOpen(g *segment) error {
	err := s.openSealed(g)
	if err == nil {
		s.opened(g)
		return nil
	}
	if ce := (*CorruptError)(nil); errors.As(err, &ce) {
		return s.damaged(g, wire.Flow{}, wire.Range{}, err)
	}
	return err
}
