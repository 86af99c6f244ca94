package testenv

import (
	"fmt"
	"net/http"
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
	for i := range 12 {
		a.Link.Cut(i%3 == 1)
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		disk.Fill()
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
		disk.Relieve()
		w.WaitAgent(a)
	}
	a.Link.Cut(false)
	load.Stop()
	report(t, w)
}

// TestNeighbourAtHub fills the hub's disk to the last block and frees it again,
// while devices send. JetStream refuses every write after one has failed, until
// its server starts anew: the hub has to do that by itself.
func TestNeighbourAtHub(t *testing.T) {
	disk := newDisk(t, 256)
	s, rnd := seed(t)
	w := NewWorldIn(t, disk.Dir, "")
	for i := range 2 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 3*time.Millisecond, s+uint64(i))
	}
	for range 3 {
		time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
		disk.Fill()
		Eventually(t, 60*time.Second, "the hub says that its disk is full", func() error {
			err := ok(http.Get("http://" + w.HTTP + "/readyz"))
			if err == nil || !strings.Contains(err.Error(), "no space left") {
				return fmt.Errorf("readyz: %v", err)
			}
			return nil
		})
		time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
		disk.Relieve()
		w.WaitHub()
		if !w.Hub.Running() {
			t.Fatalf("the hub died of a full disk: %s", w.Hub.ended())
		}
	}
	w.stopLoads()
	report(t, w)
}
