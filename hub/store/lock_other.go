//go:build !unix

package store

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockDir makes this process the only one that uses dir: the open file cannot
// be removed by another process while this one lives.
func lockDir(dir string) (unlock func(), err error) {
	name := filepath.Join(dir, "LOCK")
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("store: another hub is running on %s; stop it, or give this one its own data_dir: %w", dir, err)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: lock of the data folder: %w", err)
	}
	return func() { f.Close() }, nil
}
