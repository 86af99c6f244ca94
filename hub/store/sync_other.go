//go:build !unix

package store

import "os"

// SyncDir does nothing: a folder cannot be synced here.
func SyncDir(string) error { return nil }

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
