//go:build unix

package spool

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestLockOfOneWhoIsLeaving: a child between fork and exec, or a process that is
// just ending, has the lock for a moment longer than it should.
func TestLockOfOneWhoIsLeaving(t *testing.T) {
	cfg := small(t, t.TempDir())
	path := filepath.Join(cfg.Dir, lockName)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { f.Close() })
	open(t, cfg)
}
