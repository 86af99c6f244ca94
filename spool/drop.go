package spool

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// WhenFull says what happens to a message for which there is no room.
type WhenFull uint8

// Reject refuses it with ErrFull. DropOldest removes whole segments instead,
// from the least urgent lane first, in each the oldest first, and never one of a
// lane that is more urgent than the message's.
const (
	Reject WhenFull = iota
	DropOldest
)

// roomRequest asks the keeper for disk space that a head of the lane needs.
type roomRequest struct {
	lane wire.Lane
	need int64
	done chan error // capacity 1
}

// makeRoom returns nil when something was removed so that need may fit now.
func (k *keeper) makeRoom(l wire.Lane, need int64) error {
	r := roomRequest{l, need, make(chan error, 1)}
	k.ask(func() { k.rooms = append(k.rooms, r) })
	return <-r.done
}

// errNothingToDrop: what there is belongs to more urgent lanes.
var errNothingToDrop = errors.New("nothing can be removed for it")

// makeRoom removes what the hub has, and then, if it may, what it has not.
func (s *Spool) makeRoom(r roomRequest) error {
	gs := s.idleSegments()
	if err := s.removeHeads(gs); err != nil {
		return err
	}
	if short := s.shortOf(r.need); short <= 0 {
		return nil
	} else if s.cfg.WhenFull == DropOldest {
		return s.dropOldest(r.lane, short)
	}
	if len(gs) > 0 {
		return nil
	}
	return errNothingToDrop
}

// sealBytes covers the small files that appear while others are still there: a
// seal, a report.
const sealBytes = 64 << 10

// shortOf is how many bytes are missing for need more, with what sealing the
// heads will take.
func (s *Spool) shortOf(need int64) int64 {
	return s.diskUsed() + need + sealBytes + s.toCome() - s.maxBytes
}

// toCome is what the publisher ids of the heads, and of one more, take when these
// are sealed, and the next meta file.
func (s *Spool) toCome() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.mostIDs
	for _, g := range s.segments {
		if !g.sealed {
			n += g.ids
		}
	}
	return int64(n)*idEntrySize + s.metaBytes
}

// idleSegments are those of which the hub has everything, heads included.
func (s *Spool) idleSegments() (out []*segment) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range s.segments {
		if len(g.parts) > 0 && !g.gone && s.covered(g) {
			out = append(out, g)
		}
	}
	return out
}

// dropOldest removes segments until short bytes are free, or none at all if the
// lanes that may give way do not have so much.
func (s *Spool) dropOldest(l wire.Lane, short int64) error {
	var victims []*segment
	s.mu.RLock()
	for lane := wire.Lane(wire.NumLanes - 1); short > 0 && lane.Valid() && lane >= l; lane-- {
		for _, g := range s.segments {
			if short > 0 && !g.gone && g.only(lane) {
				victims = append(victims, g)
				short -= g.disk
			}
		}
	}
	s.mu.RUnlock()
	if short > 0 {
		return errNothingToDrop
	}
	dropped, err := s.dropSegments(victims)
	if dropped > 0 {
		s.logDropped(dropped)
	}
	s.notify()
	return err
}

// only reports whether g holds messages of that lane and of no other. Spool.mu
// is held.
func (g *segment) only(l wire.Lane) bool {
	return len(g.parts) > 0 && !slices.ContainsFunc(g.parts, func(p part) bool { return p.flow.Lane != l })
}

// dropSegments counts what the segments hold, and removes them.
func (s *Spool) dropSegments(gs []*segment) (n uint64, err error) {
	s.freeze(gs) // nothing may be added to what is counted
	err = s.alter(func(c *change) {
		n = 0
		for _, g := range gs {
			for _, p := range g.parts {
				for _, r := range p.ranges {
					n += c.remove(s.flow(p.flow), r, wire.ReasonDropOldest)
				}
			}
		}
	})
	if err == nil {
		err = s.fault("drop:remove")
	}
	if err != nil {
		return 0, fmt.Errorf("drop the oldest messages: %w", err)
	}
	return n, s.removeHeads(gs)
}

// removeHeads is remove for segments of which some may be heads in use: their
// lanes begin new ones.
func (s *Spool) removeHeads(gs []*segment) error {
	if len(gs) == 0 {
		return nil
	}
	s.freeze(gs)
	gs = slices.DeleteFunc(slices.Clone(gs), func(g *segment) bool { return !s.drained(g) }) // a commit came first
	if len(gs) == 0 {
		return nil
	}
	return s.remove(gs)
}

// freeze makes sure that no head among gs takes another commit.
func (s *Spool) freeze(gs []*segment) {
	for _, g := range gs {
		g.writing.Lock()
		if g.head != nil {
			g.frozen = true
			g.failed.Store(true)
		}
		g.writing.Unlock()
	}
}

// logDropped tells that messages are dropped: at once the first time, then with
// ever longer pauses while it goes on.
func (s *Spool) logDropped(n uint64) {
	s.dropLog.n += n
	now := s.time.now()
	if s.dropLog.n == n || now >= s.dropLog.next {
		s.cfg.Log.Warn("spool: full, so that the oldest messages are dropped (when_full: drop-oldest)", "messages", s.dropLog.n, "max_bytes", s.maxBytes)
		s.dropLog.next = now + 60_000
	}
}

// dropLog is what was dropped in this run. Owned by the keeper.
type dropLog struct {
	n    uint64
	next int64 // spool clock: silent before
}
