package testenv

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Direction is one half of a link.
type Direction int

// The two halves, as the agent sees them.
const (
	Up   Direction = iota // agent to hub
	Down                  // hub to agent
)

// Proxy is a TCP link that can be slow, cut, or dead without saying so. Shaping
// holds from the next byte on, for connections that stand and new ones.
type Proxy struct {
	target string
	ln     net.Listener
	wg     sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{} // closed and renewed when the fields below change
	refuse  bool
	hole    [2]bool
	shape   Shape
	road    [2]road
	conns   map[net.Conn]struct{}
	opened  []time.Time // when a connection to the target stood
	closed  bool

	bytes [2]atomic.Int64
}

// NewProxy listens on a loopback port and forwards to target.
func NewProxy(target string) (*Proxy, error) { return NewProxyAt("127.0.0.1:0", target) }

// NewProxyAt listens on addr and forwards to target.
func NewProxyAt(addr, target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, ln: ln, conns: map[net.Conn]struct{}{}, changed: make(chan struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where agents connect.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Bytes is what was forwarded in one direction so far.
func (p *Proxy) Bytes(d Direction) int64 { return p.bytes[d].Load() }

func (p *Proxy) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

// SetTarget directs new connections elsewhere.
func (p *Proxy) SetTarget(addr string) { p.update(func() { p.target = addr }) }

// Shape sets the one-way latency and the rate in bytes per second each way (0: unlimited).
func (p *Proxy) Shape(latency time.Duration, bytesPerSecond int64) {
	p.ShapeLike(Shape{Delay: latency, Rate: [2]int64{bytesPerSecond, bytesPerSecond}})
}

// ShapeLike makes the link behave like s.
func (p *Proxy) ShapeLike(s Shape) {
	p.update(func() {
		p.shape = s
		for d := range p.road {
			p.road[d] = newRoad(s, Direction(d))
		}
	})
}

// Opened is when each connection to the target stood, refused ones left out.
func (p *Proxy) Opened() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.opened)
}

// Hole makes a direction swallow nothing and deliver nothing: bytes wait, no
// side is told. Ending it delivers what waited.
func (p *Proxy) Hole(d Direction, on bool) { p.update(func() { p.hole[d] = on }) }

// Cut resets every connection and, while off, refuses new ones.
func (p *Proxy) Cut(off bool) {
	p.update(func() {
		p.refuse = off
		for c := range p.conns {
			reset(c)
		}
		clear(p.conns)
	})
}

// Close ends the link and waits for its goroutines.
func (p *Proxy) Close() {
	p.update(func() {
		p.closed = true
		for c := range p.conns {
			c.Close()
		}
	})
	p.ln.Close()
	p.wg.Wait()
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0) // close sends RST
	}
	c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(agent net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		reset(agent)
		return
	}
	hub, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil || !p.register(agent, hub) {
		reset(agent)
		if err == nil {
			reset(hub)
		}
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(Up, hub, agent) })
	both.Go(func() { p.pump(Down, agent, hub) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, agent)
	delete(p.conns, hub)
	p.mu.Unlock()
}

func (p *Proxy) register(cs ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	for d, c := range cs { // the bytes of Up come from the first, those of Down from the second
		p.conns[c] = struct{}{}
		p.shape.squeeze(c, Direction(d))
	}
	p.opened = append(p.opened, time.Now())
	return true
}
