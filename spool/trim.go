package spool

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Received tells that the hub has these sequences durably. Segments that hold
// nothing else are removed, soon. ErrUnknown: no epoch of this spool.
func (s *Spool) Received(f wire.Flow, set wire.Ranges) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	fl := s.flows[f]
	if fl == nil {
		s.mu.Unlock()
		return fmt.Errorf("%w: %s is not a flow of this spool", ErrUnknown, f)
	}
	for _, r := range set {
		if r.Last = min(r.Last, fl.last); r.First <= r.Last { // what was never assigned cannot be received
			fl.received = fl.received.Add(r)
		}
	}
	fl.wakeWaiters()
	work := slices.ContainsFunc(fl.segs, func(g *segment) bool { return g.sealed && s.covered(g) })
	s.mu.Unlock()
	if work {
		s.keeper.wantTrim()
	}
	return nil
}

// covered reports whether the hub needs nothing of g any more. mu is held.
func (s *Spool) covered(g *segment) bool {
	for _, p := range g.parts {
		fl := s.flows[p.flow]
		for _, r := range p.ranges {
			if fl == nil || !fl.received.Contains(r) {
				return false
			}
		}
	}
	return true
}

func (s *Spool) drained(g *segment) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.covered(g)
}

// trimDrained removes every sealed segment that is drained.
func (s *Spool) trimDrained() {
	s.mu.RLock()
	var out []*segment
	for _, g := range s.segments {
		if g.gone || g.sealed && s.covered(g) {
			out = append(out, g)
		}
	}
	s.mu.RUnlock()
	if len(out) == 0 {
		return
	}
	if err := s.remove(out); err != nil {
		s.cfg.Log.Error("spool: delivered segments could not be removed; trying again with the next", "segments", len(out), "error", err)
	}
}

// remove takes drained segments away. Before the first goes, the publisher ids
// that are still remembered and the numbers that were used are durable elsewhere.
func (s *Spool) remove(gs []*segment) error {
	return s.reserved(func() error { return s.removeNow(gs) })
}

func (s *Spool) removeNow(gs []*segment) error {
	s.noteRemoved(gs)
	err := s.step("trim:ids", func() error {
		for _, g := range gs {
			if err := s.keepIDs(g); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.step("trim:meta", s.saveMeta)
	}
	if err != nil {
		return err
	}
	s.detach(gs)
	for _, g := range gs {
		if err := s.discard(g); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.segments = slices.DeleteFunc(s.segments, func(g *segment) bool { return slices.Contains(gs, g) })
	s.mu.Unlock()
	s.measureRest()
	return s.fault("trim:done")
}

// noteRemoved writes down what leaves with the segments, so that it does not
// pass for lost at the next start.
func (s *Spool) noteRemoved(gs []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range gs {
		for _, p := range g.parts {
			if fl := s.flows[p.flow]; fl != nil {
				fl.removed = fl.removed.Union(p.ranges)
			}
		}
	}
}

// detach lets no reader find the segments any more.
func (s *Spool) detach(gs []*segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := func(g *segment) bool { return slices.Contains(gs, g) }
	for _, g := range gs {
		g.gone = true
		for _, p := range g.parts {
			if fl := s.flows[p.flow]; fl != nil {
				fl.segs = slices.DeleteFunc(fl.segs, of)
			}
		}
	}
	s.open = slices.DeleteFunc(s.open, of)
}

// discard removes the folder of a detached segment. The rename makes it atomic.
func (s *Spool) discard(g *segment) error {
	g.use.Lock() // the last reader has left
	defer g.use.Unlock()
	if err := s.closeDrained(g); err != nil {
		return err
	}
	trash := filepath.Join(s.cfg.Dir, fmt.Sprintf("%s%012d", trashPrefix, g.num))
	err := s.step("trim:rename", func() error { return os.Rename(g.dir, trash) })
	if os.IsNotExist(err) {
		err = nil // renamed by an attempt before
	}
	if err == nil {
		err = s.step("trim:folder", func() error { return syncDir(s.cfg.Dir) })
	}
	if err == nil {
		err = s.step("trim:remove", func() error { return os.RemoveAll(trash) })
	}
	return err
}

// closeDrained closes a segment whose content does not matter any more. Badger
// writes the table of a head all the same; the space for it is given back first.
func (s *Spool) closeDrained(g *segment) error {
	if g.head == nil {
		return g.closeSource()
	}
	err := os.Rename(filepath.Join(g.dir, "DISCARD"), filepath.Join(g.dir, drainedName)) // takes no space
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := syncDir(g.dir); err != nil {
		return err
	}
	if f := g.head.vlog; f != nil {
		_ = giveBack(f) // only an attempt to make room
	}
	if err := g.head.abandon(); err != nil {
		return err
	}
	g.src, g.head = nil, nil
	return nil
}

// waiter is somebody who waits for one sequence.
type waiter struct {
	seq uint64
	ch  chan struct{} // closed when it is delivered, or the spool closes
}

func (fl *flowState) wakeWaiters() {
	fl.waiters = slices.DeleteFunc(fl.waiters, func(w waiter) bool {
		if !fl.received.Contains(wire.Range{First: w.seq, Last: w.seq}) {
			return false
		}
		close(w.ch)
		return true
	})
}

// Delivered reports whether the hub has seq; ErrUnknown if it was never
// assigned, or so long ago that its epoch is forgotten. What damage took is
// never delivered.
func (s *Spool) Delivered(f wire.Flow, seq uint64) (bool, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.delivered(f, seq)
}

func (s *Spool) delivered(f wire.Flow, seq uint64) (bool, error) {
	fl := s.flows[f]
	if fl == nil || seq < fl.base || seq > fl.last || seq == 0 {
		return false, fmt.Errorf("%w: %s %d", ErrUnknown, f, seq)
	}
	one := wire.Range{First: seq, Last: seq}
	if fl.lost.Contains(one) {
		return false, nil
	}
	if fl.received.Contains(one) {
		return true, nil
	}
	for _, g := range fl.segs {
		if p := partOf(g.parts, f); p != nil && p.ranges.Contains(one) {
			return false, nil
		}
	}
	return true, nil // removed, which needs the hub to have it
}

// WaitDelivered returns when Delivered is true or ctx ends.
func (s *Spool) WaitDelivered(ctx context.Context, f wire.Flow, seq uint64) error {
	s.mu.Lock()
	ok, err := s.delivered(f, seq)
	if err == nil && s.closed {
		err = ErrClosed
	}
	if ok || err != nil {
		s.mu.Unlock()
		return err
	}
	w := waiter{seq, make(chan struct{})}
	fl := s.flows[f]
	fl.waiters = append(fl.waiters, w)
	s.mu.Unlock()
	select {
	case <-w.ch:
		if ok, err := s.Delivered(f, seq); ok || err != nil {
			return err
		}
		return ErrClosed
	case <-ctx.Done():
		s.mu.Lock()
		fl.waiters = slices.DeleteFunc(fl.waiters, func(o waiter) bool { return o.ch == w.ch })
		s.mu.Unlock()
		return ctx.Err()
	}
}
