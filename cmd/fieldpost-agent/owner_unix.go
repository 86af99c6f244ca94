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

// ownFolder refuses to change a folder that belongs to another user: what is
// made in it would belong to us, and its owner could not open it any more.
func ownFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil //nolint:nilerr // the open says what is wrong
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to the user with id %d, and no agent runs; do it as that user (sudo -u '#%d' …), or while the agent runs", dir, st.Uid, st.Uid)
	}
	return nil
}
