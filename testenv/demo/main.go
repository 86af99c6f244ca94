// Command demo is what `make demo` runs: a hub and two agents as real processes
// on this machine, real readings of this machine, a link that is cut, an agent
// that is killed, and at the end the proof that every message which was
// acknowledged arrived exactly once and in order. Under a minute; the exit code
// tells.
//
// `make demo-cluster` runs the same with two hubs on a cluster of three NATS
// servers, of which some are killed.
//
// Reading order: main.go (the story), cluster.go (the other), readings.go (what is published),
// publisher.go (how), watch.go and screen.go (what is shown), scratch.go (a world
// outside a test).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fieldpost/fieldpost/testenv"
)

// pace is how long each part of the story takes.
type pace struct{ calm, cut, after time.Duration }

func main() { os.Exit(run()) }

func run() (code int) {
	bin := flag.String("bin", "bin", "folder of the programs")
	node := flag.String("cluster", "", "program of a NATS server: show a cluster of three of them instead")
	p := pace{}
	flag.DurationVar(&p.calm, "calm", 5*time.Second, "how long all is well at first")
	flag.DurationVar(&p.cut, "cut", 6*time.Second, "how long the link is cut")
	flag.DurationVar(&p.after, "after", 3*time.Second, "how long publishing goes on at the end")
	flag.Parse()

	s := newScratch()
	defer func() {
		failed := s.end(recover())
		if failed {
			code = 1
		}
	}()
	if err := programs(*bin, *node); err != nil {
		s.Fatalf("%v; make build first", err)
	}
	if *node != "" {
		clusterStory(s, p)
	} else {
		story(s, p)
	}
	return 0
}

// programs makes the world run what `make build` has built.
func programs(bin, node string) error {
	dir, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	b := testenv.Binaries{Agent: filepath.Join(dir, "fieldpost-agent"), Hub: filepath.Join(dir, "fieldpost-hub"), Node: node}
	for _, name := range []string{b.Agent, b.Hub} {
		if _, err := os.Stat(name); err != nil {
			return err
		}
	}
	testenv.UseBinaries(b)
	return nil
}

func story(s *scratch, p pace) {
	s.say("a hub and two agents start; agent north reaches the hub over a link that can be cut")
	w := testenv.NewWorld(s, "")
	north, south := w.AddAgent("north", ""), w.AddAgent("south", "")
	s.say("hub pid %d (nats %s, http %s), north pid %d, south pid %d", w.Hub.PID(), w.NATS, w.HTTP, north.PID(), south.PID())

	ctx, stop := context.WithCancel(context.Background())
	arrived := watch(s, w.NATS)
	publishers := []*publisher{startPublisher(ctx, w, north), startPublisher(ctx, w, south)}
	lines := startLines(ctx, w, north)
	s.say("publishing this machine's readings; what arrives at the hub:")
	s.pause(p.calm)

	s.say("the link of north is CUT; both go on publishing")
	arrived.stop()
	north.Link.Cut(true)
	s.until(p.cut, func() string { return "north holds " + backlog(north) + "; south " + backlog(south) })
	waiting, err := north.Backlog()
	if err != nil || waiting == 0 {
		s.Fatalf("north holds nothing although its link is cut (%v)", err)
	}

	s.say("the link is back; a hook of the network manager says so: fieldpost-agent link set unmetered")
	north.Link.Cut(false)
	if out, err := exec.Command(w.Binaries.Agent, "link", "set", "unmetered", "--socket", north.Socket).CombinedOutput(); err != nil {
		s.Fatalf("link set: %v\n%s", err, out)
	}
	drained(s, north, uint64(waiting))

	s.say("kill -9 of south (pid %d) while it takes messages, then a restart", south.PID())
	south.Kill()
	s.pause(300 * time.Millisecond)
	south.Start()
	w.WaitAgent(south)
	s.say("south runs again as pid %d", south.PID())
	s.pause(p.after)

	stop()
	for _, pub := range publishers {
		pub.wait()
	}
	lines.wait()
	s.say("publishing has ended; reading everything back from EDGE with an ordinary NATS client")
	verdict(s, w.Settle(20*time.Second))
}

// verdict says what Settle has proved; it does not return from a run that lost,
// doubled, reordered or changed anything.
func verdict(s *scratch, c testenv.Counts) {
	if c.Acked == 0 || c.Gone > 0 {
		s.Fatalf("nothing was proved: %s", c)
	}
	s.say("%d messages were acknowledged, and EDGE holds each exactly once, unchanged, in order per device and lane", c.Acked)
	if open := c.Sent - c.Acked; open > 0 {
		s.say("%d more were sent while south was dead or starting: never acknowledged, %d of them stored all the same", open, c.Stored-c.Acked)
	}
}

func backlog(a *testenv.Agent) string {
	n, err := a.Backlog()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d messages", n)
}

// drained shows the backlog of an agent shrink until only what has just been
// published is left.
func drained(s *scratch, a *testenv.Agent, from uint64) {
	began := time.Now()
	next := began.Add(time.Second)
	for deadline := began.Add(25 * time.Second); ; {
		n, err := a.Backlog()
		now := time.Now()
		switch {
		case err == nil && uint64(n) <= from/100:
			s.say("%s", bar(from, 0))
			s.say("drained %d messages and what came meanwhile %s after the link was back", from, now.Sub(began).Round(10*time.Millisecond))
			return
		case now.After(deadline):
			s.Fatalf("north is not drained: %d messages left, %v", n, err)
		case now.After(next):
			next = now.Add(time.Second)
			s.say("%s", bar(from, uint64(n)))
		default:
			s.line(bar(from, uint64(n)))
		}
		s.pause(20 * time.Millisecond)
	}
}
