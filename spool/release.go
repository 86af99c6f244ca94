package spool

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

// How a database is let go. Badger's Close would write a table of what its
// write-ahead log holds, through a mapping, in a goroutine of its own: if a
// neighbour takes the last block of the disk in that moment, the process dies of
// SIGBUS, however much was free a millisecond before. So a head is sealed as it
// is, log by log, and our own reader reads it. Badger is made to forget its
// write-ahead log, which deletes it, after a copy of the content was made with
// ordinary writes: they fail with an error.
const (
	memName     = "00001.mem"
	nextMemName = "00002.mem"
	blockerName = "BLOCK" // a folder that takes the place of the next log
	copySuffix  = ".copy"
)

// block makes the folder while there is space for it.
func (h *head) block() error { return os.Mkdir(filepath.Join(h.dir, blockerName), 0o700) }

// keep makes a durable copy of what the write-ahead log holds. The head goes on
// as before if that fails.
func (h *head) keep() error {
	from := filepath.Join(h.dir, memName)
	l, err := openLog(from, secret{})
	if err != nil {
		return err
	}
	end := min(l.end+8, l.size) // a checksum may end in zeros
	bad := l.bad
	if err := l.Close(); err != nil {
		return err
	}
	if bad {
		return errors.New(from + " cannot be read")
	}
	f, err := os.OpenFile(from+copySuffix, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.NewSectionReader(h.mem, 0, end))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = syncDir(h.dir)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(from+copySuffix))
	}
	return nil
}

// release closes the database and our descriptors; the write-ahead log is gone
// afterwards, its copy takes its place if there is one. It writes nothing that
// needs space. An error in the last steps leaves the files as after a crash.
func (h *head) release() error {
	if h.db != nil {
		if err := h.forget(); err != nil {
			return fmt.Errorf("let go of the database in %s: %w", h.dir, err)
		}
	}
	h.closeFiles()
	err := removeIfThere(filepath.Join(h.dir, nextMemName))
	if _, there := os.Lstat(filepath.Join(h.dir, memName+copySuffix)); there == nil {
		err = errors.Join(err, os.Rename(filepath.Join(h.dir, memName+copySuffix), filepath.Join(h.dir, memName)))
	}
	return err
}

// forget takes the write-ahead log away from Badger and closes it.
func (h *head) forget() (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("badger failed: %v", p)
		}
	}()
	if h.blocks > 0 { // else there is nothing that it would write
		if err := h.dropLog(); err != nil {
			return err
		}
	}
	err = h.db.Close()
	h.db = nil
	if err != nil {
		return fmt.Errorf("close: %w", err) // what was acknowledged was synced before
	}
	return nil
}

// dropLog: DropAll lets go of the write-ahead log first, then begins another.
// There it fails, as a folder is in its place, and goes no further.
func (h *head) dropLog() error {
	next := filepath.Join(h.dir, nextMemName)
	if err := os.Rename(filepath.Join(h.dir, blockerName), next); err != nil && !os.IsNotExist(err) {
		return err
	}
	fi, err := os.Lstat(next)
	if err == nil && !fi.IsDir() {
		err = errors.New("it is no folder")
	}
	if err != nil {
		return fmt.Errorf("%s must be in Badger's way: %w", next, err)
	}
	err = h.db.DropAll()
	if err == nil || !strings.Contains(err.Error(), "cannot open new memtable") {
		return fmt.Errorf("badger went on where it had to stop: %w", err)
	}
	return nil
}

// abandon closes a head whose content does not matter.
func (h *head) abandon() error {
	if h.db == nil && h.vlog == nil && h.mem == nil {
		return nil
	}
	return h.release()
}

func (h *head) closeFiles() {
	for _, f := range []*os.File{h.vlog, h.mem} {
		if f != nil {
			f.Close() // only ever used for fsync; nothing is buffered
		}
	}
	h.vlog, h.mem = nil, nil
}
