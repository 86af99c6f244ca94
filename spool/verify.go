package spool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func (g *segment) name() string { return filepath.Base(g.dir) }

// stateOf names how a segment is held, and what is wrong with it.
func (s *Spool) stateOf(g *segment) (state, problem string) {
	g.use.RLock()
	defer g.use.RUnlock()
	s.mu.RLock()
	sealed := g.sealed
	s.mu.RUnlock()
	switch {
	case g.memory != nil:
		return "memory", ""
	case sealed:
		return "sealed", ""
	case g.head != nil:
		return "head", ""
	case g.cause != nil:
		return damagedState, g.cause.Error()
	}
	return "unsealed", ""
}

const damagedState = "damaged"

// Check is what reading a segment to its end has shown.
type Check struct {
	Segment  string
	State    string // as in SegmentInfo
	Blocks   int    // intact
	Messages uint64 // in them, sequences of voids included
	Bytes    int64  // of them
	Damaged  map[wire.Flow]wire.Ranges
	Problem  string // what is wrong; empty if nothing is
}

// Verify reads everything that is held and calls each for every segment. It
// changes nothing: what is damaged is put aside when it comes to be sent, or at
// the next start.
func (in *Inspector) Verify(ctx context.Context, each func(Check) error) error {
	s := in.s
	s.mu.RLock()
	segs := append([]*segment(nil), s.segments...)
	s.mu.RUnlock()
	for _, b := range in.bad {
		if err := each(Check{Segment: b.Segment, State: b.State, Problem: b.Problem}); err != nil {
			return err
		}
	}
	for _, g := range segs {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := Check{Segment: g.name(), Damaged: map[wire.Flow]wire.Ranges{}}
		c.State, _ = s.stateOf(g)
		s.mu.RLock()
		parts := append([]part(nil), g.parts...)
		s.mu.RUnlock()
		gone := s.check(g, parts, &c)
		(&visit{s, g}).leave()
		if gone {
			continue // the hub has all of it
		}
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

// check reads a segment to its end. gone: it was removed meanwhile.
func (s *Spool) check(g *segment, parts []part, c *Check) (gone bool) {
	held, err := s.hold(g)
	switch {
	case !held && err == nil:
		return true
	case !held:
		c.note(err)
		for _, p := range parts {
			c.Damaged[p.flow] = p.ranges
		}
		return false
	}
	defer g.use.RUnlock()
	if g.cause != nil { // what was readable of it is in parts
		c.note(g.cause)
	}
	for _, p := range parts {
		for from := uint64(1); ; {
			r, found, _ := g.find(p.flow, from)
			if !found {
				break
			}
			from = r.Last + 1
			data, err := g.get(p.flow, r)
			if err != nil {
				c.note(err)
				c.Damaged[p.flow] = c.Damaged[p.flow].Add(r)
				continue
			}
			c.Blocks, c.Messages, c.Bytes = c.Blocks+1, c.Messages+r.Len(), c.Bytes+int64(len(data))
		}
	}
	return false
}

// note keeps the first thing that is wrong.
func (c *Check) note(err error) {
	if c.Problem != "" {
		return
	}
	c.Problem = err.Error()
	if ce := (*CorruptError)(nil); errors.As(err, &ce) { // the segment is named already
		c.Problem = ce.Detail
		if ce.Err != nil {
			c.Problem += ": " + ce.Err.Error()
		}
	}
}

// hold opens a segment and holds it open: use is held shared if it returns true.
// A sealed one is compared with its seal, though it may be open already.
func (s *Spool) hold(g *segment) (bool, error) {
	for range 1000 {
		g.use.RLock()
		s.mu.RLock()
		gone, sealed := g.gone, g.sealed
		s.mu.RUnlock()
		if gone {
			g.use.RUnlock()
			return false, nil
		}
		if sealed {
			sl, err := readSeal(g.dir)
			if err == nil {
				err = sl.verify(g.dir)
			}
			if err != nil {
				g.use.RUnlock()
				return false, err
			}
		}
		if g.src != nil {
			return true, nil
		}
		g.use.RUnlock()
		if err := s.openSealed(g); err != nil {
			return false, err
		}
		s.opened(g)
	}
	return false, fmt.Errorf("%w: %s changes faster than it can be read", ErrDiskFault, g.dir)
}
