//go:build unix

package store

import "os"

// SyncDir makes the names in a folder durable.
func SyncDir(dir string) error { return syncFile(dir) }

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
