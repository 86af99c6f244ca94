//go:build !linux

package spool

import (
	"errors"
	"os"
	"runtime"
)

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // not offered there
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func syncData(f *os.File) error { return f.Sync() }

// freeBytes knows nothing here: max_bytes alone bounds the spool.
func freeBytes(string) (free, size int64, err error) { return 1 << 40, 1 << 42, nil }

func allocated(fi os.FileInfo) int64 { return fi.Size() }

func preallocate(f *os.File, size int64) error {
	if fi, err := f.Stat(); err != nil || fi.Size() >= size {
		return errors.Join(err)
	}
	return writeZeros(f, size)
}

type mapping struct{}

func mappings(string, string) ([]mapping, error) { return nil, nil }

func singly([]mapping) {}

func letGo([]mapping) {}

func dropCache(*os.File) {}

func mapShared(*os.File, int) []byte { return nil }

func unmap([]byte) {}

// dataEnd is an offset behind which f holds only zeros.
func dataEnd(_ *os.File, size int64) int64 { return size }

// bootID is 0: what a run of the machine is cannot be known.
func bootID() uint64 { return 0 }

func probe(*os.File) error { return nil }
