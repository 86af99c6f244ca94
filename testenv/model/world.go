package model

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Rules are the rules of the protocol that a run leaves out.
type Rules struct {
	NoOverlapCheck bool // a block that is partly received is stored
	SameEpoch      bool // a run goes on with the epoch of the one before
	NoMark         bool // a subject is emptied without keeping its received set
	NoUnpackGuard  bool // an unpacker writes whatever the stream's last sequence
}

// Config is one run.
type Config struct {
	Seed  uint64
	Steps int // of trouble; then all settles
	Rules Rules
}

// world is one run.
type world struct {
	rng   *rand.Rand
	rules Rules
	now   time.Time
	calm  int // >0: no more trouble, settle
	enc   *wire.Encoder
	check *checker

	agents     []*agent
	instances  []*instance
	conns      []*conn
	operations []*operation
	ledger     ledger
	unpack     unpacking

	published, processes int
	opens                uint64
}

// Run makes one run and returns the first fault found.
func Run(cfg Config) error {
	w := &world{
		rng:   rand.New(rand.NewPCG(cfg.Seed, 7)),
		rules: cfg.Rules,
		now:   time.Unix(1_700_000_000, 0),
		enc:   wire.NewEncoder(wire.Plain),
		check: newChecker(),
	}
	w.ledger = ledger{last: map[subject]record{}, check: w.check}
	w.unpack = newUnpacking(w)
	for range 1 + w.rng.IntN(2) {
		w.instances = append(w.instances, w.startInstance())
	}
	for i := range 1 + w.rng.IntN(2) {
		a := &agent{w: w, device: fmt.Sprint("d", i), spool: newSpool()}
		w.agents = append(w.agents, a)
		a.start()
	}
	for range cfg.Steps {
		w.trouble()
		if w.check.fault != nil {
			return w.check.fault
		}
	}
	return w.settle()
}

// trouble is one random thing that happens.
func (w *world) trouble() {
	a := w.agents[w.rng.IntN(len(w.agents))]
	switch n := w.rng.IntN(1000); {
	case n < 150:
		a.publish()
	case n < 160:
		a.crash()
	case n < 168:
		a.damage()
	case n < 171 && len(w.agents) < 4:
		a.clone()
	case n < 185 && a.conn != nil:
		a.cut()
		a.events = append(a.events, uplink.Unlinked{Err: errCut})
		a.run()
	case n < 190:
		w.restartInstance(w.rng.IntN(len(w.instances)))
	case n < 197:
		w.retain()
	case n < 205:
		w.pass(time.Duration(w.rng.IntN(20_000)) * time.Millisecond)
	case n < 300:
		w.unpack.step()
	default:
		w.work()
	}
}

func (w *world) restartInstance(i int) {
	w.instances[i].gone = true
	w.instances[i] = w.startInstance()
}

// work does one pending thing; if there is none, time passes.
func (w *world) work() {
	switch w.rng.IntN(4) {
	case 0:
		if c := w.pickConn(func(c *conn) bool { return len(c.up) > 0 }); c != nil {
			w.deliver(c)
			return
		}
	case 1:
		if c := w.pickConn(func(c *conn) bool { return len(c.down) > 0 }); c != nil {
			ev := c.down[0]
			c.down = c.down[1:]
			c.agent.events = append(c.agent.events, ev)
			c.agent.run()
			return
		}
	case 2:
		if n := len(w.operations); n > 0 {
			i := w.rng.IntN(n)
			op := w.operations[i]
			if w.effect(op) {
				w.operations = append(w.operations[:i], w.operations[i+1:]...)
			}
			return
		}
	default:
		w.instances[w.rng.IntN(len(w.instances))].step(uplink.RecvTick{})
		w.pass(time.Duration(w.rng.IntN(30)) * time.Millisecond)
		return
	}
}

func (w *world) pickConn(want func(*conn) bool) *conn {
	live := w.conns[:0]
	var picked *conn
	n := 0
	for _, c := range w.conns {
		if c.dead && len(c.up) == 0 {
			continue
		}
		live = append(live, c)
		if want(c) {
			if n++; w.rng.IntN(n) == 0 {
				picked = c
			}
		}
	}
	w.conns = live
	return picked
}

// pass lets time pass: senders and receivers notice their deadlines.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, a := range w.agents {
		if dl := a.sender.Deadline(); !dl.IsZero() && !dl.After(w.now) {
			a.events = append(a.events, uplink.Ticked{})
			a.run()
		}
	}
	for _, in := range w.instances {
		if !in.recv.Next().After(w.now) {
			in.step(uplink.RecvTick{})
		}
	}
}

func (w *world) retain() {
	if upTo := w.unpack.safe(); upTo > 0 {
		w.ledger.retain(1+w.rng.Uint64N(upTo), !w.rules.NoMark)
	}
}

// settle lets everything come to rest and looks at the result.
func (w *world) settle() error {
	w.calm = 1
	for range 60_000 {
		w.work()
		if w.idle() {
			w.pass(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		}
		w.unpack.step()
		if w.check.fault != nil {
			return w.check.fault
		}
		if w.drained() && w.unpack.done() {
			w.check.final()
			w.unpack.final()
			return w.check.fault
		}
	}
	return fmt.Errorf("stuck: %s", w.stuck())
}

// idle reports whether nothing is under way: then only time helps.
func (w *world) idle() bool {
	busy := func(c *conn) bool { return len(c.up)+len(c.down) > 0 }
	return len(w.operations) == 0 && w.pickConn(busy) == nil
}

func (w *world) drained() bool {
	for _, a := range w.agents {
		if !a.spool.drained() {
			return false
		}
	}
	return true
}

func (w *world) stuck() string {
	for i, a := range w.agents {
		if !a.spool.drained() {
			return fmt.Sprintf("agent %d (%s) up=%v problem=%v holds %+v", i, a.device, a.sender.Up(), a.sender.Problem(), a.spool.held())
		}
	}
	return "the unpackers"
}
