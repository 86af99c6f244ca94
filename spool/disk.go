package spool

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// writeZeros gives f real blocks where the file system cannot preallocate.
// Bytes that are already there are kept.
func writeZeros(f *os.File, size int64) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	buf, old := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < size; off += int64(len(buf)) {
		n := min(int64(len(buf)), size-off)
		chunk := buf[:n]
		if off < fi.Size() {
			clear(old)
			if _, err := f.ReadAt(old[:n], off); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			chunk = old[:n]
		}
		if _, err := f.WriteAt(chunk, off); err != nil {
			return err
		}
	}
	return nil
}

// diskUsage adds up the allocated bytes of everything below dir. What
// disappears during the walk counts nothing.
func diskUsage(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone: nothing to count
		}
		if fi, err := d.Info(); err == nil {
			n += allocated(fi)
		}
		return nil
	})
	return n
}

// diskError gives a failed write its sentinel: no space is ErrDiskFull, all
// else ErrDiskFault.
func diskError(op string, err error) error {
	for _, known := range []error{ErrFull, ErrDiskFull, ErrDiskFault, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), syscall.ENOSPC.Error()) // Badger does not wrap
	if full {
		return fmt.Errorf("%w: %s: %w; free some space on the file system of the spool", ErrDiskFull, op, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrDiskFault, op, err)
}
