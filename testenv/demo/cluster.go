package main

import (
	"context"
	"time"

	"github.com/fieldpost/fieldpost/testenv"
)

// clusterStory kills hubs and servers under two agents that publish.
func clusterStory(s *scratch, p pace) {
	s.say("three NATS servers, two hubs and two agents start; every stream has three replicas")
	w, c, hubs := testenv.NewClusterWorld(s, 2)
	north, south := w.AddAgent("north", ""), w.AddAgent("south", "")
	s.say("NATS on %v; hubs pid %d and %d; ask one with: fieldpost-hub status --http %s", c.Addrs, hubs[0].PID(), hubs[1].PID(), w.HTTP)

	ctx, stop := context.WithCancel(context.Background())
	arrived := watch(s, w.NATS)
	publishers := []*publisher{startPublisher(ctx, w, north), startPublisher(ctx, w, south)}
	s.say("publishing this machine's readings; what arrives in EDGE:")
	s.pause(p.calm)
	arrived.stop()

	held := func() string { return "north holds " + backlog(north) + "; south " + backlog(south) }
	for i, stream := range []string{"BLOCKS", "EDGE"} {
		leader := c.Leader(stream)
		s.say("kill -9 of hub %d and of the server that leads %s", i, stream)
		hubs[i].Kill()
		c.Nodes[leader].Kill()
		s.until(p.cut, held)
		s.say("both start again")
		c.Nodes[leader].Start()
		hubs[i].Start()
		c.Wait(leader)
		s.until(p.after, held)
	}
	s.say("a rolling restart of the servers, while the agents go on")
	for i, node := range c.Nodes {
		node.Stop(30 * time.Second)
		node.Start()
		c.Wait(i)
		s.say("server %d is back; %s", i, held())
	}

	stop()
	for _, pub := range publishers {
		pub.wait()
	}
	s.say("publishing has ended; reading everything back from EDGE with an ordinary NATS client")
	verdict(s, w.Settle(60*time.Second))
}
