package testenv

import (
	"errors"
	"flag"
	"testing"
	"time"
)

var powerCuts = flag.Int("power-cuts", 15, "power cuts of each power-loss run")

func newDisk(t *testing.T, megabytes int64) *Disk {
	t.Helper()
	short(t)
	d, err := NewDisk(t, megabytes)
	if errors.Is(err, ErrNoDisk) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPowerLossAtAgent cuts the power of the agent's disk while the link is up
// and down by turns; nothing acked may be missing.
func TestPowerLossAtAgent(t *testing.T) {
	disk := newDisk(t, 512)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.PrepareAgentIn(disk.Dir, "press-7", "")
	a.Start()
	w.WaitAgent(a)
	load := w.StartLoad(a, 2*time.Millisecond, s)
	for i := range *powerCuts {
		a.Link.Cut(i%2 == 1)
		time.Sleep(time.Duration(100+rnd.IntN(500)) * time.Millisecond)
		a.Freeze(false)
		disk.CutPower()
		a.Kill()
		disk.PowerOn()
		a.Start()
		w.WaitAgent(a)
	}
	load.Stop()
	a.Link.Cut(false)
	report(t, w)
}

// TestPowerLossAtHub cuts the power of the hub's disk; the agents have dropped
// what the hub acked, so that nothing acked may be missing there.
func TestPowerLossAtHub(t *testing.T) {
	disk := newDisk(t, 2048)
	s, rnd := seed(t)
	w := NewWorldIn(t, disk.Dir, "")
	for i := range 2 {
		w.StartLoad(w.AddAgent([]string{"press-0", "press-1"}[i], ""), 4*time.Millisecond, s+uint64(i))
	}
	for range *powerCuts {
		time.Sleep(time.Duration(200+rnd.IntN(600)) * time.Millisecond)
		w.Hub.Freeze(false)
		disk.CutPower()
		w.Hub.Kill()
		disk.PowerOn()
		w.StartHub()
	}
	w.stopLoads()
	report(t, w)
}
