package uplink

import (
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/policy"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// daysAgent is a spool, a sender, and what a driver does for it.
type daysAgent struct {
	d      *days
	spool  *fakeSpool
	s      *Sender
	policy *daysPolicy
	tickAt time.Time
	runs   int
	quiet  bool // nothing new, and no more trouble
	inStep bool
	todo   []Event
}

func newDaysAgent(d *days) *daysAgent {
	return &daysAgent{d: d, spool: newFakeSpool(), policy: &daysPolicy{}}
}

func (a *daysAgent) start() {
	a.runs++
	c := a.d.cfg
	usage := policy.Usage{}
	if a.policy.p != nil {
		usage = a.policy.p.Usage(a.d.now)
	}
	class := func() string { return c.class }
	a.policy.p = policy.New(policy.Config{Class: class, DailyBytes: c.daily, Windows: c.windows, Zone: time.UTC, Usage: usage})
	a.s = NewSender(SenderConfig{
		Version: "v1", Process: fmt.Sprintf("p%d", a.runs), HubID: a.spool.hub, Token: a.spool.tok, Class: class,
		FreshFirst: c.fresh, Flush: c.flush, Policy: a.policy, Rand: a.d.rng.Float64,
	})
	a.tickAt = time.Time{}
	a.step(a.spool.list())
}

// restart ends the process; what it had not said is gone, what it had accepted is not.
func (a *daysAgent) restart() {
	if a.runs == 250 {
		return
	}
	if a.d.chance(2) {
		a.step(Stopped{})
	}
	a.d.link.close()
	a.spool.restart()
	a.d.watch.reset()
	a.start()
}

// live publishes now and then: little as a rule, in all lanes.
func (a *daysAgent) live() {
	if a.quiet {
		return
	}
	lane := []wire.Lane{wire.Normal, wire.Normal, wire.Normal, wire.Normal, wire.Bulk, wire.Urgent}[a.d.rng.IntN(6)]
	if a.d.chance(20) {
		a.step(Awaited{Next: true})
	}
	a.publish(lane, 1+a.d.rng.IntN(4), a.d.rng.IntN(300))
	if a.d.chance(20) {
		a.step(Awaited{})
	}
	next := a.d.between(time.Second, 4*time.Minute)
	if a.d.chance(10) {
		next = a.d.between(0, 500*time.Millisecond)
	}
	a.d.after(next, a.live)
}

// burst is a backlog in normal and bulk, with urgent messages while it drains.
func (a *daysAgent) burst() {
	for left := int(a.d.cfg.backlog); left > 0; {
		lane := wire.Normal
		if a.d.chance(2) {
			lane = wire.Bulk
		}
		n, size := 1+a.d.rng.IntN(20), []int{50, 400, 3000}[a.d.rng.IntN(3)]
		left -= n * size
		a.spool.append(lane, n, size)
	}
	a.step(a.spool.list())
	for i := range 20 {
		a.d.after(time.Duration(i)*a.d.between(2*time.Second, 15*time.Second), func() {
			if !a.quiet {
				a.publish(wire.Urgent, 1, 100)
			}
		})
	}
}

func (a *daysAgent) publish(lane wire.Lane, n, size int) {
	f := a.spool.append(lane, n, size)
	a.d.watch.published(f, lane)
	a.step(a.spool.list())
}

// step feeds the sender and does what it asks for, as run.step.
func (a *daysAgent) step(ev Event) {
	a.todo = append(a.todo, ev)
	if a.inStep {
		return
	}
	a.inStep = true
	for len(a.todo) > 0 {
		ev, a.todo = a.todo[0], a.todo[1:]
		if _, ok := ev.(Acked); ok {
			a.d.watch.heard = a.d.now
		}
		for _, act := range a.s.Step(a.d.now, ev) {
			a.do(act)
		}
	}
	a.inStep = false
	at := a.s.Deadline()
	if at.IsZero() || at.Equal(a.tickAt) && at.After(a.d.now) {
		return
	}
	a.tickAt = at
	s := a.s
	a.d.at(at, func() {
		if a.s == s && a.tickAt.Equal(at) {
			a.tickAt = time.Time{}
			a.tick()
		}
	})
}

func (a *daysAgent) tick() {
	if c := a.d.link.conn; c != nil && !c.progress.IsZero() {
		a.step(Progressed{c.progress})
	}
	a.step(Ticked{})
}

func (a *daysAgent) do(act Action) {
	switch act := act.(type) {
	case Dial:
		a.d.link.dial()
	case Hangup:
		a.d.link.close()
	case List:
		a.todo = append(a.todo, a.spool.list())
	case SendOpen:
		a.d.link.request(300+40*len(act.Open.Flows), func(reply func(Event)) { a.d.hub.open(act.Open, reply) })
	case SendFrame:
		a.d.watch.sent(act.Frame)
		var n int
		fmt.Sscanf(act.Instance, "i%d", &n)
		a.d.link.send(wire.AppendFrame([]byte{byte(n)}, act.Frame), len(act.Frame.Body))
	case Load:
		data, err := a.spool.Read(act.Flow, act.From)
		a.todo = append(a.todo, Loaded{act.Flow, act.From, data, err})
	case MarkReceived:
		if held := a.d.hub.flow(act.Flow).received; !contains(held, act.Set) {
			a.d.fail("%s: %s is taken for received, the ledger holds %s", act.Flow, act.Set, held)
		}
		if err := a.spool.Received(act.Flow, act.Set); err != nil {
			a.d.fail("%v", err)
		}
	case PinHub:
		a.spool.hub = act.ID
	case SaveToken:
		a.spool.tok = act.Token
		a.todo = append(a.todo, TokenSaved(act))
	case Rewound:
		a.d.fail("%d messages are taken for lost", act.Messages)
	}
}

func contains(s, t wire.Ranges) bool {
	for _, r := range t {
		if !s.Contains(r) {
			return false
		}
	}
	return true
}

// daysPolicy is the real one, until it is off.
type daysPolicy struct {
	p   *policy.Policy
	off bool
}

func (p *daysPolicy) Allow(now time.Time, l wire.Lane) (bool, time.Time) {
	if p.off {
		return true, time.Time{}
	}
	return p.p.Allow(now, l)
}

func (p *daysPolicy) Sent(now time.Time, l wire.Lane, n int) { p.p.Sent(now, l, n) }
