//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// checkOwner refuses a folder that others could have prepared: /tmp is open to all.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("socket folder: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("socket folder %s is not a folder that only this user can write to; remove it, or set socket.path", dir)
	}
	return nil
}

// checkPrivate refuses a file of secrets that others can read.
func checkPrivate(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o: others than its owner can read or change the keys; chmod 600 %s", f.Name(), mode, f.Name())
	}
	return nil
}
