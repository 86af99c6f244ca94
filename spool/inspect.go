package spool

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Inspect opens a spool that nobody has open to look at it, and changes nothing:
// what a crash left is served as it is, and what is damaged is judged as the next
// start would. It fails like Open (ErrLocked, ErrLayout, ErrKey), and with fs.ErrNotExist if
// there is no spool.
func Inspect(cfg Config) (*Inspector, error) {
	cfg.Log = nil // what is found is told by Segments and Verify
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(cfg.Dir); err != nil {
		return nil, fmt.Errorf("spool: inspect: %w", err)
	}
	lock, err := lockToLook(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("spool: lock the folder: %w", err)
	}
	s := &Spool{cfg: cfg, lock: lock, readOnly: true, time: spoolClock{host: *cfg.host}, offsets: map[wire.Epoch]int64{}, ids: newIDs(),
		updates: make(chan struct{}, 1), flows: map[wire.Flow]*flowState{}, tail: tail{blocks: map[tailKey][]byte{}}, dropped: map[wire.Reason]uint64{}}
	in := &Inspector{s: s}
	if err := in.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("spool: inspect %s: %w", cfg.Dir, err), in.Close())
	}
	return in, nil
}

// Close lets go of a folder that Inspect opened.
func (in *Inspector) Close() error {
	s := in.s
	if !s.readOnly {
		return nil
	}
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for _, g := range open {
		s.closeSealed(g)
	}
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// load takes over what the last run left, as Open does, without moving anything.
func (in *Inspector) load() error {
	s := in.s
	if err := s.size(); err != nil {
		return err
	}
	if err := s.geo.keys.check(s.cfg.Dir); err != nil {
		return err
	}
	m, metaErr, segs, err := s.look()
	if err != nil {
		return err
	}
	if m != nil {
		s.time.begin(m.Clock)
		s.takeMeta(m)
	} else {
		s.time.begin(metaClock{})
	}
	if metaErr != nil {
		in.broken(metaName, metaErr)
	}
	more, err := in.salvaged(segs)
	if err != nil {
		return err
	}
	segs = append(segs, more...)
	slices.SortFunc(segs, func(a, b found) int { return cmp.Compare(a.num, b.num) })
	for i := range segs {
		in.take(&segs[i])
		segs[i].scan = nil
	}
	s.preferLater()
	s.noteGaps()
	s.settleOffsets()
	return nil
}

// salvaged finds copies of damaged segments that a crash kept from their places.
func (in *Inspector) salvaged(segs []found) (more []found, err error) {
	entries, err := os.ReadDir(in.s.cfg.Dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		num, ok := numbered(e.Name(), salvagePrefix)
		if !ok || slices.ContainsFunc(segs, func(f found) bool { return f.num == num }) {
			continue
		}
		f := found{num: num, dir: filepath.Join(in.s.cfg.Dir, e.Name())}
		if f.seal, err = readSeal(f.dir); err == nil { // else it is not complete, and the next start throws it away
			more = append(more, f)
		}
	}
	return more, nil
}

func (in *Inspector) take(f *found) {
	g := &segment{num: f.num, dir: f.dir, sealed: true}
	switch {
	case f.file:
		in.broken(filepath.Base(f.dir), errors.New("a file is in the place of a segment"))
		return
	case f.seal != nil:
		g.parts = f.seal.parts()
	case f.scan.bare():
		return
	default:
		if !errors.Is(f.sealErr, fs.ErrNotExist) {
			f.scan.hurt("%v", f.sealErr)
		}
		in.s.serve(g, f.scan, nil)
	}
	in.s.adopt(g)
}

// broken notes what cannot be taken in.
func (in *Inspector) broken(name string, err error) {
	c := Check{}
	c.note(err)
	in.bad = append(in.bad, SegmentInfo{Segment: name, State: damagedState, Problem: c.Problem})
}
