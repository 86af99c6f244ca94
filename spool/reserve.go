package spool

import (
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
const plenty = 512 << 20

func (r *reserve) whole() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.ok }

func (r *reserve) fill() error { r.mu.Lock(); defer r.mu.Unlock(); return r.refill() }

// refill takes the blocks. mu is held.
func (r *reserve) refill() error {
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

// reserved runs do with the reserve given up. If it cannot be taken back at
// once, no head is opened before it can.
func (s *Spool) reserved(do func() error) error {
	r := &s.reserve
	r.mu.Lock()
	defer r.mu.Unlock()
	if free, _, err := freeBytes(s.cfg.Dir); err == nil && free > plenty {
		return do()
	}
	r.ok = false
	if err := os.Truncate(r.path, 0); err != nil && !os.IsNotExist(err) {
		return err
	}
	defer func() {
		if err := r.refill(); err != nil {
			s.cfg.Log.Warn("spool: the reserve could not be taken back; no new segment before it is", "error", err)
		}
	}()
	return do()
}
