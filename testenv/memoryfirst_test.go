package testenv

import (
	"fmt"
	"testing"
	"time"
)

// TestMemoryFirst: with durability: memory-first, only a crash while the link is
// up may cost anything. Cut links, dead hubs, stops, and crashes once the link
// is known to be down cost nothing.
func TestMemoryFirst(t *testing.T) {
	short(t)
	s, rnd := seed(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "spool: {durability: memory-first}\n")
	load := w.StartLoad(a, 2*time.Millisecond, s)
	for i := range max(*kills/5, 4) {
		time.Sleep(time.Duration(rnd.IntN(400)) * time.Millisecond)
		switch i % 4 {
		case 0:
			a.Link.Cut(true)
			time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
			a.Link.Cut(false)
		case 1:
			w.Hub.Kill()
			w.StartHub()
		case 2:
			if code := a.Stop(30 * time.Second); code != 0 {
				t.Fatalf("the agent stopped with %d", code)
			}
			a.Start()
			w.WaitAgent(a)
		case 3:
			a.Link.Cut(true)
			Eventually(t, 45*time.Second, "the link is down and nothing is in memory only", func() error {
				st, err := a.Status()
				if err == nil && (st.Link.Up || st.Memory > 0) {
					err = fmt.Errorf("link up: %v, %d bytes in memory", st.Link.Up, st.Memory)
				}
				return err
			})
			a.Kill()
			a.Link.Cut(false)
			a.Start()
			w.WaitAgent(a)
		}
	}
	load.Stop()
	report(t, w)
}
