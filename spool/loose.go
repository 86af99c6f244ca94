package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// A loose segment is one that our own reader serves: a head that a crash left,
// or one of which something is damaged. It is readable at once; the keeper
// closes it in its own time, by a seal in its place or, if it is damaged, by a
// copy of what is left. Badger is never asked to recover anything: it cuts off
// what it cannot read, panics in goroutines of its own, and needs disk space.

// maxRepairs is how often what is left of a segment is copied, if the copy turns
// out to be damaged in its turn.
const maxRepairs = 3

// serve makes g loose with what the scan found, and counts what is missing.
// promised is what it held, or nil if only the scan can tell.
func (s *Spool) serve(g *segment, sc *scan, promised []part) {
	var lost map[wire.Flow]wire.Ranges
	cause := sc.cause()
	if promised == nil {
		sc.dropNeverAcked()
		lost, cause = sc.losses()
	} else {
		lost = missingOf(promised, partsOf(within(sc.blocks, promised)))
		switch {
		case g.cause != nil:
			cause = g.cause
		case len(lost) == 0:
			cause = nil // the rest of a failed commit
		case cause == nil:
			cause = &CorruptError{Segment: g.dir, Detail: "messages that were acknowledged are gone"}
		}
	}
	blocks := within(sc.blocks, promised)
	parts := partsOf(blocks)
	s.mu.Lock()
	g.parts, g.sealed = parts, false
	s.mu.Unlock()
	if g.ends = sc.ends; g.cause == nil && !errors.Is(cause, errTail) {
		g.cause = cause
	}
	if s.keeper == nil && !s.readOnly { // a running spool knows them already
		s.recovered = append(s.recovered, s.idsOf(sc, blocks)...)
	}
	if cause != nil {
		g.report = s.noteLoss(loss{what: filepath.Base(g.dir), left: parts, lost: lost, cause: cause})
	}
}

// errTail stands for a last transaction that is not whole.
var errTail = errors.New("its last commit is unreadable; a crash cuts off the one that is being written, so it may never have been acknowledged")

// dropNeverAcked forgets a commit that a kill cut off: where it is known up to
// where a lane was acknowledged, what lies behind it was so to nobody, whether it
// is in the same segment or was to be the first of the next. A block is
// acknowledged as a whole.
func (sc *scan) dropNeverAcked() {
	never := func(b scanned) bool {
		last, known := sc.acked(b.flow)
		return known && b.Last > last && b.version > sc.last
	}
	n := len(sc.blocks) + len(sc.missing)
	sc.blocks = slices.DeleteFunc(sc.blocks, never)
	sc.missing = slices.DeleteFunc(sc.missing, never)
	known := sc.witness != nil && sc.witness.exact()
	if end, ok := sc.end(partsOf(sc.blocks)); ok && !known {
		_, known = sc.acked(end.flow)
	}
	if known || n > len(sc.blocks)+len(sc.missing) {
		sc.tail = false // all that it can be
	}
}

// losses is what is missing of a segment that has no seal, and why.
func (sc *scan) losses() (lost map[wire.Flow]wire.Ranges, cause error) {
	parts := partsOf(sc.blocks)
	lost, cause = missingOf(sc.span(), parts), sc.cause()
	if w := sc.witness; w != nil && cause == nil && lost[w.flow].Overlaps(wire.Range{First: w.first, Last: w.last}) {
		cause = &CorruptError{Segment: sc.dir, Detail: "messages that were acknowledged are gone"}
	}
	newer := func(b scanned) bool { return b.version > sc.last }
	if sc.tail && !slices.ContainsFunc(sc.blocks, newer) && !slices.ContainsFunc(sc.missing, newer) && len(lost) == 0 {
		// No key tells what was there: at least one message, behind the last.
		if p, ok := sc.end(parts); ok {
			lost[p.flow] = wire.Ranges{p.Range}
		}
	}
	if cause == nil && len(lost) > 0 {
		cause = errTail
	}
	return lost, cause
}

// span is what the segment held as far as is known: everything between the
// blocks whose keys are left, and what the witness saw acknowledged.
func (sc *scan) span() (out []part) {
	note := func(f wire.Flow, r wire.Range) {
		p := partOf(out, f)
		if p == nil {
			out = append(out, part{flow: f, ranges: wire.Ranges{r}})
			return
		}
		p.ranges[0] = wire.Range{First: min(r.First, p.ranges[0].First), Last: max(r.Last, p.ranges[0].Last)}
	}
	for _, b := range sc.blocks {
		note(b.flow, b.Range)
	}
	for _, b := range sc.missing {
		note(b.flow, b.Range)
	}
	if w := sc.witness; w != nil {
		note(w.flow, wire.Range{First: w.first, Last: w.last})
	}
	return out
}

// end is the sequence behind the last that is known of a head.
func (sc *scan) end(parts []part) (b scanned, ok bool) {
	if w := sc.witness; w != nil {
		b.flow, b.First = w.flow, w.last
	}
	for _, p := range parts {
		if last := p.ranges[len(p.ranges)-1].Last; last > b.First {
			b.flow, b.First = p.flow, last
		}
	}
	b.First++
	b.Last = b.First
	return b, b.First > 1
}

// missingOf is what of promised is not in parts.
func missingOf(promised, parts []part) map[wire.Flow]wire.Ranges {
	lost := map[wire.Flow]wire.Ranges{}
	for _, p := range promised {
		rest := p.ranges
		if q := partOf(parts, p.flow); q != nil {
			rest = subtract(rest, q.ranges)
		}
		if len(rest) > 0 {
			lost[p.flow] = rest
		}
	}
	return lost
}

// within keeps the blocks that were promised; all if promised is nil.
func within(blocks []scanned, promised []part) []scanned {
	if promised == nil {
		return blocks
	}
	return slices.DeleteFunc(slices.Clone(blocks), func(b scanned) bool {
		p := partOf(promised, b.flow)
		return p == nil || !p.ranges.Contains(b.Range)
	})
}

// rescan makes a closed segment loose: what it holds is what our own reader
// finds of it now. use is held exclusively.
func (s *Spool) rescan(g *segment) error {
	sc, err := scanSegment(s.geo.keys, g.dir)
	if err == nil {
		err = newerBlock(g.dir, sc.newer)
	}
	if err != nil {
		return err
	}
	s.mu.RLock()
	promised := append([]part{}, g.parts...)
	s.mu.RUnlock()
	s.serve(g, sc, promised)
	n := diskUsage(g.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.disk = n
	s.open = slices.DeleteFunc(s.open, func(o *segment) bool { return o == g })
	return nil
}

// settle closes a loose segment for good.
func (s *Spool) settle(g *segment) error {
	s.repairMu.Lock()
	defer s.repairMu.Unlock()
	g.use.Lock()
	defer g.use.Unlock()
	s.mu.RLock()
	gone, sealed := g.gone, g.sealed
	s.mu.RUnlock()
	switch {
	case gone || sealed:
		return nil
	case g.cause != nil && g.repairs > maxRepairs:
		return nil // a copy does not help: it stays as it is until the hub has it
	case g.cause != nil:
		return s.putAside(g)
	}
	return s.reserved(func() error { return s.sealLogs(g) })
}

// sealLogs writes a seal for a head that a crash left. Its logs stay as they
// are, without the room that they had for more.
func (s *Spool) sealLogs(g *segment) error {
	if err := s.step("recover:ids", func() error { return s.writeSegmentIDs(g) }); err != nil {
		return err
	}
	err := s.step("recover:shorten", func() error {
		for name, end := range g.ends {
			if err := shorten(filepath.Join(g.dir, name), end); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if g.ends[memName] > logHeader { // a copy of it is half made, or not needed
		if err := removeIfThere(filepath.Join(g.dir, memName+copySuffix)); err != nil {
			return err
		}
	}
	s.mu.RLock()
	parts := slices.Clone(g.parts)
	s.mu.RUnlock()
	if err := s.writeSeal(g.dir, parts); err != nil {
		return err
	}
	if err := g.closeSource(); err != nil {
		s.cfg.Log.Warn("spool: a segment did not close cleanly", "segment", g.dir, "error", err)
	}
	s.becomeSealed(g)
	return s.fault("recover:done")
}

// shorten cuts a file to its content, and gives back what was preallocated
// behind it.
func shorten(path string, end int64) error {
	fi, err := os.Stat(path)
	if err != nil || fi.Size() < end {
		return err
	}
	return os.Truncate(path, end)
}
