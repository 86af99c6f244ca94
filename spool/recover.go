package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	segmentPrefix = "seg-"
	trashPrefix   = "trash-"
	salvagePrefix = "salvage-"
	attemptsName  = "RECOVER"
	drainedName   = "DRAINED" // a head that was about to be removed

	// maxAttempts at recovering one head through Badger; a damaged table kills
	// the process in a goroutine of Badger's, again and again.
	maxAttempts = 2
)

// loadSegments finds what the last run left: sealed segments are taken as
// their seals say, everything else is recovered.
func (s *Spool) loadSegments() error {
	if err := s.finishMoves(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		num, err := strconv.ParseUint(strings.TrimPrefix(e.Name(), segmentPrefix), 10, 64)
		if !strings.HasPrefix(e.Name(), segmentPrefix) || err != nil {
			continue
		}
		s.nextSegment = max(s.nextSegment, num)
		g := &segment{num: num, dir: s.segmentDir(num), sealed: true}
		if err := s.loadSegment(g); err != nil {
			return err
		}
		if len(g.parts) > 0 {
			s.adopt(g)
		}
	}
	return nil
}

// finishMoves completes what a crash interrupted between two renames.
func (s *Spool) finishMoves() error {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(s.cfg.Dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), segmentPrefix):
			if _, err = os.Lstat(filepath.Join(path, drainedName)); err == nil {
				err = os.RemoveAll(path)
			} else if errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		case strings.HasPrefix(e.Name(), trashPrefix), strings.HasSuffix(e.Name(), ".tmp"):
			err = os.RemoveAll(path)
		case strings.HasPrefix(e.Name(), salvagePrefix):
			err = s.finishSalvage(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Spool) loadSegment(g *segment) error {
	sl, err := readSeal(g.dir)
	switch {
	case err == nil:
		g.parts = sl.parts()
	case errors.Is(err, ErrLayout):
		return err
	case errors.Is(err, fs.ErrNotExist):
		err = s.recoverHead(g)
	default:
		cause := err
		if err = s.marginLeft(); err == nil {
			err = s.reserved(func() error { return s.quarantine(g, cause) })
		}
		if errors.Is(err, ErrDiskFull) { // not now; nothing is lost by waiting
			s.cfg.Log.Error("spool: a damaged segment cannot be salvaged on a full disk; the next start tries again", "segment", g.dir, "error", cause)
			g.parts, err = nil, nil
		}
	}
	g.disk = diskUsage(g.dir)
	return err
}

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
			fl.base = first
		}
		fl.last = max(fl.last, last)
		fl.segs = append(fl.segs, g)
		s.high[p.flow.Lane] = max(s.high[p.flow.Lane], last)
	}
}

// preferLater removes from older segments what a newer one covers again: a
// commit that was reported as failed may have reached the disk all the same,
// and the void that stands for it counts.
func (s *Spool) preferLater() {
	for _, fl := range s.flows {
		var seen wire.Ranges
		for _, g := range slices.Backward(fl.segs) {
			p := partOf(g.parts, fl.Flow)
			p.ranges = subtract(p.ranges, seen)
			seen = seen.Union(p.ranges)
		}
	}
}

// recoverHead makes a sealed segment of a head that a crash left, or nothing
// if it holds nothing. It never fails because of what is in the folder: what
// Badger cannot take is salvaged.
func (s *Spool) recoverHead(g *segment) error {
	sc, err := scanSegment(s.geo.keys, g.dir, false)
	if err != nil {
		return diskError("recover "+g.dir, err)
	}
	if len(sc.blocks) == 0 && !sc.tables && !sc.damaged {
		return os.RemoveAll(g.dir)
	}
	if err = s.marginLeft(); err == nil {
		err = s.reserved(func() error { return s.recoverScanned(g, sc) })
	}
	if errors.Is(err, ErrDiskFull) && s.keeper == nil {
		if err := s.leaveUnsealed(g, sc); err != nil { // not now; nothing is lost by waiting
			s.cfg.Log.Error("spool: a segment cannot be recovered on a full disk; the next start tries again", "segment", g.dir, "error", err)
			g.parts = nil
		}
		return nil
	}
	return err
}

func (s *Spool) recoverScanned(g *segment, sc *scan) error {
	attempt, err := s.countAttempt(g.dir)
	if err != nil {
		return diskError("recover "+g.dir, err)
	}
	cause := error(&CorruptError{Segment: g.dir, Detail: "its logs do not add up"})
	if !sc.damaged && attempt <= maxAttempts {
		cause = s.recoverThroughBadger(g, sc)
	}
	if cause == nil {
		return s.fault("recover:done")
	}
	if ce := (*CorruptError)(nil); !errors.As(cause, &ce) {
		return diskError("recover "+g.dir, cause)
	}
	if sc.tables { // values count whether a key is known to point at them or not
		if sc, err = scanSegment(s.geo.keys, g.dir, true); err != nil {
			return diskError("recover "+g.dir, err)
		}
	}
	return s.salvage(g, sc.blocks, sc.promised(), cause)
}

// leaveUnsealed goes on with a head that cannot be recovered for want of disk
// space: it is served as it is, without a write, and the keeper tries again later.
func (s *Spool) leaveUnsealed(g *segment, sc *scan) error {
	blocks := sc.blocks
	if sc.damaged {
		return &CorruptError{Segment: g.dir, Detail: "its logs do not add up"}
	}
	if sc.tables { // cut off while it was sealed
		if err := removeEmptyLogs(g.dir); err != nil {
			return err
		}
		var err error
		if blocks, err = readOnlyBlocks(s.geo.geometryOf(g.dir), g.dir); err != nil {
			return err
		}
	}
	for i := range blocks {
		h, err := wire.ParseHeader(blocks[i].data)
		if err != nil {
			return err // checked before
		}
		blocks[i].accepted = h.Accepted
	}
	g.parts, g.sealed = partsOf(blocks), false
	s.noteIDs(s.idsOf(blocks))
	s.unsealed = append(s.unsealed, g)
	_ = removeIfThere(filepath.Join(g.dir, attemptsName)) // it was not the segment's fault
	return nil
}

// openLogs opens a head that is not recovered yet, with what leaveUnsealed found.
func (s *Spool) openLogs(g *segment, parts []part) error {
	sc, err := scanSegment(s.geo.keys, g.dir, false)
	if err != nil {
		return err
	}
	if sc.tables {
		if sc.blocks, err = readOnlyBlocks(s.geo.geometryOf(g.dir), g.dir); err != nil {
			return err
		}
	}
	src, index := logSource{}, map[wire.Flow][]wire.Range{}
	for _, b := range within(sc.blocks, parts) {
		src[string(appendKey(nil, b.flow, b.Range))] = b.data
		index[b.flow] = append(index[b.flow], b.Range)
	}
	for _, p := range parts {
		if len(index[p.flow]) != p.blocks {
			return &CorruptError{Segment: g.dir, Detail: fmt.Sprintf("%d blocks of %s are left of %d", len(index[p.flow]), p.flow, p.blocks)}
		}
	}
	g.src = src
	g.imu.Lock()
	g.index = index
	g.imu.Unlock()
	return nil
}

// countAttempt notes durably that a recovery begins, and returns which one it is.
func (s *Spool) countAttempt(dir string) (int, error) {
	path := filepath.Join(dir, attemptsName)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	n, _ := strconv.Atoi(string(old)) // unreadable counts as none
	n++
	err = s.step("recover:count", func() error { return os.WriteFile(path, []byte(strconv.Itoa(n)), 0o600) })
	if err == nil {
		err = syncPath(path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return n, err
}

// recoverThroughBadger replays the logs by a read-write open, checks every
// block, and seals. A *CorruptError asks for salvage.
func (s *Spool) recoverThroughBadger(g *segment, sc *scan) error {
	if err := removeEmptyLogs(g.dir); err != nil {
		return err
	}
	geo := s.geo.geometryOf(g.dir)
	if sc.tables && !sc.mems {
		// Sealing was cut off after the flush. A read-write open would delete
		// tables that a damaged manifest does not list: look first.
		if _, err := readOnlyBlocks(geo, g.dir); err != nil {
			return err
		}
	}
	var db *badger.DB
	err := s.step("recover:open", func() (err error) { db, err = geo.openAgain(g.dir); return err })
	if err != nil {
		return &CorruptError{Segment: g.dir, Detail: "it does not open", Err: err}
	}
	good, err := checkAll(db)
	h := &head{db: db}
	err = errors.Join(err, s.step("recover:close", func() error { return h.close(10 * sealTimeout) }))
	if err == nil {
		err = s.fault("recover:check")
	}
	if err != nil {
		return err
	}
	if !sc.tables && !sameBlocks(good, sc.blocks) {
		return &CorruptError{Segment: g.dir, Detail: fmt.Sprintf("%d blocks are left of %d", len(good), len(sc.blocks))}
	}
	if err := s.noteRecovered(g, good); err != nil {
		return err
	}
	if err := removeIfThere(filepath.Join(g.dir, attemptsName)); err != nil {
		return err
	}
	return s.writeSeal(g.dir, g.parts)
}

// readOnlyBlocks reads what the tables of a segment list, changing nothing.
func readOnlyBlocks(geo geometry, dir string) ([]scanned, error) {
	db, err := geo.openReadOnly(dir)
	if err != nil {
		return nil, &CorruptError{Segment: dir, Detail: "it does not open", Err: err}
	}
	blocks, err := checkAll(db)
	if err == nil && len(blocks) == 0 {
		err = &CorruptError{Segment: dir, Detail: "its manifest lists no table"}
	}
	return blocks, errors.Join(err, db.Close())
}

// removeEmptyLogs deletes what a crash inside a recovery leaves: logs of no
// length, which Badger refuses, and write-ahead logs that hold nothing, which a
// read-only open refuses.
func removeEmptyLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil {
			return err
		}
		path := filepath.Join(dir, e.Name())
		empty := (isMem(e.Name()) || isVlog(e.Name())) && fi.Size() == 0
		if isMem(e.Name()) && !empty {
			data, err := readLog(path, secret{}) // only its length counts
			if err != nil {
				return err
			}
			empty = len(data) <= logHeader
		}
		if empty {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkAll reads every block of an open database. What the last transaction
// could not bring to the disk was never acknowledged and is left out.
func checkAll(db *badger.DB) ([]scanned, error) {
	sc := new(scan)
	err := db.View(func(txn *badger.Txn) error {
		return readKeys(db, func(f wire.Flow, r wire.Range, version uint64) error {
			b := scanned{record{flow: f, Range: r}, version}
			item, err := txn.Get(appendKey(nil, f, r))
			if err == nil {
				b.data, err = item.ValueCopy(nil)
			}
			h, bad := wire.Header{}, err
			if bad == nil {
				h, bad = checkBlock(f, r, b.data)
			}
			if bad != nil {
				b.data = nil
			}
			b.accepted = h.Accepted
			sc.blocks, sc.last = append(sc.blocks, b), max(sc.last, version)
			return nil
		})
	})
	sc.settle()
	if err == nil && sc.damaged {
		err = &CorruptError{Detail: "a block is not what was written"}
	}
	return sc.blocks, err
}

func sameBlocks(a, b []scanned) bool {
	return slices.EqualFunc(a, b, func(a, b scanned) bool { return a.flow == b.flow && a.Range == b.Range })
}

// noteRecovered fills in what g holds, of what was published if that is known,
// and writes its ids beside it.
func (s *Spool) noteRecovered(g *segment, blocks []scanned) error {
	blocks = within(blocks, g.limit)
	g.parts = partsOf(blocks)
	recs := s.idsOf(blocks)
	if len(recs) == 0 {
		return nil
	}
	s.noteIDs(recs)
	path := filepath.Join(g.dir, idsName)
	if err := os.WriteFile(path, appendIDs(nil, recs), 0o600); err != nil {
		return err
	}
	return syncPath(path)
}

// noteIDs keeps ids for loadIDs; a running spool knows them already.
func (s *Spool) noteIDs(recs []idRecord) {
	if s.keeper == nil {
		s.recovered = append(s.recovered, recs...)
	}
}

// repair recovers a head that could not be sealed, as after a crash.
func (s *Spool) repair(g *segment) error {
	g.use.Lock()
	defer g.use.Unlock()
	if g.head != nil {
		err := s.marginLeft()
		if err == nil {
			err = s.reserved(func() error { return g.head.close(sealTimeout) })
		}
		if !errors.Is(err, errNoReserve) {
			g.src = nil
		}
		if errors.Is(err, errClosing) || errors.Is(err, errNoReserve) {
			return err
		}
	}
	s.mu.RLock()
	old := &segment{num: g.num, dir: g.dir, limit: append([]part{}, g.parts...)}
	s.mu.RUnlock()
	if err := s.recoverHead(old); err != nil {
		return err
	}
	s.becomeSealed(g, old.parts)
	return nil
}

// partsOf sums up blocks, which stand in order.
func partsOf(blocks []scanned) (out []part) {
	for _, b := range blocks {
		p := partOf(out, b.flow)
		if p == nil {
			out = append(out, part{flow: b.flow, oldest: b.accepted})
			p = &out[len(out)-1]
		}
		p.extend(b.Range)
		p.blocks++
		p.bytes += int64(len(b.data))
	}
	return out
}

// idsOf reads the publisher ids that are still remembered.
func (s *Spool) idsOf(blocks []scanned) (out []idRecord) {
	var dec *wire.Decoder
	for _, b := range blocks {
		if !s.fresh(b.accepted) {
			continue
		}
		if dec == nil {
			dec = wire.NewDecoder()
		}
		blk, err := dec.Decode(b.data, false)
		if err != nil {
			continue // its checksums are right: a newer version, of which the ids are not ours to know
		}
		for i := range blk.Messages {
			if id := blk.Messages[i].ID; id != "" {
				out = append(out, idRecord{key: hashID(id), flow: b.flow, seq: b.First + uint64(i), at: b.accepted})
			}
		}
	}
	return out[max(0, len(out)-maxIDs):]
}
