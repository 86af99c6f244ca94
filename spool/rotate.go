package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// newHead gives the lane a fresh head with room for bytes. The old one is
// sealed in the background. The committer is idle.
func (l *lane) newHead(bytes int64) error {
	s, old := l.s, l.seg
	g, err := s.takeHead(bytes)
	for range 3 { // another lane may be faster
		if !errors.Is(err, ErrFull) {
			break
		}
		roomErr := s.keeper.makeRoom(l.name, s.geo.headBytes()+max(0, bytes-s.geo.bytes))
		if roomErr != nil {
			if !errors.Is(roomErr, errNothingToDrop) {
				err = diskError("make room", roomErr)
			} else if s.cfg.WhenFull == DropOldest {
				err = fmt.Errorf("%w (%w: when_full: drop-oldest drops nothing of a more urgent lane)", err, roomErr)
			}
			break
		}
		g, err = s.takeHead(bytes)
	}
	if old != nil && (err == nil || old.failed.Load()) {
		l.seg = nil
		s.keeper.retire(old)
	}
	if err != nil {
		s.setTrouble(err)
		return err
	}
	l.seg, l.head = g, g.head
	return nil
}

// takeHead returns the spare if there is one that is large enough, else it
// opens a new segment.
func (s *Spool) takeHead(bytes int64) (*segment, error) {
	s.openMu.Lock() // waits for a spare that is being opened
	defer s.openMu.Unlock()
	s.mu.Lock()
	g := s.spare
	if fits := g != nil && bytes <= s.geo.bytes; fits {
		s.spare = nil
	} else {
		g = nil
	}
	s.mu.Unlock()
	if g == nil {
		var err error
		if g, err = s.openHead(bytes); err != nil {
			s.mu.Lock()
			s.full = errors.Is(err, ErrFull)
			s.mu.Unlock()
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments = append(s.segments, g)
	s.full = false
	if errors.Is(s.trouble, ErrFull) || errors.Is(s.trouble, ErrDiskFull) {
		s.trouble = nil
	}
	return g, nil
}

// openHead makes a new segment. openMu is held.
func (s *Spool) openHead(bytes int64) (*segment, error) {
	need := s.geo.headBytes() + max(0, bytes-s.geo.bytes)
	if err := s.admitDisk(need); err != nil {
		return nil, err
	}
	if wait := time.Until(s.openAfter); wait > 0 {
		return nil, fmt.Errorf("%w; trying again in %v", s.openErr, wait.Round(time.Second))
	}
	s.mu.Lock()
	s.nextSegment++
	num := s.nextSegment
	s.mu.Unlock()
	g := &segment{num: num, dir: s.segmentDir(num), index: map[wire.Flow][]wire.Range{}}
	err := s.reserved(func() (err error) { g.head, err = s.createHead(g.dir, s.geo, bytes); return err })
	if errors.Is(err, errHalfOpen) { // not too often: each costs memory
		s.openErr = diskError("open segment "+g.dir, err)
		s.openAfter = time.Now().Add(min(time.Hour, time.Second<<s.openFaults))
		s.openFaults = min(s.openFaults+1, 12)
	}
	if err == nil {
		err = s.fault("rotate:done")
	}
	if err != nil {
		if g.head != nil {
			err = errors.Join(err, g.head.abandon(), os.RemoveAll(g.dir))
		}
		return nil, diskError("open segment "+g.dir, err)
	}
	g.src = badgerSource{g.head.db, g.head.pages}
	g.disk = diskUsage(g.dir)
	_, g.key = s.geo.keys.current()
	return g, nil
}

// admitDisk refuses a new head that would pass one of the limits.
func (s *Spool) admitDisk(need int64) error {
	if s.shortOf(need) > -s.lowWater() {
		return fmt.Errorf("%w: %d of %d bytes are taken and a segment needs %d more; it frees itself as the hub takes messages, or raise spool.max_bytes",
			ErrFull, s.diskUsed(), s.maxBytes, need)
	}
	if err := s.fault("rotate:statfs"); err != nil {
		return diskError("look at the free space of "+s.cfg.Dir, err)
	}
	free, _, err := freeBytes(s.cfg.Dir)
	if err != nil {
		return diskError("look at the free space of "+s.cfg.Dir, err)
	}
	if keep := max(s.cfg.KeepFree, margin); free-need < keep {
		return fmt.Errorf("%w: %d bytes are free on the file system of %s, a segment needs %d and %d are left to others",
			ErrDiskFull, free, s.cfg.Dir, need, keep)
	}
	if err := s.reserve.fill(); err != nil { // what guards the opening was not taken back yet
		return diskError("restore "+s.reserve.path, err)
	}
	return nil
}

// lowWater is how far below max_bytes a full spool has to come before it takes
// messages again, so that it does not go to and fro with every segment: unless
// nothing is left that could drain.
func (s *Spool) lowWater() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.full && s.cfg.WhenFull == Reject && slices.ContainsFunc(s.segments, func(g *segment) bool { return g.sealed && !s.covered(g) }) {
		return s.maxBytes / 16
	}
	return 0
}

// diskUsed is the allocated bytes of everything in the folder.
func (s *Spool) diskUsed() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.rest
	for _, g := range s.segments {
		n += g.disk
	}
	if s.spare != nil {
		n += s.spare.disk
	}
	return n
}

// measureRest counts what is not a segment: meta, ids, quarantine, reserve.
func (s *Spool) measureRest() {
	n := int64(4096)
	for _, name := range []string{metaName, lockName, lastName, reserveName, "ids", quarantineName} {
		n += diskUsage(filepath.Join(s.cfg.Dir, name))
	}
	s.mu.Lock()
	s.rest = n
	s.mu.Unlock()
}

// Err is nil while the spool takes messages, else why not.
func (s *Spool) Err() error {
	s.mu.RLock()
	closed, trouble := s.closed, s.trouble
	s.mu.RUnlock()
	switch {
	case closed:
		return ErrClosed
	case errors.Is(trouble, ErrFull) || errors.Is(trouble, ErrDiskFull):
		if s.admitDisk(s.geo.headBytes()-s.idleBytes()) == nil {
			return nil // the next message finds room
		}
	}
	return trouble
}

// idleBytes is what makeRoom would free by removing what the hub has.
func (s *Spool) idleBytes() (n int64) {
	idle := s.idleSegments()
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, g := range idle {
		n += g.disk
	}
	return n
}
