//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// ownFolder refuses to open the data folder of another user: what is made in it
// would belong to us, and its hub could not open it any more.
func ownFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return nil //nolint:nilerr // the open says what is wrong
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to the user with id %d; do it as that user (sudo -u '#%d' …)", dir, st.Uid, st.Uid)
	}
	return nil
}
