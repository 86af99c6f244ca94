package testenv

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Cluster is three NATS servers as processes, each with its own folder.
type Cluster struct {
	Nodes  []*Process
	Addrs  []string // for clients
	names  []string
	health []string
	tb     TB
}

// NewCluster starts three servers and waits until they agree on a leader.
func NewCluster(tb TB, dir string) *Cluster {
	tb.Helper()
	return newClusterAt(tb, dir, freeAddr(tb))
}

// newClusterAt is NewCluster with the first server's address for clients.
func newClusterAt(tb TB, dir, addr string) *Cluster {
	tb.Helper()
	c := &Cluster{tb: tb}
	var routes []string
	for i := range 3 {
		c.names = append(c.names, fmt.Sprint("n", i))
		c.Addrs, c.health, routes = append(c.Addrs, freeAddr(tb)), append(c.health, freeAddr(tb)), append(routes, freeAddr(tb))
	}
	c.Addrs[0] = addr
	node := Build(tb).Node
	for i, name := range c.names {
		c.Nodes = append(c.Nodes, NewProcess(tb, name, filepath.Join(dir, name+".log"), node,
			"-name", name, "-store", filepath.Join(dir, name), "-listen", c.Addrs[i], "-health", c.health[i],
			"-cluster", routes[i], "-routes", strings.Join(routes, ",")))
		c.Nodes[i].Start()
	}
	for i := range c.Nodes {
		c.Wait(i)
	}
	return c
}

// Wait waits until a server has caught up with the others. One that does not get
// there is started anew, as a supervisor does that asks for its health: nats-server
// 2.15 was seen to hang in the middle of its recovery, and to start at once then.
func (c *Cluster) Wait(i int) {
	c.tb.Helper()
	healthy := func() error { return ok(http.Get("http://" + c.health[i] + "/healthz")) }
	for patient := time.Now().Add(time.Minute); healthy() != nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(patient) {
			c.tb.Logf("%s is not healthy after a minute; it is started anew", c.names[i])
			c.Nodes[i].Kill()
			c.Nodes[i].Start()
			break
		}
	}
	Eventually(c.tb, 90*time.Second, c.names[i]+" is healthy", healthy)
}

// NewClusterWorld is hub instances on a cluster of three NATS servers, and agents
// that know all three. The world's own hub is the last of them.
func NewClusterWorld(tb TB, instances int) (w *World, c *Cluster, hubs []*Process) {
	tb.Helper()
	w = &World{TB: tb, Dir: shortDir(tb), Binaries: Build(tb), History: NewHistory()}
	c = NewCluster(tb, w.Dir)
	w.NATS, w.Servers = c.Addrs[0], c.Addrs[1:]
	for i := range instances {
		name, http := fmt.Sprint("hub-", i), freeAddr(tb)
		cfg := w.write(name+".yaml", fmt.Sprintf("data_dir: %q\nnats: {urls: [\"nats://%s\"], max_store: 1GiB, replicas: 3}\nhttp: {listen: %q}\n",
			filepath.Join(w.Dir, name), strings.Join(c.Addrs, `","nats://`), http))
		hubs = append(hubs, NewProcess(tb, name, filepath.Join(w.Dir, name+".log"), w.Binaries.Hub, "run", "-c", cfg))
		w.Hub, w.HTTP, w.HubHTTP = hubs[i], http, append(w.HubHTTP, http)
		w.StartHub()
	}
	return w, c, hubs
}

// Leader is the server that leads a stream.
func (c *Cluster) Leader(stream string) (node int) {
	c.tb.Helper()
	nc, err := nats.Connect("nats://"+strings.Join(c.Addrs, ",nats://"), nats.MaxReconnects(-1))
	if err != nil {
		c.tb.Fatalf("%v", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		c.tb.Fatalf("%v", err)
	}
	node = -1
	Eventually(c.tb, 60*time.Second, stream+" has a leader", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		if info := s.CachedInfo().Cluster; info != nil {
			for i, name := range c.names {
				if name == info.Leader {
					node = i
					return nil
				}
			}
		}
		return fmt.Errorf("none")
	})
	return node
}
