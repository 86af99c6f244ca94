package uplink

import (
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// daysWatch checks what holds at all times.
type daysWatch struct {
	d *days

	hole   time.Time // since when something is in flight into a hole
	free   time.Time // since when link and hub are there
	down   time.Time // since when there is no session, though free
	idle   time.Time // since when nothing is in flight, though something may be sent
	stuck  time.Time // since when something is in flight, and free
	heard  time.Time // the last ack
	events int

	session wire.SessionID
	highest map[wire.Flow]*[2]uint64 // sent in the session: of the backlog, fresh
	day     string
	used    int64
	starved int // bytes of other lanes that passed bulk

	urgent  daysUrgent
	use     daysUse
	summary daysSummary
}

// daysUrgent is an urgent message on its way through a session.
type daysUrgent struct {
	flow   wire.Flow
	seq    uint64 // 0: none
	at     time.Time
	sent   bool
	passed int // frames of others in between
}

// daysUse is a time in which a backlog should keep the link busy.
type daysUse struct {
	since time.Time
	from  time.Time
	busy  time.Duration
}

// daysSummary is what a seed came to.
type daysSummary struct {
	frames, bytes, sessions, sent int
	urgents                       int
	wait                          time.Duration // of an urgent message, at most
	uses                          int
	used                          float64 // of the link, at least
	found                         time.Duration
	resumed                       time.Duration
}

func newDaysWatch(d *days) *daysWatch {
	return &daysWatch{d: d, highest: map[wire.Flow]*[2]uint64{}, summary: daysSummary{used: 1}}
}

func (w *daysWatch) reset() { w.urgent, w.use, w.hole = daysUrgent{}, daysUse{}, time.Time{} }

// passing reports whether link, hub and TCP would carry something now.
func (w *daysWatch) passing() bool {
	l := w.d.link
	return l.usable() && w.d.hub.instance != 0 && (l.conn == nil || !w.d.now.Before(l.conn.stall))
}

// since keeps the time from which something holds without a break.
func since(t *time.Time, now time.Time, holds bool) time.Duration {
	switch {
	case !holds:
		*t = time.Time{}
	case t.IsZero():
		*t = now
	}
	if t.IsZero() {
		return 0
	}
	return now.Sub(*t)
}

// backlog reports whether something may be sent that is not.
func (w *daysWatch) backlog() bool {
	s := w.d.agent.s
	for i := range s.lanes {
		l := &s.lanes[i]
		for _, q := range l.queues() {
			f := l.active(q.fresh)
			if q.problem != nil || len(q.pieces) == 0 && (f == nil || f.wanted(q.fresh) == 0) {
				continue
			}
			if ok, _ := w.d.agent.policy.Allow(w.d.now, wire.Lane(i)); ok {
				return true
			}
		}
	}
	return false
}

// look is called after every event.
func (w *daysWatch) look() {
	d, s, now := w.d, w.d.agent.s, w.d.now
	up, inflight := s.Up(), s.window.inflight
	if up && s.id != w.session {
		w.session = s.id
		w.summary.sessions++
		clear(w.highest)
		w.reset()
	}
	blocked := d.link.up.blocked(now) || d.link.down.blocked(now)
	found := since(&w.hole, now, up && blocked && inflight > 0)
	if w.summary.found = max(w.summary.found, found); found > 30*time.Second {
		d.fail("a black hole is not noticed: %d bytes in flight for %s", inflight, found)
	}
	passing := w.passing()
	since(&w.free, now, passing)
	limit := 3*time.Second + 12*d.cfg.rtt
	if d.cfg.class == "metered" {
		limit += backoffCapMetered
	}
	if d.cfg.lossy > 0 && !d.agent.quiet {
		limit += openTimeout
	}
	down := since(&w.down, now, passing && !up)
	if w.summary.resumed = max(w.summary.resumed, down); down > limit {
		d.fail("the link is there for %s, and no session: phase %d, %v", down, s.phase, s.Problem())
	}
	backlog := up && w.backlog()
	if t := since(&w.idle, now, passing && backlog && inflight == 0 && s.unwritten == 0); t > d.cfg.flush+time.Second {
		d.fail("something waits for %s, and nothing is in flight: %s", t, w.state())
	}
	pipe := time.Duration(float64(inflight+daysSocket)/d.cfg.rate*1e9) + 2*d.cfg.rtt
	if since(&w.stuck, now, passing && up && inflight > 0); !w.stuck.IsZero() && now.Sub(latest(w.stuck, w.heard)) > 30*time.Second+pipe {
		d.fail("%d bytes are in flight for %s, and nothing is acked", inflight, now.Sub(w.stuck))
	}
	if !passing || !up {
		w.urgent = daysUrgent{}
	}
	w.usage(passing && backlog && d.cfg.flush == 0 && d.cfg.lossy == 0)
	if w.events++; w.events%16 == 0 {
		w.memory()
	}
}

// usage measures how the link is used once the sender knows it.
func (w *daysWatch) usage(backlog bool) {
	u, now := &w.use, w.d.now
	if !backlog {
		if span := now.Sub(u.from); !u.from.IsZero() && span >= max(time.Minute, 40*w.d.cfg.rtt) {
			used := float64(w.d.link.busy-u.busy) / float64(span)
			w.summary.uses++
			if w.summary.used = min(w.summary.used, used); used < 0.85 {
				w.d.fail("the link was used %.2f of %s", used, span)
			}
		}
		*u = daysUse{}
		return
	}
	if u.since.IsZero() {
		u.since = now
	}
	if u.from.IsZero() && now.Sub(u.since) > 15*time.Second+20*w.d.cfg.rtt {
		u.from, u.busy = now, w.d.link.busy
	}
}

// state is what the queues hold.
func (w *daysWatch) state() (out string) {
	s := w.d.agent.s
	for i := range s.lanes {
		for _, q := range s.lanes[i].queues() {
			out += fmt.Sprintf("\n    %s fresh=%v: %d pieces, %d bytes since %s, loading %v, %v",
				wire.Lane(i), q.fresh, len(q.pieces), q.loose, q.since.Format("15:04:05.000"), q.loading, q.problem)
		}
	}
	return out + fmt.Sprintf("\n    window %+v, unwritten %d, deadline %s", s.window, s.unwritten, s.Deadline().Format("15:04:05.000"))
}

func (w *daysWatch) memory() {
	s := w.d.agent.s
	sum, prepared := 0, 0
	for i := range s.lanes {
		for _, fl := range s.lanes[i].flights {
			sum += fl.bytes
		}
		for _, q := range s.lanes[i].queues() {
			prepared = max(prepared, q.loose)
			for _, p := range q.pieces {
				prepared = max(prepared, len(p.body))
			}
		}
		if n := len(s.lanes[i].flows); n > 300 {
			w.d.fail("%d flows are kept", n)
		}
	}
	if sum != s.window.inflight || sum > 8<<20 {
		w.d.fail("in flight %d, the window says %d, the hub allows %d", sum, s.window.inflight, 8<<20)
	}
	if prepared > mergeMost+daysBudget/4 {
		w.d.fail("%d bytes are prepared in one lane", prepared)
	}
	if w.d.hub.r != nil {
		if devices, sessions, queued := w.d.hub.r.Load(); devices > 1 || sessions > 4 || queued > 64<<20 {
			w.d.fail("the receiver holds %d devices, %d sessions, %d bytes", devices, sessions, queued)
		}
	}
}

// sent looks at a frame as it leaves the sender.
func (w *daysWatch) sent(f wire.Frame) {
	w.summary.frames++
	w.summary.bytes += len(f.Body)
	if f.Type != wire.FrameBlock && f.Type != wire.FrameStream {
		return
	}
	s := w.d.agent.s
	var fl *flight
	for i := range s.lanes {
		for j := range s.lanes[i].flights { // one Step may send several
			if o := &s.lanes[i].flights[j]; o.counter == f.Counter {
				fl = o
			}
		}
	}
	if fl == nil || f.Session != s.id {
		w.d.fail("frame %d is in no lane's flights", f.Counter)
		return
	}
	lane, n := fl.flow.Lane, len(f.Body)
	if f.Session != w.session {
		w.session = f.Session
		w.summary.sessions++
		clear(w.highest)
		w.reset()
	}
	w.ordered(fl)
	w.budget(lane, n)
	if u := &w.urgent; u.seq > 0 && !u.sent {
		if lane == wire.Urgent {
			u.sent = fl.flow.Flow == u.flow && fl.r.Last >= u.seq
		} else if u.passed++; u.passed > 2 {
			w.d.fail("%d frames of other lanes overtake an urgent message", u.passed)
		}
	}
	bulk := s.ripest(wire.Bulk, s.chooseQueue(&s.lanes[wire.Bulk]))
	allowed, _ := w.d.agent.policy.Allow(w.d.now, wire.Bulk)
	switch {
	case lane == wire.Bulk || !allowed || bulk == nil || !s.ripe(wire.Bulk, bulk):
		w.starved = 0
	default:
		if w.starved += n; w.starved > 2*waitShare*max(s.window.frame(), 4<<10)+2*frameMost {
			w.d.fail("bulk waits, and %d bytes of others pass", w.starved)
		}
	}
}

// ordered: a flow in fifo, else each of its two queues, goes in order.
func (w *daysWatch) ordered(fl *flight) {
	h := w.highest[fl.flow.Flow]
	if h == nil {
		h = new([2]uint64)
		w.highest[fl.flow.Flow] = h
	}
	q := 0
	if fl.flow.freshFrom > 0 && fl.r.First >= fl.flow.freshFrom {
		q = 1
	}
	if fl.r.First <= h[q] {
		w.d.fail("%s %s follows %d", fl.flow.Flow, fl.r, h[q])
	}
	h[q] = fl.r.Last
}

// budget: none of normal and bulk begins when the day's bytes are used up, and
// bulk keeps to its windows.
func (w *daysWatch) budget(lane wire.Lane, n int) {
	if w.d.agent.policy.off {
		return
	}
	if day := w.d.now.Format(time.DateOnly); day != w.day {
		w.day, w.used = day, 0
	}
	if w.d.cfg.daily > 0 && lane != wire.Urgent && w.used >= w.d.cfg.daily {
		w.d.fail("lane %s sends, %d of %d bytes of the day are used", lane, w.used, w.d.cfg.daily)
	}
	w.used += int64(n + natsCost)
	if hour := w.d.now.Hour() % 12; len(w.d.cfg.windows) > 0 && lane == wire.Bulk && (hour < 1 || hour > 3) {
		w.d.fail("bulk sends outside its windows")
	}
}

// published begins to follow an urgent message, unless one is on its way, or older
// epochs of its lane are: those go first, one after another.
func (w *daysWatch) published(f *fakeFlow, lane wire.Lane) {
	s := w.d.agent.s
	older := s.lanes[wire.Urgent].active(false)
	alone := older == nil || older.Flow == f.Flow
	if lane == wire.Urgent && w.urgent.seq == 0 && s.Up() && s.id == w.session && alone && w.passing() {
		w.urgent = daysUrgent{flow: f.Flow, seq: f.last, at: w.d.now}
	}
}

// stored ends the way of an urgent message.
func (w *daysWatch) stored(b *LedgerBlock) {
	w.summary.sent += int(b.Range.Len())
	u := &w.urgent
	if u.seq == 0 || b.Flow != u.flow || u.seq < b.Range.First || u.seq > b.Range.Last {
		return
	}
	wait := w.d.now.Sub(u.at) - w.d.cfg.rtt/2
	w.summary.urgents++
	w.summary.wait = max(w.summary.wait, wait)
	// The frame on the way, one that is owed to another lane, what the window keeps
	// in front of the link, and a slow hub. What NATS loses comes later.
	frame := max(frameTime, time.Duration(3300/w.d.cfg.rate*1e9))
	if limit := 2*frame + w.d.cfg.rtt + 2*time.Second; wait > limit && w.d.cfg.lossy == 0 {
		w.d.fail("an urgent message took %s, want at most %s", wait, limit)
	}
	*u = daysUrgent{}
}

// final: nothing is lost.
func (w *daysWatch) final() error {
	for _, f := range w.d.agent.spool.flows {
		if f.last < f.base {
			continue
		}
		l := w.d.hub.flow(f.Flow)
		if want := f.last - f.base + 1; l.messages != want || !l.received.Contains(wire.Range{First: f.base, Last: f.last}) {
			return fmt.Errorf("flow %s: %d messages of %d, received %s", f.Flow, l.messages, want, l.received)
		}
	}
	return nil
}
