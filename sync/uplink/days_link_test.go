package uplink

import (
	"errors"
	"time"
)

const (
	daysHeader = 60       // what NATS, TCP and IP add to a message
	daysSocket = 64 << 10 // that a socket takes before its writer waits
)

// daysLink is the path between agent and hub: what is lost on it comes again, as
// TCP has it, unless the connection is gone.
type daysLink struct {
	d        *days
	conn     *daysConn // the agent's; nil: none
	dialed   int       // the last attempt
	up, down daysPath
	gone     time.Time // until then the link is down and refuses
	downFree time.Time
	busy     time.Duration // that the way up was used, in all
}

// daysPath is one direction.
type daysPath struct {
	began time.Time // of the hole
	until time.Time // nothing passes
}

type daysHole struct{ up, down bool }

// daysConn is one connection. What it carries up is in three places: the
// writer's queue, the socket, and the way.
type daysConn struct {
	queue, socket [][]byte
	bodies        []int // of queue
	pending       int   // bytes in socket
	sending       bool
	lastUp        time.Time // arrival of what was sent last
	lastDown      time.Time
	stall         time.Time // until then TCP waits to send again
	progress      time.Time
	closed        bool
}

func (p *daysPath) blocked(now time.Time) bool { return now.Before(p.until) }

// usable reports whether a new connection would come through.
func (l *daysLink) usable() bool {
	now := l.d.now
	return !now.Before(l.gone) && !l.up.blocked(now) && !l.down.blocked(now)
}

// back is when the link is usable, as far as it is known.
func (l *daysLink) back() time.Time { return latest(l.gone, l.up.until, l.down.until, l.d.now) }

// cut takes the link away for a while: connections end at once, dials fail.
func (l *daysLink) cut(t time.Duration) {
	l.gone = latest(l.gone, l.d.now.Add(t))
	l.drop(errors.New("the link is down"))
}

// drop ends the connection, and the agent sees it.
func (l *daysLink) drop(err error) {
	if c := l.conn; c != nil {
		l.close()
		l.d.agent.step(Unlinked{err})
	}
}

// close ends the connection; what is on its way may still arrive.
func (l *daysLink) close() {
	l.dialed++
	if l.conn != nil {
		l.conn.closed, l.conn.queue, l.conn.socket = true, nil, nil
		l.conn = nil
	}
}

// hole lets nothing pass, and nobody is told.
func (l *daysLink) hole(h daysHole, t time.Duration) {
	end := l.d.now.Add(t)
	stall := end.Add(l.d.between(0, min(t, 2*time.Minute))) // of TCP's repetitions
	for _, p := range []struct {
		path *daysPath
		in   bool
	}{{&l.up, h.up}, {&l.down, h.down}} {
		if p.in {
			if !p.path.blocked(l.d.now) {
				p.path.began = l.d.now
			}
			p.path.until = latest(p.path.until, end)
		}
	}
	if l.conn != nil {
		l.conn.stall = latest(l.conn.stall, stall)
	}
}

// dial opens a connection: a SYN every second, four round trips, ten seconds.
func (l *daysLink) dial() {
	l.dialed++
	attempt, began := l.dialed, l.d.now
	mine := func(do func()) func() {
		return func() {
			if l.dialed == attempt {
				do()
			}
		}
	}
	if began.Before(l.gone) {
		l.d.after(l.d.between(time.Millisecond, 200*time.Millisecond), mine(func() { l.d.agent.step(Unlinked{errors.New("no route")}) }))
		return
	}
	up := latest(l.back(), began)
	if up.After(began) {
		up = up.Add(l.d.between(0, time.Second))
	}
	done := up.Add(4 * l.d.cfg.rtt)
	if done.Sub(began) > 10*time.Second {
		l.d.at(began.Add(10*time.Second), mine(func() { l.d.agent.step(Unlinked{errors.New("no answer")}) }))
		return
	}
	l.d.at(done, mine(func() {
		if !l.usable() {
			l.d.agent.step(Unlinked{errors.New("no answer")})
			return
		}
		l.conn = &daysConn{}
		l.d.agent.step(Linked{1 << 20})
	}))
}

// send queues a frame for the writer; body bytes of it are told as written.
func (l *daysLink) send(data []byte, body int) {
	if c := l.conn; c != nil {
		c.queue, c.bodies = append(c.queue, data), append(c.bodies, body)
		l.write(c)
	}
}

// write moves what the socket takes out of the queue.
func (l *daysLink) write(c *daysConn) {
	written := 0
	for len(c.queue) > 0 && c.pending <= daysSocket {
		c.socket = append(c.socket, c.queue[0])
		c.pending += len(c.queue[0])
		written += c.bodies[0]
		c.queue, c.bodies = c.queue[1:], c.bodies[1:]
	}
	if written > 0 {
		l.d.at(l.d.now, func() {
			if !c.closed {
				l.d.agent.step(Written{written})
			}
		})
	}
	l.transmit(c)
}

// transmit puts the next message on the way.
func (l *daysLink) transmit(c *daysConn) {
	if c.sending || c.closed || len(c.socket) == 0 {
		return
	}
	c.sending = true
	data := c.socket[0]
	c.socket = c.socket[1:]
	took := time.Duration(float64(len(data)+daysHeader) / l.d.cfg.rate * float64(time.Second))
	began := latest(l.d.now, l.resumed(c, &l.up, l.d.now))
	l.d.at(began.Add(took), func() { l.transmitted(c, data, took) })
}

// resumed is when a message that meets a hole at t goes on.
func (l *daysLink) resumed(c *daysConn, p *daysPath, t time.Time) time.Time {
	if t.Before(p.until) {
		return latest(p.until, c.stall)
	}
	return t
}

func (l *daysLink) transmitted(c *daysConn, data []byte, took time.Duration) {
	if c.closed {
		return // it never left
	}
	if l.up.blocked(l.d.now) { // a hole opened meanwhile: it is sent again
		l.d.at(l.resumed(c, &l.up, l.d.now).Add(took), func() { l.transmitted(c, data, took) })
		return
	}
	c.sending = false
	c.pending -= len(data)
	l.busy += took
	if !l.down.blocked(l.d.now) {
		c.progress = l.d.now
	}
	arrives := latest(c.lastUp, l.d.now.Add(l.d.cfg.rtt/2))
	c.lastUp = arrives
	l.d.at(arrives, func() { l.arrive(c, data) })
	l.write(c)
}

// arrive hands a frame to the hub. One of a connection that is gone comes, or not.
func (l *daysLink) arrive(c *daysConn, data []byte) {
	switch {
	case c.closed && l.d.chance(2):
	case l.up.blocked(l.d.now) && c.closed:
	case l.up.blocked(l.d.now):
		c.lastUp = latest(c.lastUp, l.resumed(c, &l.up, l.d.now))
		l.d.at(c.lastUp, func() { l.arrive(c, data) })
	case l.d.rng.Float64() < l.d.cfg.lossy && !l.d.agent.quiet:
	default:
		l.d.hub.frame(data)
	}
}

// answer carries an event of n bytes to the agent, in order, over the
// connection that is up.
func (l *daysLink) answer(n int, ev Event) {
	c := l.conn
	if c == nil || l.d.rng.Float64() < l.d.cfg.lossy && !l.d.agent.quiet {
		return
	}
	took := time.Duration(float64(n+daysHeader) / (2 * l.d.cfg.rate) * float64(time.Second))
	l.downFree = latest(l.downFree, l.d.now).Add(took)
	c.lastDown = latest(c.lastDown, l.downFree.Add(l.d.cfg.rtt/2))
	l.d.at(c.lastDown, func() { l.answered(c, ev) })
}

func (l *daysLink) answered(c *daysConn, ev Event) {
	switch {
	case c.closed:
	case l.down.blocked(l.d.now):
		c.lastDown = latest(c.lastDown, l.resumed(c, &l.down, l.d.now))
		l.d.at(c.lastDown, func() { l.answered(c, ev) })
	case l.d.now.Before(c.lastDown) && l.d.now.Before(c.stall): // behind one that came too late
		l.d.at(c.lastDown, func() { l.answered(c, ev) })
	default:
		l.d.agent.step(ev)
	}
}

// request carries an open request to the hub, in a round trip of its own.
func (l *daysLink) request(size int, do func(reply func(Event))) {
	c := l.conn
	if c == nil {
		return
	}
	c.queue, c.bodies = nil, nil // belongs to the session before
	took := time.Duration(float64(size+c.pending+daysHeader) / l.d.cfg.rate * float64(time.Second))
	l.d.at(l.resumed(c, &l.up, l.d.now).Add(took+l.d.cfg.rtt/2), func() { l.requested(c, do) })
}

func (l *daysLink) requested(c *daysConn, do func(reply func(Event))) {
	switch {
	case c.closed:
	case l.up.blocked(l.d.now):
		l.d.at(l.resumed(c, &l.up, l.d.now), func() { l.requested(c, do) })
	default:
		do(func(ev Event) {
			if l.conn == c {
				l.answer(500, ev)
			}
		})
	}
}
