package testenv

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

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
	c := &Cluster{tb: tb}
	var routes []string
	for i := range 3 {
		c.names = append(c.names, fmt.Sprint("n", i))
		c.Addrs, c.health, routes = append(c.Addrs, freeAddr(tb)), append(c.health, freeAddr(tb)), append(routes, freeAddr(tb))
	}
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

// Wait waits until a server has caught up with the others.
func (c *Cluster) Wait(i int) {
	c.tb.Helper()
	Eventually(c.tb, 90*time.Second, c.names[i]+" is healthy", func() error { return ok(http.Get("http://" + c.health[i] + "/healthz")) })
}

// Leader is the server that leads a stream.
func (c *Cluster) Leader(js jetstream.JetStream, stream string) (node int) {
	c.tb.Helper()
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
