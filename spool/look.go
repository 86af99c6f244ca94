package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	segmentPrefix = "seg-"
	trashPrefix   = "trash-"
	salvagePrefix = "salvage-"
	attemptsName  = "RECOVER" // written by earlier versions
	drainedName   = "DRAINED" // a head that was about to be removed
)

// found is what a look at the folder of one segment tells.
type found struct {
	num     uint64
	dir     string
	file    bool // it is no folder at all
	seal    *seal
	sealErr error // why there is no seal that counts
	scan    *scan // of one without
}

// look reads what the last run left and changes nothing: a folder that a newer
// program wrote must stay as it is, whatever else is wrong with it.
func (s *Spool) look() (m *meta, metaErr error, segs []found, err error) {
	m, metaErr = readMeta(s.metaPath())
	if errors.Is(metaErr, ErrLayout) {
		return nil, nil, nil, metaErr
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return nil, nil, nil, err
	}
	s.old = m
	s.witnesses = readWitnesses(filepath.Join(s.cfg.Dir, lastName))
	for _, e := range entries {
		name := e.Name()
		num, ok := numbered(name, segmentPrefix)
		if !ok {
			if _, ok = numbered(name, salvagePrefix); ok {
				if _, err := readSeal(filepath.Join(s.cfg.Dir, name)); errors.Is(err, ErrLayout) {
					return nil, nil, nil, err
				}
			}
			continue
		}
		f, err := s.lookAt(found{num: num, dir: filepath.Join(s.cfg.Dir, name), file: !e.IsDir()})
		if err != nil {
			return nil, nil, nil, err
		}
		segs = append(segs, f)
	}
	return m, metaErr, segs, nil
}

// ackedAtMost is the highest sequence of f that can have been acknowledged, if
// that is known: by the witness of the last run, or because a later run has
// decided, and said so in the meta file with its epoch. Open only.
func (s *Spool) ackedAtMost(f wire.Flow) (last uint64, known bool) {
	for _, w := range s.witnesses {
		if w.flow == f && w.exact() {
			return w.last, true
		}
	}
	if s.old == nil {
		return 0, false
	}
	for i, e := range s.old.Epochs {
		if e.Epoch == f.Epoch && i < len(s.old.Epochs)-1 {
			return e.Lanes[f.Lane].Last, true
		}
	}
	return 0, false
}

// numbered reads names as we write them. Others, such as seg-7.bak, are not ours.
func numbered(name, prefix string) (num uint64, ok bool) {
	num, err := strconv.ParseUint(strings.TrimPrefix(name, prefix), 10, 64)
	return num, err == nil && name == numberedName(prefix, num)
}

func numberedName(prefix string, num uint64) string { return fmt.Sprintf("%s%012d", prefix, num) }

// lookAt reads the seal of a segment, or its logs if there is none that counts.
func (s *Spool) lookAt(f found) (found, error) {
	if f.file {
		return f, nil
	}
	if _, err := os.Lstat(filepath.Join(f.dir, drainedName)); err == nil {
		f.sealErr = fs.ErrNotExist
		f.scan = &scan{dir: f.dir}
		return f, nil
	}
	f.seal, f.sealErr = readSeal(f.dir)
	if f.sealErr == nil {
		return f, nil
	}
	if errors.Is(f.sealErr, ErrLayout) {
		return f, f.sealErr
	}
	var err error
	if f.scan, err = scanSegment(s.geo.keys, f.dir); err != nil {
		return f, err
	}
	f.scan.acked = s.ackedAtMost
	for i := range s.witnesses {
		if s.witnesses[i].segment == f.num {
			f.scan.witness = &s.witnesses[i]
		}
	}
	return f, newerBlock(f.dir, f.scan.newer)
}

// newerBlock is ErrLayout for a block of a format that this program does not know.
func newerBlock(dir string, err error) error {
	if !errors.Is(err, wire.ErrVersion) {
		return nil
	}
	return fmt.Errorf("%w: %s holds a block that a newer Fieldpost wrote: %w; upgrade: install the newer Fieldpost again, or move the folder away to begin with an empty spool",
		ErrLayout, dir, err)
}
