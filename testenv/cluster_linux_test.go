package testenv

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newClusterWorld is hub instances on a cluster of three NATS servers, and
// agents that know all three.
func newClusterWorld(t *testing.T, instances int) (w *World, c *Cluster, hubs []*Process) {
	t.Helper()
	short(t)
	w = &World{TB: t, Dir: shortDir(t), Binaries: Build(t), History: NewHistory()}
	c = NewCluster(t, w.Dir)
	w.NATS, w.Servers = c.Addrs[0], c.Addrs[1:]
	for i := range instances {
		name, http := fmt.Sprint("hub-", i), freeAddr(t)
		cfg := w.write(name+".yaml", fmt.Sprintf("data_dir: %q\nnats: {urls: [\"nats://%s\"], max_store: 1GiB, replicas: 3}\nhttp: {listen: %q}\n",
			filepath.Join(w.Dir, name), strings.Join(c.Addrs, `","nats://`), http))
		hubs = append(hubs, NewProcess(t, name, filepath.Join(w.Dir, name+".log"), w.Binaries.Hub, "run", "-c", cfg))
		w.Hub, w.HTTP = hubs[i], http
		w.StartHub()
	}
	return w, c, hubs
}

// TestClusterLosesNothing: hubs and NATS servers die, hang and are restarted in
// turn, while devices send.
func TestClusterLosesNothing(t *testing.T) {
	w, c, hubs := newClusterWorld(t, 2)
	s, rnd := seed(t)
	for i := range 3 {
		w.StartLoad(w.AddAgent(fmt.Sprintf("press-%d", i), ""), 5*time.Millisecond, s+uint64(i))
	}
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	pause := func(most int) { time.Sleep(time.Duration(rnd.IntN(most)) * time.Millisecond) }
	again := func(node int) {
		c.Nodes[node].Start()
		c.Wait(node)
	}
	for _, stream := range []string{"BLOCKS", "EDGE"} {
		pause(500)
		hubs[rnd.IntN(2)].Kill()
		leader := c.Leader(js, stream)
		c.Nodes[leader].Kill()
		pause(1500)
		for _, h := range hubs {
			if !h.Running() {
				h.Start()
			}
		}
		again(leader)
	}
	node := c.Leader(js, "BLOCKS")
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
