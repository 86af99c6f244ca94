package spool

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

const reserveName = "RESERVE"

// reserve is a file of real blocks that is given up while Badger opens or
// closes a segment, so that on a full disk it finds the few pages it writes
// through mappings: without them the process dies of SIGBUS.
type reserve struct {
	path string
	size int64

	mu sync.Mutex // held while it is given up
	ok bool       // the file has its blocks
}

// plenty is free space that no neighbour fills while a segment opens or closes.
const plenty = 96 << 20

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

// reserved runs do while it cannot meet a full disk, or not at all
// (errNoReserve).
func (s *Spool) reserved(do func() error) error {
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
	if free, _, err = freeBytes(s.cfg.Dir); err == nil && free < r.size*3/4 {
		return fmt.Errorf("%w: %w: a neighbour was faster", ErrDiskFull, errNoReserve)
	}
	return do()
}
