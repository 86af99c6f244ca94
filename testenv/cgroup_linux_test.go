package testenv

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// memoryGroup makes a cgroup that allows so many bytes, page cache included, of
// version 2 or 1. It skips the test where that is not possible.
func memoryGroup(t *testing.T, limit int64) (dir string, killed func() string) {
	t.Helper()
	name := fmt.Sprintf("fieldpost-test-%d", os.Getpid())
	for _, v := range []struct{ root, limit, events string }{
		{"/sys/fs/cgroup", "memory.max", "memory.events"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"},
	} {
		dir := filepath.Join(v.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) }) // empty by then: the processes are gone
		if writeExisting(filepath.Join(dir, v.limit), strconv.FormatInt(limit, 10)) != nil {
			continue
		}
		return dir, func() string {
			text, err := os.ReadFile(filepath.Join(dir, v.events))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
					return strings.TrimSpace(n)
				}
			}
			return "0"
		}
	}
	t.Skip("needs a writable memory cgroup")
	return "", nil
}

// writeExisting does not make a file in a folder that is no cgroup.
func writeExisting(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// TestSmallMemory runs an agent in 128 MB, page cache included, through a
// backlog that is larger.
func TestSmallMemory(t *testing.T) {
	short(t)
	group, killed := memoryGroup(t, 128<<20)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "spool: {max_bytes: 700MiB}\n")
	if err := writeExisting(filepath.Join(group, "cgroup.procs"), strconv.Itoa(a.PID())); err != nil {
		t.Skipf("the agent cannot be put into the cgroup: %v", err)
	}
	a.Link.Cut(true)
	s, _ := seed(t)
	rnd, block := rand.New(rand.NewPCG(s, 2)), make([]byte, 64<<10)
	const large = 3000 // 190 MB
	a.publishAll(t, large, 64, func(int) []byte {
		for i := 0; i < len(block); i += 8 {
			copy(block[i:], strconv.FormatUint(rnd.Uint64(), 36))
		}
		return bytes.Clone(block)
	})
	load := w.StartLoad(a, time.Millisecond, s)
	time.Sleep(3 * time.Second) // of small messages beside the backlog
	a.Link.Cut(false)
	Eventually(t, 5*time.Minute, "the backlog drains", func() error {
		left, err := a.Backlog()
		if err == nil && left > large/5 {
			err = fmt.Errorf("%d messages are left", left)
		}
		return err
	})
	load.Stop()
	w.Drain(time.Minute)
	if n := killed(); n != "0" || !a.Running() {
		t.Fatalf("the agent was killed %s times for its memory", n)
	}
	a.Stop(30 * time.Second)
}
