//go:build unix

package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFolder takes the exclusive lock of the folder, which ends with the process.
func lockFolder(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return flock(f, unix.LOCK_EX)
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
	return flock(f, unix.LOCK_SH)
}

// lockPatience outlives a process that is just ending, and a child of the last
// holder between its fork and its exec.
const lockPatience = 500 * time.Millisecond

// flock locks f or closes it.
func flock(f *os.File, how int) (*os.File, error) {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, err
		case time.Since(began) > lockPatience:
			f.Close()
			return nil, fmt.Errorf("%w: another process has %s open; stop that agent, or give this one a data_dir of its own", ErrLocked, filepath.Dir(f.Name()))
		}
	}
}
