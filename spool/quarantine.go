package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	quarantineName = "quarantine"
	maxReports     = 32
)

func (s *Spool) quarantineDir() string { return filepath.Join(s.cfg.Dir, quarantineName) }

// report is what a person finds beside a quarantined segment.
type report struct {
	Segment  string            `json:"segment"`
	Time     time.Time         `json:"time"`
	Cause    string            `json:"cause"`
	Salvaged uint64            `json:"salvaged_messages"`
	Lost     map[string]string `json:"lost,omitempty"` // by flow, where it is known
	Messages uint64            `json:"lost_messages"`
	Kept     string            `json:"kept,omitempty"` // folder with the damaged files, unless there was no room
}

// quarantine puts a closed segment aside whose seal or files are damaged, and
// goes on with what is readable. The segment is not open.
func (s *Spool) quarantine(g *segment, cause error) error {
	promised := g.parts
	blocks, err := s.readable(g, promised)
	if err != nil {
		return diskError("salvage "+g.dir, err)
	}
	return s.salvage(g, blocks, promised, cause)
}

// readable collects the intact blocks of a closed segment: through Badger if
// the files it trusts are as sealed, else with our own reader.
func (s *Spool) readable(g *segment, promised []part) ([]scanned, error) {
	sl, err := readSeal(g.dir)
	trusted := err == nil && sl.verifyTables(g.dir) == nil
	if err != nil { // only the sidecar may be damaged: try, but not again and again
		attempt, err := s.countAttempt(g.dir)
		if err != nil {
			return nil, err
		}
		trusted = attempt <= maxAttempts
	}
	if trusted {
		if db, err := s.geo.geometryOf(g.dir).openReadOnly(g.dir); err == nil {
			blocks, err := checkAll(db)
			err = errors.Join(err, db.Close())
			ce := (*CorruptError)(nil)
			if err != nil && !errors.As(err, &ce) {
				return nil, err
			}
			if len(blocks) > 0 {
				return within(blocks, promised), nil
			}
		}
	}
	sc, err := scanSegment(s.geo.keys, g.dir, true)
	if err != nil {
		return nil, err
	}
	return within(sc.blocks, promised), nil
}

// within keeps the blocks that the seal promised; all if there is none.
func within(blocks []scanned, promised []part) []scanned {
	if promised == nil {
		return blocks
	}
	return slices.DeleteFunc(blocks, func(b scanned) bool {
		p := partOf(promised, b.flow)
		return p == nil || !p.ranges.Contains(b.Range)
	})
}

// salvage writes blocks into a fresh sealed segment, which takes the place of
// g's folder; that moves to quarantine with a report.
func (s *Spool) salvage(g *segment, blocks []scanned, promised []part, cause error) error {
	fresh := filepath.Join(s.cfg.Dir, fmt.Sprintf("%s%012d", salvagePrefix, g.num))
	if err := os.RemoveAll(fresh); err != nil {
		return diskError("salvage "+g.dir, err)
	}
	for i := range blocks {
		if h, err := wire.ParseHeader(blocks[i].data); err == nil {
			blocks[i].accepted = h.Accepted
		}
	}
	if len(blocks) > 0 {
		if err := s.step("salvage:write", func() error { return s.rewrite(fresh, blocks) }); err != nil {
			return diskError("salvage "+g.dir, err)
		}
	}
	kept, err := s.moveAside(g, fresh, len(blocks) > 0)
	if err != nil {
		return diskError("quarantine "+g.dir, err)
	}
	parts := partsOf(blocks)
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
	if promised == nil { // no seal: holes between what is left are all that is known
		for _, p := range parts {
			all := wire.Ranges{{First: p.ranges[0].First, Last: p.ranges[len(p.ranges)-1].Last}}
			if rest := subtract(all, p.ranges); len(rest) > 0 {
				lost[p.flow] = rest
			}
		}
	}
	g.parts = parts
	s.noteIDs(s.idsOf(blocks))
	return s.noteLoss(g.dir, parts, lost, kept, cause)
}

// rewrite writes blocks into a new segment and seals it.
func (s *Spool) rewrite(dir string, blocks []scanned) error {
	geo := s.geo
	var vlog, inline int64
	for _, b := range blocks {
		v, in := cost(len(b.data))
		vlog, inline = vlog+v, inline+in
	}
	geo.blocks, geo.inline = max(geo.blocks, len(blocks)), max(geo.inline, inline)
	geo.memTable = int64(geo.blocks)*192 + 256<<10 + geo.inline
	geo.bytes = max(vlog, 4096)
	geo.vlogFile = max(geo.bytes, 1<<20) + maxAppend
	h, err := s.createHead(dir, geo, vlog)
	if err != nil {
		return err
	}
	var batch []record
	size := int64(0)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		h.take(batch)
		err := h.write(s, batch)
		batch, size = nil, 0
		return err
	}
	for _, b := range blocks {
		_, in := cost(len(b.data))
		if size+in+256 > geo.maxTxn() || len(batch) == 64 {
			if err := flush(); err != nil {
				return errors.Join(err, h.abandon())
			}
		}
		batch, size = append(batch, b.record), size+in+256
	}
	if err := errors.Join(flush(), h.close(10*sealTimeout)); err != nil {
		return err
	}
	return s.writeSeal(dir, partsOf(blocks))
}

// moveAside moves the damaged folder to quarantine and the fresh one, if any,
// in its place. It returns where the damaged files are.
func (s *Spool) moveAside(g *segment, fresh string, replace bool) (kept string, err error) {
	if err := os.MkdirAll(s.quarantineDir(), 0o700); err != nil {
		return "", err
	}
	kept = filepath.Join(s.quarantineDir(), fmt.Sprintf("%s-%d", filepath.Base(g.dir), s.cfg.Now().UnixMilli()))
	if err := s.step("quarantine:rename", func() error { return os.Rename(g.dir, kept) }); err != nil {
		return "", err
	}
	if replace {
		if err := os.Rename(fresh, g.dir); err != nil {
			return "", err
		}
	}
	if err := errors.Join(syncDir(s.quarantineDir()), syncDir(s.cfg.Dir)); err != nil {
		return "", err
	}
	if s.maxBytes > 0 && diskUsage(s.quarantineDir()) > s.maxBytes/8 { // the bound of the disk comes first
		return "", os.RemoveAll(kept)
	}
	return kept, s.fault("salvage:done")
}

// finishSalvage completes a salvage that was cut off between its two renames,
// or throws it away if the damaged segment is still in its place.
func (s *Spool) finishSalvage(fresh string) error {
	home := filepath.Join(s.cfg.Dir, segmentPrefix+strings.TrimPrefix(filepath.Base(fresh), salvagePrefix))
	if _, err := os.Lstat(home); err == nil {
		return os.RemoveAll(fresh)
	}
	if _, err := readSeal(fresh); err != nil {
		return os.RemoveAll(fresh)
	}
	if err := os.Rename(fresh, home); err != nil {
		return err
	}
	return syncDir(s.cfg.Dir)
}

// noteLoss counts what is gone, makes that durable, and writes the report.
func (s *Spool) noteLoss(dir string, parts []part, lost map[wire.Flow]wire.Ranges, kept string, cause error) error {
	now := s.cfg.Now()
	r := report{Segment: filepath.Base(dir), Time: now.UTC(), Cause: cause.Error(), Kept: kept, Lost: map[string]string{}}
	for _, p := range parts {
		r.Salvaged += p.ranges.Len()
	}
	name := fmt.Sprintf("%s-%d.json", r.Segment, now.UnixNano())
	s.mu.Lock()
	for f, rs := range lost {
		fl := s.flow(f)
		fl.lost = fl.lost.Union(rs)
		fl.last = max(fl.last, rs[len(rs)-1].Last)
		if fl.base == 0 || rs[0].First < fl.base {
			fl.base = rs[0].First
		}
		if !slices.Contains(s.epochs, f.Epoch) {
			s.epochs = append(s.epochs, f.Epoch)
		}
		r.Lost[f.String()] = rs.String()
		r.Messages += rs.Len()
	}
	s.dropped[wire.ReasonQuarantine] += r.Messages
	s.quarantined.Segments++
	s.quarantined.Messages += r.Messages
	s.quarantined.Reports = append(s.quarantined.Reports, name)
	if n := len(s.quarantined.Reports); n > maxReports {
		s.quarantined.Reports = s.quarantined.Reports[n-maxReports:]
	}
	s.mu.Unlock()
	s.cfg.Log.Error("spool: a damaged segment was put aside", "segment", r.Segment, "cause", cause, "salvaged", r.Salvaged, "lost", r.Messages, "report", name)
	body, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.quarantineDir(), 0o700); err != nil {
		return diskError("quarantine "+dir, err)
	}
	err = s.step("quarantine:report", func() error {
		return os.WriteFile(filepath.Join(s.quarantineDir(), name), append(body, '\n'), 0o600)
	})
	if err != nil {
		return diskError("write a report of "+dir, err)
	}
	return s.step("quarantine:meta", s.saveMeta)
}

// damaged puts a segment aside that turned out to be damaged while it was read.
func (s *Spool) damaged(g *segment, f wire.Flow, r wire.Range, cause error) error {
	s.repairMu.Lock()
	defer s.repairMu.Unlock()
	g.use.Lock()
	defer g.use.Unlock()
	s.mu.RLock()
	gone, repairs := g.gone, g.repairs
	s.mu.RUnlock()
	if gone {
		return nil
	}
	if g.head != nil { // still written: only this block is given up
		return s.giveUp(g, f, r, cause)
	}
	if g.repairs++; repairs > 0 {
		return s.giveUp(g, f, r, cause) // the fresh copy is damaged as well
	}
	if err := g.closeSource(); err != nil {
		return diskError("close "+g.dir, err)
	}
	s.mu.RLock()
	old := &segment{num: g.num, dir: g.dir, parts: slices.Clone(g.parts)}
	s.mu.RUnlock()
	err := s.marginLeft()
	if err == nil {
		err = s.reserved(func() error { return s.quarantine(old, cause) })
	}
	if err != nil {
		return err
	}
	n, key := diskUsage(g.dir), s.geo.keys.idOf(g.dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.parts, g.disk, g.key = old.parts, n, key
	s.open = slices.DeleteFunc(s.open, func(o *segment) bool { return o == g })
	if len(g.parts) == 0 {
		for _, fl := range s.flows {
			fl.segs = slices.DeleteFunc(fl.segs, func(o *segment) bool { return o == g })
		}
		s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
		g.gone = true
	}
	return nil
}

// giveUp counts one block as lost. use is held.
func (s *Spool) giveUp(g *segment, f wire.Flow, r wire.Range, cause error) error {
	if r.First == 0 { // the whole segment
		return cause
	}
	s.mu.Lock()
	if p := partOf(g.parts, f); p != nil {
		p.ranges = subtract(p.ranges, wire.Ranges{r})
	}
	s.mu.Unlock()
	return s.noteLoss(g.dir, nil, map[wire.Flow]wire.Ranges{f: {r}}, "", cause)
}
