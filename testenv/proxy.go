package testenv

import (
	"errors"
	"io"
	"net"
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
	latency time.Duration
	rate    int64
	conns   map[net.Conn]struct{}
	closed  bool

	bytes [2]atomic.Int64
}

// NewProxy listens on a loopback port and forwards to target.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
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
	p.update(func() { p.latency, p.rate = latency, bytesPerSecond })
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
	for _, c := range cs {
		p.conns[c] = struct{}{}
	}
	return true
}

type chunk struct {
	due  time.Time
	data []byte
}

// pump reads ahead of the latency and writes when each chunk is due.
func (p *Proxy) pump(d Direction, dst, src net.Conn) {
	queue := make(chan chunk, 256)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c := range queue {
			if !p.pass(d, c) {
				break
			}
			if _, err := dst.Write(c.data); err != nil {
				break
			}
			p.bytes[d].Add(int64(len(c.data)))
		}
		reset(dst)
		reset(src)
		for range queue { // let the reader end
		}
	}()
	buf := make([]byte, 16<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			p.mu.Lock()
			due := time.Now().Add(p.latency)
			p.mu.Unlock()
			queue <- chunk{due, append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reset(dst)
			}
			break
		}
	}
	close(queue)
	<-done
}

// pass waits until the chunk may go; false means the link is gone.
func (p *Proxy) pass(d Direction, c chunk) bool {
	for {
		p.mu.Lock()
		hole, rate, closed, changed := p.hole[d], p.rate, p.closed, p.changed
		p.mu.Unlock()
		if closed {
			return false
		}
		if hole {
			<-changed
			continue
		}
		wait := time.Until(c.due)
		if rate > 0 {
			wait = max(wait, 0) + time.Duration(int64(len(c.data))*int64(time.Second)/rate)
		}
		time.Sleep(max(wait, 0))
		return true
	}
}
