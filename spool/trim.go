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
	s.freeMemory(fl)
	fl.wakeWaiters()
	work := fl.disputed() || slices.ContainsFunc(fl.segs, func(g *segment) bool { return g.sealed && s.covered(g) })
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
			if fl == nil || !fl.settled(r) {
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
	if err := s.alter((*change).forgetRules); err != nil { // what the hub has after all, while it can be looked up
		s.cfg.Log.Error("spool: the counts of what was removed could not be corrected; trying again with the next trim", "error", err)
		return
	}
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
	err := s.alter(func(c *change) {
		for _, g := range gs {
			for _, p := range g.parts {
				for _, r := range p.ranges {
					c.finish(s.flow(p.flow), r)
				}
			}
		}
	})
	if err != nil {
		return err
	}
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

// closeDrained closes a segment whose content does not matter any more. It needs
// no disk space.
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

// wakeWaiters: what happened to their sequences may have been decided.
func (fl *flowState) wakeWaiters() {
	fl.waiters = slices.DeleteFunc(fl.waiters, func(w waiter) bool {
		one := wire.Range{First: w.seq, Last: w.seq}
		if !fl.received.Contains(one) && len(fl.gone.missing(one)) > 0 && len(fl.noted.within(one)) == 0 {
			return false
		}
		close(w.ch)
		return true
	})
}

// unsettled is the lowest sequence ≥ seq in g that is neither received nor gone.
func (fl *flowState) unsettled(g *segment, seq uint64) (uint64, bool) {
	p := partOf(g.parts, fl.Flow)
	if p == nil {
		return 0, false
	}
	for _, r := range p.ranges {
		if r.First = max(r.First, seq); r.First > r.Last {
			continue
		}
		for _, m := range fl.received.Missing(r) {
			if open := fl.gone.missing(m); len(open) > 0 {
				return open[0].First, true
			}
		}
	}
	return 0, false
}

// settled reports whether all of r is received or gone.
func (fl *flowState) settled(r wire.Range) bool {
	for _, m := range fl.received.Missing(r) {
		if len(fl.gone.missing(m)) > 0 {
			return false
		}
	}
	return true
}

// Delivered reports whether the hub has seq. ErrRemoved: it never will, and why;
// ErrUnknown: seq was never assigned, or what became of it is forgotten.
func (s *Spool) Delivered(f wire.Flow, seq uint64) (bool, error) {
	s.mu.RLock()
	ok, looks, err := s.delivered(f, seq)
	s.mu.RUnlock()
	if looks {
		return s.deliveredInside(f, seq)
	}
	return ok, err
}

// delivered is Delivered, unless it takes a look into a block. mu is held.
func (s *Spool) delivered(f wire.Flow, seq uint64) (ok, looks bool, err error) {
	fl := s.flows[f]
	if fl == nil || seq < fl.base || seq > fl.last || seq == 0 {
		return false, false, fmt.Errorf("%w: %s %d", ErrUnknown, f, seq)
	}
	one := wire.Range{First: seq, Last: seq}
	received := fl.received.Contains(one)
	if g, gone := fl.gone.holds(seq); gone {
		switch {
		case g.reason == 0:
			return false, false, fmt.Errorf("%w: %s %d is among messages of which some were removed long ago", ErrUnknown, f, seq)
		case !received || g.sent != 0:
			return false, false, removedError(f, seq, g.reason)
		}
	}
	if len(fl.noted.within(one)) > 0 {
		return false, true, nil
	}
	_, at, held := fl.holder(seq)
	return received || !held || at != seq, false, nil // what was trimmed the hub had to have
}

// deliveredInside is Delivered for a message of a block of which some were removed.
func (s *Spool) deliveredInside(f wire.Flow, seq uint64) (bool, error) {
	one := span{f, wire.Range{First: seq, Last: seq}}
	known := s.gather([]span{one})
	s.mu.RLock()
	defer s.mu.RUnlock()
	fl := s.flows[f]
	received := fl.received.Contains(one.Range)
	c := change{s: s, known: known, blind: true}
	for _, n := range fl.noted.within(one.Range) {
		st := n.is
		if received { // as it was handed out
			st = n.sent
		}
		for why := range c.counted(fl, n, st) {
			return false, removedError(f, seq, why)
		}
	}
	return received, nil
}

func removedError(f wire.Flow, seq uint64, why wire.Reason) error {
	return &RemovedError{Flow: f, Seq: seq, Reason: why}
}

// WaitDelivered returns when Delivered is true, or an error says that it never
// will be, or ctx ends.
func (s *Spool) WaitDelivered(ctx context.Context, f wire.Flow, seq uint64) error {
	for {
		w := waiter{seq, make(chan struct{})}
		if err := s.await(f, w); err != nil {
			return err
		}
		// Asked after that, so that nothing is decided in between unnoticed.
		ok, err := s.Delivered(f, seq)
		if ok || err != nil {
			s.forgetWaiter(f, w)
			return err
		}
		select {
		case <-w.ch:
		case <-ctx.Done():
			s.forgetWaiter(f, w)
			return ctx.Err()
		}
	}
}

// await lets w know when something happens to its sequence.
func (s *Spool) await(f wire.Flow, w waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fl := s.flows[f]
	switch {
	case fl == nil:
		return fmt.Errorf("%w: %s %d", ErrUnknown, f, w.seq)
	case s.closed:
		ok, _, err := s.delivered(f, w.seq) // known all the same
		if !ok && err == nil {
			err = ErrClosed
		}
		return err
	}
	fl.waiters = append(fl.waiters, w)
	return nil
}

func (s *Spool) forgetWaiter(f wire.Flow, w waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fl := s.flows[f]; fl != nil {
		fl.waiters = slices.DeleteFunc(fl.waiters, func(o waiter) bool { return o.ch == w.ch })
	}
}
