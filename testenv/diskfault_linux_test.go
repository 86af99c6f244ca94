package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDeadDiskAtAgent: every access to the agent's disk fails from one moment
// on. The agent stays alive and says so; with the disk back and a restart
// everything acknowledged arrives.
func TestDeadDiskAtAgent(t *testing.T) {
	for name, die := range map[string]func(*Disk){
		"every access fails": (*Disk).CutPower,
		"read-only":          func(d *Disk) { d.run("mount", "-o", "remount,abort", d.Dir) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t, 512)
			s, _ := seed(t)
			w := NewWorld(t, "")
			a := w.PrepareAgentIn(disk.Dir, "press-7", "spool: {max_bytes: 64MiB, keep_free: 1MiB}")
			a.Start()
			w.WaitAgent(a)
			a.Link.Cut(true) // there is a backlog
			load := w.StartLoad(a, 2*time.Millisecond, s)
			time.Sleep(time.Second)
			a.Link.Cut(false)
			a.Freeze(true)
			die(disk)
			a.Thaw()
			Eventually(t, 20*time.Second, "it is not ready", func() error {
				if !a.Running() {
					t.Fatalf("the agent died with its disk: %s", a.ended())
				}
				resp, err := a.http.Get("http://agent/readyz")
				if err != nil {
					return err
				}
				resp.Body.Close()
				if resp.StatusCode != 503 {
					return fmt.Errorf("%s", resp.Status)
				}
				return nil
			})
			time.Sleep(2 * time.Second) // under load
			if err := a.Post("/v1/publish/a.b", "x"); err == nil || !strings.Contains(err.Error(), "disk_fault") {
				t.Errorf("publish: %v", err)
			}
			if !a.Running() {
				t.Fatalf("the agent died with its disk: %s", a.ended())
			}
			a.Stop(60 * time.Second)
			disk.PowerOn()
			a.Start()
			w.WaitAgent(a)
			load.Stop()
			if c := w.Settle(60 * time.Second); c.Gone > 0 || c.Acked < 50 {
				t.Errorf("%v", c)
			}
		})
	}
}

// TestNeighbourAtAgent fills the agent's disk at random moments, while it
// publishes, drains, is killed and starts again.
func TestNeighbourAtAgent(t *testing.T) {
	disk := newDisk(t, 160)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.PrepareAgentIn(disk.Dir, "press-7", "spool: {max_bytes: 48MiB, keep_free: 1MiB}")
	a.Start()
	w.WaitAgent(a)
	load := w.StartLoad(a, 2*time.Millisecond, s)
	fill := filepath.Join(disk.Dir, "neighbour")
	for i := range 12 {
		a.Link.Cut(i%3 == 1)
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		for size := 64 << 20; size >= 4096; size /= 2 { // to the last block
			for k := 0; exec.Command("fallocate", "-l", fmt.Sprint(size), fmt.Sprintf("%s-%d-%d", fill, size, k)).Run() == nil; k++ {
			}
		}
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		if !a.Running() {
			t.Fatalf("the agent died of a full disk: %s", a.ended())
		}
		if i%4 == 3 {
			a.Kill()
			a.Start() // on the full disk
		}
		Eventually(t, 20*time.Second, "it answers", func() error {
			if !a.Running() {
				t.Fatalf("the agent died of a full disk: %s", a.ended())
			}
			_, err := a.Status()
			return err
		})
		left, err := filepath.Glob(fill + "*")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range left {
			os.Remove(path)
		}
		w.WaitAgent(a)
	}
	a.Link.Cut(false)
	load.Stop()
	report(t, w)
}
