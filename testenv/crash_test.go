package testenv

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the random runs; 0 draws one")
	kills     = flag.Int("kills", 100, "agent kills and link cuts of the crash runs; the hub is killed half as often")
	chaosTime = flag.Duration("chaos", 40*time.Second, "length of the run in which everything fails at random")
)

func TestMain(m *testing.M) {
	if os.Getenv(envHubDie) != "" {
		os.Exit(runDoomedHub())
	}
	flag.Parse()
	code := m.Run()
	RemoveBuilt()
	os.Exit(code)
}

// seed of this run; it is printed, and -seed repeats the run.
func seed(t *testing.T) (uint64, *rand.Rand) {
	s := *seedFlag
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("repeat with -seed=%d", s)
	return s, rand.New(rand.NewPCG(s, 1))
}

func short(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills many processes; left out by -short")
	}
}

func TestKillAgent(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	load := w.StartLoad(a, 2*time.Millisecond, s)
	for range *kills {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond) // the moment of death is the point
		a.Kill()
		a.Start()
		w.WaitAgent(a)
	}
	load.Stop()
	report(t, w)
}

func TestKillHub(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 4*time.Millisecond, s+uint64(i))
	}
	for range (*kills + 1) / 2 {
		time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
		w.Hub.Kill()
		w.StartHub()
	}
	w.stopLoads()
	report(t, w)
}

func TestCutLink(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	load := w.StartLoad(a, 2*time.Millisecond, s)
	for i := range *kills {
		time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
		down := time.Duration(rnd.IntN(200)) * time.Millisecond
		switch i % 4 {
		case 0: // resets, the link comes back at once
			a.Link.Cut(false)
		case 1: // gone for a while
			a.Link.Cut(true)
			time.Sleep(down)
			a.Link.Cut(false)
		case 2: // only the acks are lost, then the connection dies
			a.Link.Hole(Down, true)
			time.Sleep(down)
			a.Link.Cut(false)
			a.Link.Hole(Down, false)
		case 3: // a black hole that ends in a reset: what waited is gone
			a.Link.Hole(Up, true)
			a.Link.Hole(Down, true)
			time.Sleep(down)
			a.Link.Cut(false)
			a.Link.Hole(Up, false)
			a.Link.Hole(Down, false)
		}
	}
	load.Stop()
	report(t, w)
}

// TestBlackHoleIsFound: nobody closes anything, the agent must find out itself.
func TestBlackHoleIsFound(t *testing.T) {
	short(t)
	for _, d := range []Direction{Up, Down} {
		t.Run(map[Direction]string{Up: "frames", Down: "acks"}[d], func(t *testing.T) {
			t.Parallel()
			s, _ := seed(t)
			w := NewWorld(t, "")
			a := w.AddAgent("press-7", "")
			load := w.StartLoad(a, 5*time.Millisecond, s)
			time.Sleep(500 * time.Millisecond)
			a.Link.Hole(d, true)
			Eventually(t, 45*time.Second, "the agent says that the link is down", func() error {
				st, err := a.Status()
				if err == nil && st.Link.Up {
					err = fmt.Errorf("link is up")
				}
				return err
			})
			a.Link.Cut(false) // the old connections die with what waited in them
			a.Link.Hole(d, false)
			load.Stop()
			report(t, w)
		})
	}
}

func TestEverythingFailsAtRandom(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 4*time.Millisecond, s+uint64(i))
	}
	for end := time.Now().Add(*chaosTime); time.Now().Before(end); {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		a := w.Agents[rnd.IntN(len(w.Agents))]
		switch rnd.IntN(8) {
		case 0:
			w.Hub.Kill()
			time.Sleep(time.Duration(rnd.IntN(500)) * time.Millisecond)
			w.StartHub()
		case 1, 2:
			a.Kill()
			time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
			a.Start()
		case 3:
			a.Link.Cut(true)
		case 4:
			a.Link.Hole(Direction(rnd.IntN(2)), true)
		default:
			a.Link.Cut(false)
			a.Link.Hole(Up, false)
			a.Link.Hole(Down, false)
		}
	}
	for _, a := range w.Agents {
		a.Link.Cut(false)
		a.Link.Hole(Up, false)
		a.Link.Hole(Down, false)
		if !a.Running() {
			a.Start()
		}
		w.WaitAgent(a)
	}
	w.stopLoads()
	report(t, w)
}

func report(t *testing.T, w *World) {
	t.Helper()
	reportWithin(t, w, 120*time.Second)
}

func reportWithin(t *testing.T, w *World, limit time.Duration) {
	t.Helper()
	c := w.Settle(limit)
	t.Logf("%v: 0 lost, 0 duplicated, 0 reordered", c)
	if c.Acked < 100 {
		t.Fatalf("only %d messages were acked: the run proves nothing", c.Acked)
	}
}
