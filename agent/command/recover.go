package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxAside is how many damaged logs are kept.
const maxAside = 4

// found is what reading a log has come to.
type found struct {
	book   *book
	good   int64  // where the last record ends that can be read
	bad    int64  // bytes before that which cannot
	spots  int    // in so many places
	reason string // not empty: the file is no log that we can go on with
}

// scan reads a log from its start. Damage in the middle is stepped over; behind
// the last record is a write that a crash cut off.
func scan(f io.ReaderAt, size int64) (found, error) {
	out := found{book: newBook(), good: int64(len(fileHead))}
	begin := make([]byte, len(fileHead))
	if _, err := f.ReadAt(begin, 0); err != nil && !errors.Is(err, io.EOF) {
		return out, err
	}
	if n := len(fileHead) - 1; string(begin) != fileHead {
		out.reason = "its first bytes are damaged"
		if string(begin[:n]) == fileHead[:n] {
			out.reason = fmt.Sprintf("it has version %d of the format; this agent knows version 1", begin[n])
		}
		return out, nil
	}
	for off := out.good; ; {
		next, raw, err := nextRecord(f, off, size)
		if err != nil || raw == nil {
			return out, err
		}
		r, err := parseRecord(raw)
		if err != nil { // the checksum is right: written by a version that knows more
			r = record{}
		}
		if next > off {
			out.bad += next - off
			out.spots++
		}
		out.book.apply(&r, place{next, len(raw), len(r.data)})
		off = next + int64(len(raw))
		out.good = off
	}
}

// nextRecord finds the first record at or behind off; nil if there is none.
// What cannot be read counts as damage.
func nextRecord(f io.ReaderAt, off, size int64) (int64, []byte, error) {
	if b := recordAt(f, off, size); b != nil {
		return off, b, nil
	}
	const window = 64 << 10
	buf := make([]byte, window+recordHead-1)
	for base := off; base < size; base += window {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-base)], base)
		if err != nil && !errors.Is(err, io.EOF) && n == 0 {
			continue // unreadable pages
		}
		for i := 0; i < min(window, n); i++ {
			if recordSize(buf[i:n]) == 0 {
				continue
			}
			if b := recordAt(f, base+int64(i), size); b != nil {
				return base + int64(i), b, nil
			}
		}
	}
	return 0, nil, nil
}

// recordAt returns the record that begins at off, if one does.
func recordAt(f io.ReaderAt, off, size int64) []byte {
	var begin [recordHead]byte
	if _, err := f.ReadAt(begin[:], off); err != nil {
		return nil
	}
	n := recordSize(begin[:])
	if n == 0 || off+int64(n) > size {
		return nil
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, off); err != nil {
		return nil
	}
	if check(b) != uint32(b[4])<<24|uint32(b[5])<<16|uint32(b[6])<<8|uint32(b[7]) {
		return nil
	}
	return b
}

// load opens the log of the folder, or begins one.
func (s *Store) load() error {
	err := os.MkdirAll(s.cfg.Dir, 0o700)
	if err == nil {
		err = syncDir(filepath.Dir(s.cfg.Dir))
	}
	if err != nil {
		return diskError("make the folder of commands", err)
	}
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, logName), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		s.book = newBook()
		return s.rewrite()
	}
	if err != nil {
		return diskError("open "+logName, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	var got found
	if err == nil {
		got, err = scan(f, size)
	}
	if err != nil {
		f.Close()
		return diskError("read "+logName, err)
	}
	s.log.close()
	s.log.f, s.log.size, s.book = f, got.good, got.book
	s.setClock()
	if got.reason != "" || got.bad > 0 {
		if err := s.setAside(got); err != nil {
			return err
		}
		// What was lost comes again only if it is asked for, and the hub has to hear
		// that the rest is here.
		s.book.after = 0
		for _, e := range s.book.order {
			e.noted = false
		}
		return s.rewrite()
	}
	if got.good < size { // the cut must be durable before something is appended
		s.cfg.Log.Info("commands: a write that was cut off by a crash is removed", "file", logName, "bytes", size-got.good)
		if err := f.Truncate(got.good); err != nil {
			return diskError("shorten "+logName, err)
		}
	}
	// A crash may have come between a write and its fsync: what was read counts
	// from now on, so it has to stay.
	if err := f.Sync(); err != nil {
		return diskError("fsync "+logName, err)
	}
	s.log.synced, s.log.broken = got.good, nil
	return nil
}

// setAside copies a damaged log, with a report beside it, and tells of it.
func (s *Store) setAside(got found) error {
	why := got.reason
	if why == "" {
		why = fmt.Sprintf("%d bytes in %d places are damaged", got.bad, got.spots)
	}
	name := "damaged-" + s.cfg.Now().UTC().Format("20060102T150405.000") + ".log"
	report := fmt.Sprintf("file: %s\nfound: %s\nreason: %s\ncommands that could be read: %d\n"+
		"effect: a command whose end was in a damaged place is handed out again under its id; one that was there as a whole comes again from the hub, if it still has it.\n",
		name, s.cfg.Now().UTC().Format(time.RFC3339), why, len(got.book.entries))
	err := s.fault("command:aside")
	if err == nil {
		err = copyFile(s.log.f, filepath.Join(s.cfg.Dir, name))
	}
	if err == nil {
		err = s.fault("command:report")
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.cfg.Dir, name+".txt"), []byte(report), 0o600)
	}
	if err != nil {
		return diskError("set the damaged "+logName+" aside", err)
	}
	s.cfg.Log.Error("commands: the memory of commands was damaged and is set aside; what is readable goes on", "reason", why, "file", name, "report", name+".txt")
	old, err := filepath.Glob(filepath.Join(s.cfg.Dir, "damaged-*.log"))
	if err != nil {
		return nil //nolint:nilerr // the pattern is ours
	}
	for _, o := range old[:max(0, len(old)-maxAside)] { // Glob sorts, names begin with the time
		if err := errors.Join(os.Remove(o), os.Remove(o+".txt")); err != nil {
			s.cfg.Log.Warn("commands: an old damaged log stays", "file", o, "error", err)
		}
	}
	return nil
}

// copyFile copies what can be read of f; the rest is zeros.
func copyFile(f *os.File, to string) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	page := make([]byte, 4096)
	for off := int64(0); off < size && err == nil; off += int64(len(page)) {
		n, readErr := f.ReadAt(page, off)
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			clear(page)
			n = int(min(int64(len(page)), size-off))
		}
		_, err = out.WriteAt(page[:n], off)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// rewrite puts what is needed into a new log. What cannot be copied has failed.
func (s *Store) rewrite() error {
	now := s.now()
	s.book.memory.forget(now)
	places := map[*entry]place{}
	inPlace, err := s.log.replace(func(f io.Writer) (int64, error) {
		w := bufio.NewWriterSize(f, 64<<10)
		off := int64(0)
		put := func(b []byte) (err error) {
			off += int64(len(b))
			_, err = w.Write(b)
			return err
		}
		err := put([]byte(fileHead))
		if err == nil {
			err = put(appendRecord(nil, &record{kind: kindCursor, head: head{Clock: now, Stream: s.book.stream, After: s.book.after}}))
		}
		const chunk = 1024
		for i := 0; i < len(s.book.memory.order) && err == nil; i += chunk {
			n := min(chunk, len(s.book.memory.order)-i)
			err = put(appendRecord(nil, &record{kind: kindRemembered, head: head{Clock: now}, data: s.book.memory.encode(i, n)}))
		}
		for _, e := range s.book.order {
			if err != nil {
				break
			}
			b := appendRecord(nil, s.copied(e, now))
			places[e] = place{off, len(b), e.at.data}
			err = put(b)
		}
		return off, errors.Join(err, w.Flush())
	})
	if inPlace {
		for e, p := range places {
			e.at = p
		}
	}
	return err
}

// copied is the record of e with its payload or result out of the old log.
func (s *Store) copied(e *entry, now int64) *record {
	r := e.record(now)
	if e.at.size == 0 {
		return r
	}
	old, err := s.log.read(e.at)
	if err == nil {
		r.data = bytes.Clone(old.data)
		return r
	}
	s.cfg.Log.Error("commands: the payload or result of a command cannot be read any more", "id", e.id, "error", err)
	if e.settled() {
		s.book.results -= e.at.data
		e.at.data, e.reason = 0, "its result was damaged on the disk of the device"
	} else {
		if e.by != nil {
			e.by.leased--
		}
		s.book.settle(s.final(e, wire.CommandFailed, "its payload was damaged on the disk of the device"), place{})
	}
	return e.record(now)
}
