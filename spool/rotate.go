package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// newHead gives the lane a fresh head with room for bytes. The old one is
// sealed in the background. The committer is idle.
func (l *lane) newHead(bytes int64) error {
	s, old := l.s, l.seg
	g, err := s.takeHead(bytes)
	if errors.Is(err, ErrFull) && old != nil && s.drained(old) {
		// A spool that is full of one delivered head must not stay full.
		l.seg = nil
		s.keeper.retire(old)
		s.keeper.wait()
		old = nil
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
	l.seg = g
	return nil
}

// takeHead returns the spare if there is one that is large enough, else it
// opens a new segment.
func (s *Spool) takeHead(bytes int64) (*segment, error) {
	s.openMu.Lock() // waits for a spare that is being opened
	defer s.openMu.Unlock()
	s.mu.Lock()
	g := s.spare
	if g != nil && bytes <= s.geo.bytes {
		s.spare = nil
		s.segments = append(s.segments, g)
		s.mu.Unlock()
		return g, nil
	}
	s.mu.Unlock()
	g, err := s.openHead(bytes)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.segments = append(s.segments, g)
	s.mu.Unlock()
	return g, nil
}

// openHead makes a new segment. openMu is held.
func (s *Spool) openHead(bytes int64) (*segment, error) {
	need := s.geo.headBytes() + max(0, bytes-s.geo.bytes)
	if err := s.admitDisk(need); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.nextSegment++
	num := s.nextSegment
	s.mu.Unlock()
	g := &segment{num: num, dir: s.segmentDir(num), index: map[wire.Flow][]wire.Range{}}
	err := s.reserved(func() (err error) { g.head, err = s.createHead(g.dir, s.geo, bytes); return err })
	if err == nil {
		err = s.fault("rotate:done")
	}
	if err != nil {
		if g.head != nil {
			err = errors.Join(err, g.head.abandon(), os.RemoveAll(g.dir))
		}
		return nil, diskError("open segment "+g.dir, err)
	}
	g.src = badgerSource{g.head.db}
	g.disk = diskUsage(g.dir)
	_, g.key = s.geo.keys.current()
	return g, nil
}

// admitDisk refuses a new head that would pass one of the limits.
func (s *Spool) admitDisk(need int64) error {
	if used := s.diskUsed(); used+need > s.maxBytes {
		return fmt.Errorf("%w: %d of %d bytes are taken and a segment needs %d more; it frees itself as the hub takes messages, or raise spool.max_bytes",
			ErrFull, used, s.maxBytes, need)
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
		if s.admitDisk(s.geo.headBytes()) == nil {
			return nil // the next message finds room
		}
	}
	return trouble
}
