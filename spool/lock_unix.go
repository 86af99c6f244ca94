//go:build unix

package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFolder takes the exclusive lock of the folder, which ends with the process.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, err
	}
	return f, nil
}

// lockToLook takes the same lock without changing anything. Where there is no
// lock file nobody has the folder open, and nil is returned.
func lockToLook(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, err
	}
	return f, nil
}

func inUse(path string) error {
	return fmt.Errorf("%w: another process has %s open; stop that agent, or give this one a data_dir of its own", ErrLocked, filepath.Dir(path))
}
