package spool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is a small ext4 of its own, whose power can be cut.
type disk struct {
	image, mnt string
}

func newDisk(t testing.TB, megabytes int) *disk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounts a file system: needs root")
	}
	dir := t.TempDir()
	d := &disk{filepath.Join(dir, "image"), filepath.Join(dir, "mnt")}
	for _, cmd := range [][]string{
		{"truncate", "-s", fmt.Sprintf("%dM", megabytes), d.image},
		{"mkfs.ext4", "-q", "-m", "0", d.image},
		{"mkdir", d.mnt},
		{"mount", "-o", "loop", d.image, d.mnt},
	} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no small file system here: %v: %v: %s", cmd, err, out)
		}
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", d.mnt).Run() })
	return d
}

// cut drops everything that was not fsynced, and brings the disk back.
func (d *disk) cut(t testing.TB, unmount func()) {
	t.Helper()
	f, err := os.Open(d.mnt)
	if err != nil {
		t.Fatal(err)
	}
	flag := uint32(2) // no flush of the journal
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), 0x8004587d, uintptr(unsafe.Pointer(&flag)))
	f.Close()
	if errno != 0 {
		t.Fatalf("shutdown: %v", errno)
	}
	unmount()
	for _, cmd := range [][]string{{"umount", d.mnt}, {"mount", "-o", "loop", d.image, d.mnt}} {
		if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", cmd, err, out)
		}
	}
}

// TestPowerLoss cuts the power of a working spool at random moments.
// SPOOL_POWER_CYCLES raises the number of cycles.
func TestPowerLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system 20 times")
	}
	cycles := 20
	if n, err := strconv.Atoi(os.Getenv("SPOOL_POWER_CYCLES")); err == nil {
		cycles = n
	}
	d := newDisk(t, 256)
	l := newLedger()
	for i := range cycles {
		dir := filepath.Join(d.mnt, "spool")
		point := "none"
		if i%3 == 0 {
			point = "seal:none" // the hub takes nothing: heads are sealed
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|1", crashEnv, dir, point))
		var out lockedBuffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := rand.IntN(4000)
		eventually(t, "enough acks", func() bool { return out.Len() > after || strings.HasSuffix(out.String(), "end\n") })
		cmd.Process.Signal(syscall.SIGSTOP)
		d.cut(t, func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		l.collect(t, []byte(strings.ReplaceAll(out.String(), "error", "told"))) // it may have met the cut
		l.check(t, dir)
		if t.Failed() {
			t.Fatalf("in cycle %d", i)
		}
		if i%5 == 4 { // the parent's own retries are not in the ledger: begin anew
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			l = newLedger()
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) Len() int       { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Len() }
func (b *lockedBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// TestNeighbourFillsDisk fills the file system while segments rotate. The spool
// says so, keeps what it acked, survives being killed on the full disk, and
// goes on when there is space again.
func TestNeighbourFillsDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system")
	}
	d := newDisk(t, 96)
	dir := filepath.Join(d.mnt, "spool")
	l := newLedger()
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|1", crashEnv, dir, "seal:none"))
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "acks", func() bool { return out.Len() > 300*round || strings.HasSuffix(out.String(), "end\n") })
		fill := filepath.Join(d.mnt, "neighbour")
		_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=64k").Run() // until it fails
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if round%2 == 0 {
			cmd.Process.Kill()
			<-done
		} else {
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("the spool died of a full disk: %v\n%s", err, out.String())
				}
			case <-time.After(60 * time.Second):
				cmd.Process.Kill()
				t.Fatal("the spool hangs on a full disk")
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "error") && !strings.Contains(line, "disk full") {
				t.Errorf("child: %s", line)
			}
		}
		l.collect(t, []byte(strings.ReplaceAll(out.String(), "error", "told")))
		if round >= 2 { // opened while it is still full
			s, err := Open(crashConfig(dir))
			if err != nil {
				t.Fatalf("open on a full disk: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		l.check(t, dir)
		l = newLedger()
		os.RemoveAll(dir)
	}
}
