package spool

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var neighbourRounds = flag.Int("neighbour-rounds", 4, "rounds of the neighbour that fills the disk at random moments")

// neighbour fills the file system of path again and again, to the last block,
// as fast as it can, and frees it after a random while, until stop is closed.
func neighbour(path string, rnd *rand.Rand, stop chan struct{}) {
	for {
		f, err := os.Create(path)
		if err != nil {
			return
		}
		for size := int64(32 << 20); size >= 4096; { // reserve large pieces at once, then ever smaller ones
			at, _ := f.Seek(0, 2)
			if err := unix.Fallocate(int(f.Fd()), 0, at, size); err != nil {
				size /= 2
			}
		}
		f.Close()
		if wait(stop, rnd.IntN(300)) {
			os.Remove(path)
			return
		}
		os.Remove(path)
		if wait(stop, rnd.IntN(100)) {
			return
		}
	}
}

func wait(stop chan struct{}, ms int) (stopped bool) {
	select {
	case <-stop:
		return true
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return false
	}
}

// TestNeighbourAtRandom: the disk is full at random moments while a spool
// publishes, rotates, seals, drains, is killed and starts again. It never dies
// of it, and nothing acknowledged is lost.
func TestNeighbourAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system")
	}
	d := newDisk(t, 128)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	acks := 0
	for round := range *neighbourRounds {
		dir := filepath.Join(d.mnt, fmt.Sprintf("spool-%d", round))
		l := newLedger()
		if err := open(t, crashConfig(dir)).Close(); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { defer close(done); neighbour(filepath.Join(d.mnt, "neighbour"), rnd, stop) }()
		for run := range 3 {
			point := "none"
			if run == 1 {
				point = "seal:none" // nothing is drained: heads are sealed
			}
			l.runFor(t, dir, point, time.Duration(1000+rand.IntN(1500))*time.Millisecond, run == 2)
			if t.Failed() {
				break
			}
		}
		close(stop)
		<-done
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
		acks += len(l.acked)
		l.check(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d messages acknowledged", acks)
	if acks == 0 {
		t.Error("nothing was ever acknowledged: the test proves nothing")
	}
}

// runFor runs a child that goes on after errors, for a while, then kills or
// stops it. It must not have ended by itself.
func (l *ledger) runFor(t *testing.T, dir, point string, d time.Duration, kill bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|-1", crashEnv, dir, point))
	var out, stderr lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		t.Errorf("it ended by itself: %v\n%s\n%s", err, tailOf(out.String()), tailOf(stderr.String()))
		return
	case <-time.After(d):
	}
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	cmd.Process.Signal(sig)
	select {
	case err := <-done:
		if !kill && err != nil {
			t.Errorf("stopped: %v\n%s\n%s", err, tailOf(out.String()), tailOf(stderr.String()))
		}
	case <-time.After(60 * time.Second):
		cmd.Process.Signal(syscall.SIGQUIT)
		<-done
		t.Errorf("it does not stop\n%s", tailOf(stderr.String()))
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "error") && !strings.Contains(line, "disk full") && !strings.Contains(line, "spool: full") {
			t.Errorf("child: %s", line)
		}
	}
	l.collect(t, []byte(strings.ReplaceAll(out.String(), "error", "told")))
}

func tailOf(s string) string { return s[max(0, len(s)-3000):] }
