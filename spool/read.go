package spool

import (
	"errors"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// flowState is what is known of one flow. Guarded by Spool.mu.
type flowState struct {
	wire.Flow
	base, last uint64      // last: highest sequence that was ever durable
	received   wire.Ranges // by the hub, since this start
	lost       wire.Ranges // by damage; read as voids
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
	note := func(rs wire.Ranges) bool {
		for _, r := range rs {
			if m := fl.received.Missing(r); len(m) > 0 {
				if !ok || m[0].First < seq {
					seq, ok = m[0].First, true
				}
				return true
			}
		}
		return false
	}
	note(fl.lost)
	for _, g := range fl.segs {
		if p := partOf(g.parts, fl.Flow); p != nil && note(p.ranges) {
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
	if s.closed {
		s.mu.RUnlock()
		return nil, false, ErrClosed
	}
	fl := s.flows[f]
	g, seq, lost := fl.locate(from)
	if g == nil {
		defer s.mu.RUnlock()
		if lost.First == 0 {
			return nil, false, ErrEnd
		}
		data, err = s.lostVoid(fl, lost)
		return data, false, err
	}
	r, found, open := g.find(f, seq)
	if found {
		if data := s.tail.get(f, r); data != nil {
			s.mu.RUnlock()
			return data, false, s.fault("read:block")
		}
	}
	held := g.use.TryRLock() // never waited for under mu
	s.mu.RUnlock()
	if !held {
		g.use.RLock()
		//lint:ignore SA2001 it is being opened, sealed or removed: only the wait counts
		g.use.RUnlock()
		return nil, true, nil
	}
	if g.src == nil || !open {
		g.use.RUnlock()
		return nil, true, s.tryOpen(g)
	}
	g.lastRead.Store(time.Now().UnixNano())
	err = s.fault("read:block")
	if err == nil {
		data, err = g.get(f, r)
	}
	g.use.RUnlock()
	if ce := (*CorruptError)(nil); errors.As(err, &ce) {
		return nil, true, s.damaged(g, f, r, err)
	}
	return data, false, err
}

// locate finds where the lowest sequence ≥ from is: in a segment, or in a
// range that was lost.
func (fl *flowState) locate(from uint64) (g *segment, seq uint64, lost wire.Range) {
	if fl == nil {
		return nil, 0, lost
	}
	for _, c := range fl.segs {
		if p := partOf(c.parts, fl.Flow); p != nil {
			if at, ok := lowest(p.ranges, from); ok && (g == nil || at < seq) {
				g, seq = c, at
			}
		}
	}
	for _, r := range fl.lost {
		if r.Last >= from {
			if g == nil || max(r.First, from) < seq {
				return nil, 0, r
			}
			break
		}
	}
	return g, seq, lost
}

// lostVoid is the block that stands for a range which damage took.
func (s *Spool) lostVoid(fl *flowState, r wire.Range) ([]byte, error) {
	return wire.AppendVoid(nil, wire.Header{Flow: fl.Flow, Kind: wire.KindVoid, Reason: wire.ReasonQuarantine,
		Base: fl.base, First: r.First, Count: r.Len(), Accepted: s.cfg.Now().UnixMilli()})
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
