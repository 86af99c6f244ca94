package uplink

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/policy"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// days is a world in virtual time: an agent, a link and a hub.
type days struct {
	cfg   daysConfig
	rng   *rand.Rand
	now   time.Time
	queue daysQueue
	order uint64

	agent *daysAgent
	link  *daysLink
	hub   *daysHub
	watch *daysWatch
	err   error // the first that was found; the world stops
}

// daysConfig is drawn from a seed.
type daysConfig struct {
	seed       uint64
	length     time.Duration
	rate       float64 // bytes a second, up; down is twice that
	rtt        time.Duration
	fresh      bool
	class      string
	daily      int64 // bytes; 0: unlimited
	windows    []policy.Window
	flush      time.Duration
	lossy      float64 // share of frames and answers that NATS drops
	calm       time.Duration
	backlog    float64 // bytes of a burst
	noStream   bool
	maxPayload int
}

// daysBudget is how many bytes a burst has at most: encoding them is what takes
// the time of the test.
const daysBudget = 3 << 20

func drawDays(seed uint64) daysConfig {
	r := rand.New(rand.NewPCG(seed, 7))
	rates := []float64{4e3, 8e3, 16e3, 64e3, 128e3, 1e6, 12.5e6, 125e6}
	trips := []time.Duration{time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second}
	c := daysConfig{
		seed: seed, length: time.Duration(2+r.IntN(3)) * 24 * time.Hour,
		rate: rates[r.IntN(len(rates))], rtt: trips[r.IntN(len(trips))], fresh: r.IntN(2) == 0,
		calm: time.Duration(10+r.IntN(120)) * time.Minute, noStream: r.IntN(8) > 0, maxPayload: 1<<20 - 8<<10,
	}
	c.backlog = min(c.rate*float64(60+r.IntN(240)), daysBudget)
	if r.IntN(4) == 0 {
		c.class = "metered"
	}
	if r.IntN(3) == 0 {
		c.daily = int64(c.backlog) + 10_000
	}
	if r.IntN(3) == 0 {
		cron, err := policy.ParseCron("0 1,13 * * *")
		if err != nil {
			panic(err)
		}
		c.windows = []policy.Window{{Lanes: []wire.Lane{wire.Bulk}, Cron: cron, For: 3 * time.Hour}}
	}
	if r.IntN(4) == 0 {
		c.flush = time.Duration(1+r.IntN(10)) * time.Second
	}
	if r.IntN(4) == 0 {
		c.lossy = 0.002
	}
	if r.IntN(5) == 0 {
		c.maxPayload = 20_000
	}
	return c
}

func (c daysConfig) String() string {
	return fmt.Sprintf("seed %d: %s, %.0f bytes/s, rtt %s, fresh %v, class %q, budget %d, windows %d, flush %s, lossy %v, stream %v, max payload %d",
		c.seed, c.length, c.rate, c.rtt, c.fresh, c.class, c.daily, len(c.windows), c.flush, c.lossy, !c.noStream, c.maxPayload)
}

func newDays(c daysConfig) *days {
	d := &days{cfg: c, rng: rand.New(rand.NewPCG(c.seed, 8)), now: time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)}
	d.watch = newDaysWatch(d)
	d.link = &daysLink{d: d, downFree: d.now}
	d.hub = newDaysHub(d)
	d.agent = newDaysAgent(d)
	return d
}

// run lets the days pass, then waits until everything has arrived.
func (d *days) run() error {
	d.hub.start()
	d.agent.start()
	d.agent.live()
	d.after(d.between(d.cfg.calm/2, d.cfg.calm), d.trouble)
	end := d.now.Add(d.cfg.length)
	d.until(func() bool { return !d.now.Before(end) })
	d.agent.quiet, d.agent.policy.off = true, true
	d.at(d.now, func() { d.agent.step(Kicked{}) })
	last := d.now.Add(48 * time.Hour) // the last outage may be a long one
	d.until(func() bool { return d.agent.spool.drained() || d.now.After(last) })
	if d.err == nil && !d.agent.spool.drained() {
		d.fail("not drained after two days: phase %d, problem %v, in flight %d", d.agent.s.phase, d.agent.s.Problem(), d.agent.s.window.inflight)
	}
	if d.err == nil {
		d.err = d.watch.final()
	}
	return d.err
}

func (d *days) until(done func() bool) {
	for d.err == nil && !done() {
		if len(d.queue) == 0 {
			d.fail("nothing happens any more")
			return
		}
		e := heap.Pop(&d.queue).(daysEvent)
		d.now = e.at
		e.do()
		d.watch.look()
	}
}

func (d *days) fail(format string, a ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%s: %s", d.now.Format("2 Jan 15:04:05.000"), fmt.Sprintf(format, a...))
	}
}

// trouble is the next thing that goes wrong, and the one after it.
func (d *days) trouble() {
	if d.agent.quiet {
		return
	}
	both := daysHole{up: true, down: true}
	switch d.rng.IntN(10) {
	case 0, 1: // the link is down, and everybody knows
		d.link.cut(d.outage())
	case 2:
		d.link.hole(both, d.outage())
	case 3:
		d.link.hole(daysHole{up: true}, d.outage())
	case 4:
		d.link.hole(daysHole{down: true}, d.outage())
	case 5: // flaps
		for i := range 3 + d.rng.IntN(8) {
			d.after(time.Duration(i)*d.between(time.Second, 20*time.Second), func() { d.link.cut(d.between(100*time.Millisecond, 8*time.Second)) })
		}
	case 6, 7:
		d.hub.restart()
	case 8:
		d.agent.restart()
	case 9: // a backlog of all lanes at once
		d.agent.burst()
	}
	d.after(d.between(d.cfg.calm/4, 2*d.cfg.calm), d.trouble)
}

// outage is how long the link is gone: mostly seconds, at times a day and more.
func (d *days) outage() time.Duration {
	switch d.rng.IntN(8) {
	case 0:
		return d.between(time.Hour, 30*time.Hour)
	case 1, 2, 3:
		return d.between(30*time.Second, 20*time.Minute)
	}
	return d.between(time.Second, 40*time.Second)
}

func (d *days) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.rng.Int64N(int64(b-a)+1))
}

// chance is true once in n.
func (d *days) chance(n int) bool { return d.rng.IntN(n) == 0 }

func (d *days) after(t time.Duration, do func()) { d.at(d.now.Add(t), do) }

func (d *days) at(t time.Time, do func()) {
	d.order++
	heap.Push(&d.queue, daysEvent{latest(t, d.now), d.order, do})
}

type daysEvent struct {
	at    time.Time
	order uint64
	do    func()
}

type daysQueue []daysEvent

func (q daysQueue) Len() int      { return len(q) }
func (q daysQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q daysQueue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return q[i].order < q[j].order
}
func (q *daysQueue) Push(x any) { *q = append(*q, x.(daysEvent)) }
func (q *daysQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = daysEvent{}
	*q = slices.Delete(*q, last, last+1)
	return e
}
