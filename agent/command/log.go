package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Errors that callers branch on.
var (
	ErrDiskFull  = errors.New("command: disk full")
	ErrDiskFault = errors.New("command: disk fault")
)

func diskError(op string, err error) error {
	if errors.Is(err, ErrDiskFull) || errors.Is(err, ErrDiskFault) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %s: %w; free some space on the file system of data_dir", ErrDiskFull, op, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrDiskFault, op, err)
}

// Names in the folder.
const (
	logName   = "commands.log"
	freshName = "commands.log.new"
)

// points are the labelled steps; the name says what is about to be done.
var points = []string{
	"command:write", "command:sync", // something is added
	"command:fresh-write", "command:fresh-sync", "command:fresh-rename", "command:fresh-folder", // the log is written anew
	"command:aside", "command:report", // a damaged log is set aside
}

// Points lists the labelled steps, for tests and the crash runner.
func Points() []string { return append([]string(nil), points...) }

// log is the file. What was appended to it is durable when append has returned.
type log struct {
	dir    string
	fault  func(point string) error
	f      *os.File
	size   int64 // of what is good
	synced int64 // of what is durable, once the name is
	broken error // an fsync failed: nothing is certain until it is written anew
}

// append adds encoded records; durable: before it returns.
func (l *log) append(b []byte, durable bool) error {
	if l.broken != nil {
		return l.broken
	}
	err := l.fault("command:write")
	if err == nil {
		_, err = l.f.WriteAt(b, l.size)
	}
	if err != nil {
		err = diskError("write "+logName, err)
		if cut := l.f.Truncate(l.size); cut != nil {
			l.broken = err
		}
		return err
	}
	if durable {
		if err = l.fault("command:sync"); err == nil {
			err = l.f.Sync()
		}
		if err != nil {
			l.broken = diskError("fsync "+logName, err)
			return l.broken
		}
		l.synced = l.size + int64(len(b))
	}
	l.size += int64(len(b))
	return nil
}

// read returns the record at p.
func (l *log) read(p place) (record, error) {
	buf := make([]byte, p.size)
	if _, err := l.f.ReadAt(buf, p.off); err != nil {
		return record{}, diskError("read "+logName, err)
	}
	r, err := parseRecord(buf)
	if err != nil {
		return record{}, fmt.Errorf("%w: %s: damaged at byte %d", ErrDiskFault, logName, p.off)
	}
	return r, nil
}

func (l *log) close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f = nil
	return err
}

// replace puts a new log in the place of the old one: fill writes it. After an
// error the new one may be in place all the same.
func (l *log) replace(fill func(w io.Writer) (int64, error)) (inPlace bool, err error) {
	path := filepath.Join(l.dir, freshName)
	size, f, err := l.fresh(path, fill)
	if err != nil {
		return false, diskError("write "+logName+" anew", err)
	}
	if err = l.fault("command:fresh-rename"); err == nil {
		err = os.Rename(path, filepath.Join(l.dir, logName))
	}
	if err != nil {
		f.Close()
		return false, diskError("write "+logName+" anew", err)
	}
	if l.f != nil {
		l.f.Close() // it was only read from, or has failed before
	}
	l.f, l.size, l.synced, l.broken = f, size, size, nil
	if err = l.fault("command:fresh-folder"); err == nil {
		err = syncDir(l.dir)
	}
	if err != nil {
		l.broken = diskError("fsync the folder of "+logName, err)
		return true, l.broken
	}
	return true, nil
}

// fresh writes a log under another name, durable but for the name.
func (l *log) fresh(path string, fill func(w io.Writer) (int64, error)) (size int64, f *os.File, err error) {
	if err := l.fault("command:fresh-write"); err != nil {
		return 0, nil, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return 0, nil, err
	}
	size, err = fill(f)
	if err == nil {
		err = l.fault("command:fresh-sync")
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return 0, nil, errors.Join(err, os.Remove(path))
	}
	return size, f, nil
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // the agent is not offered there
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
