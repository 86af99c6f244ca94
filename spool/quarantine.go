package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	quarantineName = "quarantine"
	maxReports     = 32
)

func (s *Spool) quarantineDir() string { return filepath.Join(s.cfg.Dir, quarantineName) }

// putAside moves a damaged segment to quarantine. A fresh copy of what is
// readable of it takes its place. use is held exclusively, by the keeper.
func (s *Spool) putAside(g *segment) error {
	s.mu.RLock()
	parts := slices.Clone(g.parts)
	s.mu.RUnlock()
	parts = slices.DeleteFunc(parts, func(p part) bool { return len(p.ranges) == 0 })
	if len(parts) > 0 && g.src == nil {
		if err := s.openLogs(g, parts); err != nil {
			return s.rescan(g) // there is less of it now; the next attempt takes that
		}
	}
	s.openMu.Lock() // no head takes the room meanwhile
	defer s.openMu.Unlock()
	err := s.marginLeft()
	if err == nil {
		err = s.roomForCopy(g, parts)
	}
	if err != nil {
		return err
	}
	return s.reserved(func() error { return s.salvage(g, parts) })
}

// roomForCopy makes sure that a copy of what is readable does not pass max_bytes.
func (s *Spool) roomForCopy(g *segment, parts []part) error {
	need := int64(0)
	for _, p := range parts {
		need += p.bytes
	}
	if need > 0 {
		need += s.geo.memTable + 256<<10
	}
	if used := s.diskUsed(); used+need > s.maxBytes {
		return fmt.Errorf("%w: %w: a copy of what is readable of %s takes %d bytes", ErrFull, errNoReserve, g.dir, need)
	}
	return nil
}

// salvage writes the readable blocks into a fresh sealed segment, which takes
// the place of g's folder; that moves to quarantine.
func (s *Spool) salvage(g *segment, parts []part) error {
	fresh := filepath.Join(s.cfg.Dir, numberedName(salvagePrefix, g.num))
	if err := os.RemoveAll(fresh); err != nil {
		return diskError("salvage "+g.dir, err)
	}
	if len(parts) > 0 {
		err := s.step("salvage:write", func() error { return s.rewrite(g, parts, fresh) })
		if ce := (*CorruptError)(nil); errors.As(err, &ce) {
			return errors.Join(s.rescan(g), os.RemoveAll(fresh))
		}
		if err != nil {
			return diskError("salvage "+g.dir, err)
		}
	}
	if err := g.closeSource(); err != nil {
		s.cfg.Log.Warn("spool: a segment did not close cleanly", "segment", g.dir, "error", err)
	}
	kept, err := s.moveAside(g.dir, fresh, len(parts) > 0)
	if err != nil {
		return diskError("quarantine "+g.dir, err)
	}
	if g.report != nil && kept != "" {
		g.report.Kept = kept
		s.writeReport(g.report)
	}
	if s.measureRest(); len(parts) == 0 {
		s.forget(g)
		return nil
	}
	s.becomeSealed(g)
	g.cause, g.report = nil, nil
	s.mu.Lock()
	g.key = s.geo.keys.idOf(g.dir)
	s.mu.Unlock()
	return s.fault("salvage:done")
}

// forget lets go of a segment that holds nothing any more.
func (s *Spool) forget(g *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.gone = true
	for _, fl := range s.flows {
		fl.segs = slices.DeleteFunc(fl.segs, func(o *segment) bool { return o == g })
	}
	s.segments = slices.DeleteFunc(s.segments, func(o *segment) bool { return o == g })
	s.open = slices.DeleteFunc(s.open, func(o *segment) bool { return o == g })
}

// rewrite copies the blocks of a segment that our own reader has open into a
// new one and seals it.
func (s *Spool) rewrite(g *segment, parts []part, dir string) error {
	geo := s.geo
	vlog, inline, blocks := int64(0), int64(0), 0
	for _, p := range parts {
		vlog, inline, blocks = vlog+p.bytes, inline+p.bytes, blocks+p.blocks
	}
	vlog += int64(blocks) * 64
	inline = min(inline, int64(blocks)*threshold)
	geo.blocks, geo.inline = max(geo.blocks, blocks), max(geo.inline, inline)
	geo.memTable = int64(geo.blocks)*192 + 256<<10 + geo.inline
	geo.bytes = max(vlog, 4096)
	geo.vlogFile = max(geo.bytes, 1<<20) + maxAppend
	h, err := s.createHead(dir, geo, vlog)
	if err != nil {
		return err
	}
	if err := s.copyBlocks(g, parts, h); err != nil {
		return errors.Join(err, h.abandon())
	}
	if err := h.keep(); err != nil {
		return errors.Join(err, h.abandon())
	}
	if err := h.release(); err != nil {
		return err
	}
	return s.writeSeal(dir, parts)
}

// copyBlocks writes the blocks of parts into h, a few at a time.
func (s *Spool) copyBlocks(g *segment, parts []part, h *head) error {
	var batch []record
	inline, size := int64(0), 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		h.take(batch)
		err := h.write(s, batch)
		batch, inline, size = nil, 0, 0
		return err
	}
	g.imu.Lock()
	index := g.index
	g.imu.Unlock()
	for _, p := range parts {
		for _, r := range index[p.flow] {
			if !p.ranges.Contains(r) {
				continue
			}
			data, err := g.get(p.flow, r)
			if err != nil {
				return err
			}
			_, in := cost(len(data))
			if inline+in+256 > h.geo.maxTxn() || len(batch) == 64 || size > 1<<20 {
				if err := flush(); err != nil {
					return err
				}
			}
			batch, inline, size = append(batch, record{flow: p.flow, Range: r, data: data}), inline+in+256, size+len(data)
		}
	}
	return flush()
}

// moveAside moves a damaged folder to quarantine and the fresh one, if any,
// in its place. It returns where the damaged files are.
func (s *Spool) moveAside(dir, fresh string, replace bool) (kept string, err error) {
	if kept, err = s.asidePath(dir); err != nil {
		return "", err
	}
	if err := s.step("quarantine:rename", func() error { return os.Rename(dir, kept) }); err != nil {
		return "", err
	}
	if replace {
		if err := s.step("salvage:rename", func() error { return os.Rename(fresh, dir) }); err != nil {
			return "", err
		}
	}
	if err := errors.Join(syncDir(s.quarantineDir()), syncDir(s.cfg.Dir)); err != nil {
		return "", err
	}
	if s.maxBytes > 0 && diskUsage(s.quarantineDir()) > s.maxBytes/8 { // the bound of the disk comes first
		return "", os.RemoveAll(kept)
	}
	return kept, nil
}

// asidePath is where something from the folder is kept; the way there exists.
func (s *Spool) asidePath(path string) (string, error) {
	q := s.quarantineDir()
	if fi, err := os.Lstat(q); err == nil && !fi.IsDir() { // somebody's file
		if err := os.Rename(q, fmt.Sprintf("%s-%d", q, s.cfg.Now().UnixNano())); err != nil {
			return "", err
		}
	}
	if err := os.MkdirAll(q, 0o700); err != nil {
		return "", err
	}
	for n := s.cfg.Now().UnixMilli(); ; n++ {
		to := filepath.Join(q, fmt.Sprintf("%s-%d", filepath.Base(path), n))
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			return to, nil
		}
	}
}

// putFileAside moves away what stands where something of ours belongs. It never
// fails: Open goes on without.
func (s *Spool) putFileAside(path string, cause error) {
	to, err := s.asidePath(path)
	if err == nil {
		err = os.Rename(path, to)
	}
	if err != nil {
		s.cfg.Log.Error("spool: something damaged could not be moved away", "path", path, "cause", cause, "error", err)
		return
	}
	r := s.noteLoss(loss{what: filepath.Base(path), cause: cause, moved: true})
	r.Kept = to
	s.writeReport(r)
}

// finishSalvage completes a salvage that was cut off between its two renames,
// or throws it away if the damaged segment is still in its place. home is where
// the copy is now.
func (s *Spool) finishSalvage(fresh string, num uint64) (home string, err error) {
	home = s.segmentDir(num)
	if _, err := os.Lstat(home); err == nil {
		return "", os.RemoveAll(fresh)
	}
	if _, err := readSeal(fresh); err != nil {
		return "", os.RemoveAll(fresh)
	}
	if err := os.Rename(fresh, home); err != nil {
		return "", err
	}
	return home, syncDir(s.cfg.Dir)
}

// loss is one finding of damage.
type loss struct {
	what  string // base name of the segment or file
	left  []part // what is readable of it
	lost  map[wire.Flow]wire.Ranges
	cause error
	moved bool // it is not found again
}

// noteLoss counts what is gone, makes that durable, and writes the report. What
// is known already is not counted again: until the damaged files are moved
// away, each start finds them. What cannot be written now is only in memory;
// the next start finds it again.
func (s *Spool) noteLoss(l loss) *Report {
	now := s.cfg.Now()
	r := &Report{Segment: l.what, Time: now.UTC(), Cause: l.cause.Error(), Lost: map[string]string{}}
	for _, p := range l.left {
		r.Salvaged += p.ranges.Len()
	}
	r.Name = fmt.Sprintf("%s-%d.json", r.Segment, now.UnixNano())
	s.mu.Lock()
	for f, rs := range l.lost {
		if fresh := s.lose(f, rs); len(fresh) > 0 {
			r.Lost[f.String()] = fresh.String()
			r.Messages += fresh.Len()
		}
	}
	known := slices.ContainsFunc(s.quarantined.Reports, func(name string) bool { return strings.HasPrefix(name, r.Segment+"-") })
	if known && !l.moved && r.Messages == 0 {
		s.mu.Unlock()
		return r
	}
	s.quarantined.Segments++
	s.quarantined.Messages += r.Messages
	s.quarantined.Reports = append(s.quarantined.Reports, r.Name)
	if n := len(s.quarantined.Reports); n > maxReports {
		s.quarantined.Reports = s.quarantined.Reports[n-maxReports:]
	}
	s.mu.Unlock()
	s.cfg.Log.Error("spool: something is damaged; what is readable is delivered, the rest is reported as lost",
		"what", r.Segment, "cause", l.cause, "readable", r.Salvaged, "lost", r.Messages, "ranges", r.Lost, "report", filepath.Join(s.quarantineDir(), r.Name))
	s.writeReport(r)
	if s.keeper == nil { // Open saves once for all
		s.unsaved = true
	} else if err := s.step("quarantine:meta", s.saveMeta); err != nil {
		s.cfg.Log.Error("spool: the count of what is lost could not be written for now", "error", err)
	}
	return r
}

// lose marks ranges that will never come, and returns what of them is news. It
// counts although nothing is durable yet: the next start finds it again. mu is
// held.
func (s *Spool) lose(f wire.Flow, rs wire.Ranges) (fresh wire.Ranges) {
	fl := s.flow(f)
	for _, r := range rs {
		for _, open := range fl.received.Missing(r) {
			fresh = fresh.Union(fl.gone.missing(open))
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	for _, r := range fresh {
		s.goneAtOnce(fl, goneRange{Range: r, reason: wire.ReasonQuarantine})
	}
	last := fresh[len(fresh)-1].Last
	fl.last = max(fl.last, last)
	if fl.base == 0 || fresh[0].First < fl.base {
		fl.base = fresh[0].First
	}
	s.high[f.Lane] = max(s.high[f.Lane], fl.last)
	if !slices.Contains(s.epochs, f.Epoch) {
		s.epochs = append(s.epochs, f.Epoch)
	}
	return fresh
}

// writeReport writes it where a person looks for it. The log has told the same.
func (s *Spool) writeReport(r *Report) {
	if s.readOnly {
		return
	}
	body, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		_, err = s.asidePath(r.Name) // makes the folder
	}
	if err == nil {
		err = s.step("quarantine:report", func() error {
			return os.WriteFile(filepath.Join(s.quarantineDir(), r.Name), append(body, '\n'), 0o600)
		})
	}
	if err != nil {
		s.cfg.Log.Error("spool: a report could not be written", "report", r.Name, "error", err)
	}
}

// damaged goes on with our own reader in a segment that turned out to be
// damaged while it was read. f and r are zero if it is all of it.
func (s *Spool) damaged(g *segment, f wire.Flow, r wire.Range, cause error) error {
	s.repairMu.Lock()
	defer s.repairMu.Unlock()
	g.use.Lock()
	defer g.use.Unlock()
	s.mu.RLock()
	gone, loose := g.gone, !g.sealed
	s.mu.RUnlock()
	switch {
	case gone:
		return nil
	case r.First > 0 && (g.head != nil || loose): // only this block is given up
		err := s.alive()
		if err == nil {
			s.giveUp(g, f, r, cause)
		}
		return err
	case g.head != nil:
		return cause
	}
	if err := s.alive(); err != nil {
		return err
	}
	if err := g.closeSource(); err != nil {
		s.cfg.Log.Warn("spool: a segment did not close cleanly", "segment", g.dir, "error", err)
	}
	g.cause = cause
	g.repairs++
	if err := s.rescan(g); err != nil {
		return err
	}
	if !s.readOnly {
		s.keeper.retire(g)
	}
	return nil
}

// alive makes sure that not the whole disk has gone: then nothing is lost yet,
// and nothing may be reported as lost.
func (s *Spool) alive() error {
	mine, err := s.lock.Stat()
	if err == nil {
		var now os.FileInfo
		if now, err = os.Stat(filepath.Join(s.cfg.Dir, lockName)); err == nil && !os.SameFile(mine, now) {
			err = fmt.Errorf("another folder is in the place of %s; restart the agent", s.cfg.Dir)
		}
	}
	if err == nil {
		err = s.saveMeta()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDiskFault, err)
	}
	return nil
}

// giveUp counts one block as lost. use is held.
func (s *Spool) giveUp(g *segment, f wire.Flow, r wire.Range, cause error) {
	s.mu.Lock()
	if p := partOf(g.parts, f); p != nil {
		p.ranges = subtract(p.ranges, wire.Ranges{r})
	}
	s.mu.Unlock()
	s.noteLoss(loss{what: filepath.Base(g.dir), lost: map[wire.Flow]wire.Ranges{f: {r}}, cause: cause})
}
