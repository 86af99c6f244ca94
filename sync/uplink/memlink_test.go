package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// memNet is a link in memory between one device and a fakeHub. It is a Dialer.
type memNet struct {
	hub     *fakeHub
	device  string
	latency time.Duration // one way

	mu       sync.Mutex
	refuse   error // every dial fails
	hang     bool  // no dial is answered
	dials    []time.Time
	conns    []*memConn
	beats    []wire.Heartbeat
	openings int
	byes     int
}

// memConn is one connection of it.
type memConn struct {
	net    *memNet
	up     chan memMessage
	down   chan memMessage
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup

	mu       sync.Mutex
	err      error
	fn       func(string, []byte)
	dropUp   bool          // what the device sends vanishes
	dropDown bool          // what the hub sends vanishes
	stuck    chan struct{} // not nil: the socket takes nothing until it is closed
	progress time.Time
}

type memMessage struct {
	due     time.Time
	subject string
	data    []byte
}

func newMemNet(hub *fakeHub) *memNet {
	return &memNet{hub: hub, device: "d1", latency: 10 * time.Millisecond}
}

func (n *memNet) Dial(ctx context.Context) (link.Conn, error) {
	n.mu.Lock()
	n.dials = append(n.dials, time.Now())
	refuse, hang := n.refuse, n.hang
	n.mu.Unlock()
	switch {
	case refuse != nil:
		return nil, refuse
	case hang:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := &memConn{net: n, up: make(chan memMessage, 10_000), down: make(chan memMessage, 10_000), closed: make(chan struct{})}
	c.wg.Go(c.serve)
	c.wg.Go(c.answer)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, c)
	return c, nil
}

// last is the present connection.
func (n *memNet) last() *memConn {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.conns) == 0 {
		return nil
	}
	return n.conns[len(n.conns)-1]
}

// state is what has happened so far.
func (n *memNet) state() (dials, openings, byes int, beats []wire.Heartbeat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.dials), n.openings, n.byes, slices.Clone(n.beats)
}

func (n *memNet) set(f func(n *memNet)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

func (c *memConn) set(f func(c *memConn)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

func (c *memConn) Publish(ctx context.Context, subject string, data []byte) error {
	c.mu.Lock()
	stuck := c.stuck
	c.mu.Unlock()
	if stuck != nil {
		select {
		case <-stuck:
			c.set(func(c *memConn) { c.progress = time.Now() })
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return c.Err()
		}
	}
	select {
	case c.up <- memMessage{time.Now().Add(c.net.latency), subject, data}:
		return nil
	case <-c.closed:
		return c.Err()
	}
}

func (c *memConn) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if subject != wire.OpenSubject(c.net.device) {
		return nil, errors.New("not an open request: " + subject)
	}
	c.mu.Lock()
	dead := c.dropUp || c.dropDown
	c.mu.Unlock()
	o, err := wire.ParseOpen(data)
	if err != nil {
		return nil, err
	}
	wait := 2 * c.net.latency
	if dead {
		wait = time.Hour
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, c.Err()
	}
	c.net.set(func(n *memNet) { n.openings++ })
	return json.Marshal(c.net.hub.open(o))
}

func (c *memConn) Subscribe(subject string, fn func(string, []byte)) (func(), error) {
	if subject != wire.InboxPrefix(c.net.device)+".*" {
		return nil, errors.New("not permitted: " + subject)
	}
	c.set(func(c *memConn) { c.fn = fn })
	return func() {}, nil
}

// serve carries messages to the hub.
func (c *memConn) serve() {
	for {
		select {
		case <-c.closed:
			return
		case m := <-c.up:
			time.Sleep(time.Until(m.due))
			c.mu.Lock()
			drop := c.dropUp
			c.mu.Unlock()
			if drop {
				continue
			}
			if answer, id, ok := c.deliver(m); ok {
				c.down <- memMessage{time.Now().Add(c.net.latency), subjectOf(c.net.hub, c.net.device, id), answer}
			}
		}
	}
}

// answer carries its answers back.
func (c *memConn) answer() {
	for {
		select {
		case <-c.closed:
			return
		case m := <-c.down:
			time.Sleep(time.Until(m.due))
			c.mu.Lock()
			drop, fn := c.dropDown, c.fn
			c.mu.Unlock()
			if !drop {
				fn(m.subject, m.data)
			}
		}
	}
}

func (c *memConn) deliver(m memMessage) (answer []byte, id wire.SessionID, ok bool) {
	switch {
	case m.subject == wire.UpSubject(c.net.device):
		h, err := wire.ParseHeartbeat(m.data)
		if err != nil {
			panic(err)
		}
		c.net.set(func(n *memNet) { n.beats = append(n.beats, *h) })
		return nil, id, false
	case !strings.HasPrefix(m.subject, "fp.in."+c.net.hub.instance+"."):
		return nil, id, false
	}
	id, ack, end := c.net.hub.frame(m.data)
	switch {
	case ack != nil:
		return wire.AppendAck(nil, *ack), id, true
	case end != nil:
		return wire.AppendEnd(nil, *end), id, true
	}
	c.net.set(func(n *memNet) { n.byes++ })
	return nil, id, false
}

func (c *memConn) Closed() <-chan struct{} { return c.closed }

func (c *memConn) Err() error { c.mu.Lock(); defer c.mu.Unlock(); return c.err }

func (c *memConn) Server() string { return "mem://hub" }

func (c *memConn) MaxPayload() int { return 1 << 20 }

func (c *memConn) Progress() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.progress }

// cut ends the connection as a broken link would.
func (c *memConn) cut(err error) {
	c.once.Do(func() {
		c.set(func(c *memConn) { c.err = err })
		close(c.closed)
	})
}

func (c *memConn) Close() {
	for range 100 { // as a socket would, send what was taken
		if len(c.up) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.cut(link.ErrClosed)
	c.wg.Wait()
}
