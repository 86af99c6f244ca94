package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

const reserveName = "RESERVE"

// reserve is a file of real blocks that is given up while Badger opens or
// closes a segment, and while the small files of a seal or a removal are
// written: so that a disk which has become full does not stop the spool from
// making room, and Badger finds the few pages it writes through mappings.
// Without them the process dies of SIGBUS.
type reserve struct {
	path string
	size int64

	mu sync.Mutex // held while it is given up
	ok bool       // the file has its blocks
}

// plenty is free space that no neighbour fills while a segment opens or closes.
const plenty = 96 << 20

// margin is free space without which no head is opened: Badger writes the first
// bytes of its files through mappings. That a neighbour arrives in between is
// survived (openBadger), but costs memory.
const margin = 4 << 20

// marginLeft is errNoReserve if there is less.
func (s *Spool) marginLeft() error {
	free, _, err := freeBytes(s.cfg.Dir)
	if err == nil && free < margin {
		err = fmt.Errorf("%w: %w: %d bytes are free", ErrDiskFull, errNoReserve, free)
	}
	return err
}

// errNoReserve means that neither the disk nor the reserve has the space that
// an open or close of Badger's needs. It has not begun.
var errNoReserve = errors.New("no disk space in reserve")

func (r *reserve) fill() error { r.mu.Lock(); defer r.mu.Unlock(); return r.refill() }

// refill takes the blocks if they are not there. mu is held.
func (r *reserve) refill() error {
	if r.ok {
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) { // it holds nothing: another does as well
		if err = os.Remove(r.path); err == nil {
			f, err = os.OpenFile(r.path, os.O_CREATE|os.O_RDWR, 0o600)
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(r.size); err != nil { // so that shortening it frees the blocks everywhere
		return err
	}
	if err := preallocate(f, r.size); err != nil {
		return err
	}
	r.ok = true
	return nil
}

// reserved runs do with the reserve given up if space is short, or not at all
// (errNoReserve) if there is none to give up.
func (s *Spool) reserved(do func() error) error {
	if s.readOnly {
		return do()
	}
	r := &s.reserve
	r.mu.Lock()
	defer r.mu.Unlock()
	free, _, err := freeBytes(s.cfg.Dir)
	if err != nil {
		return err
	}
	if free > plenty {
		return do()
	}
	if err := r.refill(); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrDiskFull, errNoReserve, err)
	}
	if err := os.Truncate(r.path, 0); err != nil {
		return err
	}
	r.ok = false
	defer func() {
		if err := r.refill(); err != nil {
			s.cfg.Log.Warn("spool: the reserve could not be taken back; no segment opens or closes before it is", "error", err)
		}
	}()
	return do()
}
