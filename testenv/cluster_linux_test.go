package testenv

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestClusterLosesNothing: hubs and NATS servers die, hang and are restarted in
// turn, while devices send.
func TestClusterLosesNothing(t *testing.T) {
	short(t)
	w, c, hubs := NewClusterWorld(t, 2)
	s, rnd := seed(t)
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 5*time.Millisecond, s+uint64(i))
	}
	pause := func(most int) { time.Sleep(time.Duration(rnd.IntN(most)) * time.Millisecond) }
	again := func(node int) {
		c.Nodes[node].Start()
		c.Wait(node)
	}
	for _, stream := range []string{"BLOCKS", "EDGE"} {
		pause(500)
		hubs[rnd.IntN(2)].Kill()
		leader := c.Leader(stream)
		c.Nodes[leader].Kill()
		pause(1500)
		for _, h := range hubs {
			if !h.Running() {
				h.Start()
			}
		}
		again(leader)
	}
	node := c.Leader("BLOCKS")
	c.Nodes[node].Signal(syscall.SIGSTOP) // it is cut off, and does not know it
	time.Sleep(4 * time.Second)
	c.Nodes[node].Signal(syscall.SIGCONT)
	c.Wait(node)
	for i := range c.Nodes { // a rolling restart
		c.Nodes[i].Stop(60 * time.Second)
		again(i)
	}
	for _, h := range hubs {
		h.Stop(60 * time.Second)
		h.Start()
	}
	Eventually(t, 90*time.Second, "a hub is ready", func() error { return ok(http.Get("http://" + w.HTTP + "/readyz")) })
	w.stopLoads()
	reportWithin(t, w, 240*time.Second)
}
