package spool

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// loadSegments takes over what the look found: sealed segments as their seals
// say; the rest is served by our own reader until the keeper has closed it.
func (s *Spool) loadSegments(segs []found) error {
	more, err := s.finishMoves()
	if err != nil {
		return err
	}
	segs = append(segs, more...)
	slices.SortFunc(segs, func(a, b found) int { return cmp.Compare(a.num, b.num) })
	for i := range segs {
		s.nextSegment = max(s.nextSegment, segs[i].num)
		if g := s.loadSegment(&segs[i]); g != nil {
			s.adopt(g)
		}
		segs[i].scan = nil
	}
	return nil
}

// finishMoves completes what a crash interrupted between two renames. It
// returns the segments that were put in their place by that.
func (s *Spool) finishMoves() (more []found, err error) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(s.cfg.Dir, e.Name())
		var failed error
		if _, ok := numbered(e.Name(), segmentPrefix); ok {
			if _, err := os.Lstat(filepath.Join(path, drainedName)); err == nil {
				failed = os.RemoveAll(path)
			}
		} else if _, ok := numbered(e.Name(), trashPrefix); ok || e.Name() == metaName+".tmp" {
			failed = os.RemoveAll(path)
		} else if num, ok := numbered(e.Name(), salvagePrefix); ok {
			var home string
			if home, failed = s.finishSalvage(path, num); home != "" {
				f, err := s.lookAt(found{num: num, dir: home})
				if err != nil {
					return nil, err
				}
				more = append(more, f)
			}
		}
		if failed != nil {
			s.cfg.Log.Warn("spool: a leftover of the last run could not be cleared away; the next start tries again", "path", path, "error", failed)
		}
	}
	return more, nil
}

// loadSegment returns what is there of one segment, or nil for nothing.
func (s *Spool) loadSegment(f *found) *segment {
	g := &segment{num: f.num, dir: f.dir, sealed: true}
	switch {
	case f.file:
		s.putFileAside(f.dir, errors.New("a file is in the place of a segment"))
		return nil
	case f.seal != nil:
		g.parts = f.seal.parts()
	case f.scan.bare():
		if !f.scan.foreign {
			if err := os.RemoveAll(f.dir); err != nil {
				s.cfg.Log.Warn("spool: an unused segment could not be removed", "segment", f.dir, "error", err)
			}
		} else {
			s.cfg.Log.Warn("spool: a folder is named like a segment and holds none; it is left alone", "folder", f.dir)
		}
		return nil
	default:
		if !errors.Is(f.sealErr, fs.ErrNotExist) {
			f.scan.hurt("%v", f.sealErr)
		}
		s.serve(g, f.scan, nil)
		s.unsealed = append(s.unsealed, g)
	}
	g.disk = diskUsage(g.dir)
	return g
}

// bare reports that nothing was ever written into the segment, as into a head
// that was opened in advance.
func (sc *scan) bare() bool { return !sc.content && sc.witness == nil && sc.damage == "" }

// adopt makes the blocks of a segment known. Segments come in order of age.
func (s *Spool) adopt(g *segment) {
	s.segments = append(s.segments, g)
	g.key = s.geo.keys.idOf(g.dir)
	for i := range g.parts {
		p := &g.parts[i]
		if !slices.Contains(s.epochs, p.flow.Epoch) {
			s.epochs = append(s.epochs, p.flow.Epoch) // the meta file was lost
		}
		fl := s.flow(p.flow)
		first, last := p.ranges[0].First, p.ranges[len(p.ranges)-1].Last
		if fl.base == 0 || first < fl.base {
			fl.base = min(first, cmp.Or(p.base, first))
		}
		fl.last = max(fl.last, last)
		fl.segs = append(fl.segs, g)
		s.high[p.flow.Lane] = max(s.high[p.flow.Lane], last)
	}
}

// preferLater removes from older segments what a newer one covers again: a
// commit that was reported as failed may have reached the disk all the same,
// and the void that stands for it counts. A folder may also be there twice.
func (s *Spool) preferLater() {
	for _, fl := range s.flows {
		first := func(g *segment) uint64 { return partOf(g.parts, fl.Flow).ranges[0].First }
		var seen wire.Ranges
		for _, g := range slices.Backward(fl.segs) {
			p := partOf(g.parts, fl.Flow)
			p.ranges = subtract(p.ranges, seen)
			seen = seen.Union(p.ranges)
		}
		fl.segs = slices.DeleteFunc(fl.segs, func(g *segment) bool { return len(partOf(g.parts, fl.Flow).ranges) == 0 })
		slices.SortStableFunc(fl.segs, func(a, b *segment) int { return cmp.Compare(first(a), first(b)) })
	}
}

// noteGaps counts what no segment holds although nothing removed it: a folder
// that is missing, or one whose seal and tables are gone. What only memory held
// is among it; the hub corrects that as soon as it says what it has.
func (s *Spool) noteGaps() {
	for _, w := range s.witnesses {
		fl := s.flow(w.flow)
		if fl.last = max(fl.last, w.last); fl.base == 0 {
			fl.base = w.first
		}
		s.high[w.flow.Lane] = max(s.high[w.flow.Lane], w.last)
		if !slices.Contains(s.epochs, w.flow.Epoch) {
			s.epochs = append(s.epochs, w.flow.Epoch)
		}
	}
	lost := map[wire.Flow]wire.Ranges{}
	for f, fl := range s.flows {
		if fl.base == 0 || fl.last < fl.base {
			continue
		}
		var have wire.Ranges
		for _, g := range fl.gone {
			have = have.Add(g.Range)
		}
		for _, g := range fl.segs {
			if p := partOf(g.parts, f); p != nil {
				have = have.Union(p.ranges)
			}
		}
		if fl.untold { // what came before the oldest was delivered, as far as is known
			end := fl.last
			if len(have) > 0 {
				end = have[0].First - 1
			}
			fl.untold = false
			if end >= fl.base {
				fl.removed = fl.removed.Add(wire.Range{First: fl.base, Last: end})
			}
		}
		if gaps := have.Union(fl.removed).Missing(wire.Range{First: fl.base, Last: fl.last}); len(gaps) > 0 {
			lost[f] = gaps
		}
	}
	if len(lost) > 0 {
		s.noteLoss(loss{what: "missing", lost: lost, cause: errors.New("no segment holds them: a folder is missing, or they were only in memory (durability: memory-first)")})
	}
}

// repair serves a head that could not be sealed with our own reader, as after a
// crash.
func (s *Spool) repair(g *segment) error {
	g.use.Lock()
	defer g.use.Unlock()
	if g.head != nil {
		if g.head.db != nil {
			if err := s.reserved(g.head.keep); err != nil {
				return err // still open, and readable
			}
		}
		g.src = nil
		if err := g.head.release(); err != nil && g.head.db != nil {
			return err
		}
		g.head = nil
	}
	return s.rescan(g)
}

// partsOf sums up blocks, which stand in order.
func partsOf(blocks []scanned) (out []part) {
	for _, b := range blocks {
		p := partOf(out, b.flow)
		if p == nil {
			out = append(out, part{flow: b.flow, base: b.base, oldest: b.accepted, ttl: anyTTL})
			p = &out[len(out)-1]
		}
		p.newest = max(p.newest, b.accepted)
		p.ages.note(b.First, b.accepted)
		p.extend(b.Range)
		p.blocks++
		p.bytes += int64(b.bytes)
	}
	return out
}

// idsOf reads the publisher ids that are still remembered, of the newest blocks
// first: more than are remembered are not decoded.
func (s *Spool) idsOf(sc *scan, blocks []scanned) (out []idRecord) {
	since := s.clock() - idWindow.Milliseconds()
	newest := slices.DeleteFunc(slices.Clone(blocks), func(b scanned) bool { return b.accepted < since })
	slices.SortFunc(newest, func(a, b scanned) int { return cmp.Compare(b.version, a.version) })
	if len(newest) == 0 {
		return nil
	}
	src := newLogSource(sc, newest)
	defer src.Close()
	dec := wire.NewDecoder()
	for _, b := range newest {
		if len(out) >= maxIDs {
			break
		}
		data, err := src.get(appendKey(nil, b.flow, b.Range))
		if err != nil {
			continue // it was readable a moment ago; Read will say so
		}
		blk, err := dec.Decode(data, false)
		if err != nil {
			continue // its checksums are right: a newer version, of which the ids are not ours to know
		}
		for i := range blk.Messages {
			if id := blk.Messages[i].ID; id != "" {
				out = append(out, idRecord{key: hashID(id), flow: b.flow, seq: b.First + uint64(i), at: b.accepted})
			}
		}
	}
	return out
}
