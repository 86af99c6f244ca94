//go:build !unix

package spool

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockFolder refuses a second agent: this platform does not remove a file that
// another process has open.
func lockFolder(path string) (*os.File, error) {
	if err := removeIfThere(path); err != nil {
		return nil, fmt.Errorf("%w: another process has %s open; stop that agent, or give this one a data_dir of its own", ErrLocked, filepath.Dir(path))
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// lockToLook is lockFolder: there is no gentler way to learn whether a process
// has the file open.
func lockToLook(path string) (*os.File, error) { return lockFolder(path) }
