package testenv

import (
	"cmp"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

const (
	packet   = 1400                   // bytes that are lost together
	minQueue = 16 << 10               // bytes in front of the narrowest place, at least
	slack    = 5 * time.Millisecond   // by which a sleep may be late without loss of rate
	recovery = 200 * time.Millisecond // to notice a loss, besides a round trip: Linux's least
)

// Shape is what a link does to bytes. All connections share it, as they share
// a radio. Each direction has a queue of bounded length in front of its
// narrowest place: once that is full nothing more is read, so that the sender's
// socket fills and its writes wait.
type Shape struct {
	Delay time.Duration // one way
	Rate  [2]int64      // bytes a second up and down; 0: unlimited
	Queue int64         // bytes; 0: what the rate carries in a round trip, at least 16 KiB
	Loss  float64       // share of packets of 1,400 bytes that are lost
	Seed  uint64        // of the losses
}

// queue is how many bytes of one direction may wait for the narrowest place.
func (s Shape) queue(d Direction) int64 {
	return cmp.Or(s.Queue, max(minQueue, s.Rate[d]*int64(2*s.Delay/time.Millisecond)/1000))
}

// holds is how many bytes of one direction are between the sockets at most.
func (s Shape) holds(d Direction) int64 {
	if s.Rate[d] <= 0 {
		return 64 << 20
	}
	return s.queue(d) + s.Rate[d]*int64((s.Delay+recovery)/time.Millisecond)/1000
}

// squeeze keeps the kernel from taking in more bytes of one direction than a slow link should hold.
func (s Shape) squeeze(c net.Conn, d Direction) {
	if tcp, ok := c.(*net.TCPConn); ok && s.Rate[d] > 0 && s.Rate[d] < 1<<20 {
		tcp.SetReadBuffer(64 << 10) // less than a segment of loopback would stall the sender
	}
}

func transmission(n, rate int64) time.Duration {
	if rate <= 0 {
		return 0
	}
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}

// road is the narrowest place of one direction; Proxy.mu guards it.
type road struct {
	free time.Time // when what was read so far is through
	loss *rand.Rand
}

func newRoad(s Shape, d Direction) road {
	return road{free: time.Now(), loss: rand.New(rand.NewPCG(s.Seed, uint64(d)))}
}

// enter says when n bytes that were read now arrive. A lost packet comes later
// by a retransmission, and TCP holds back what follows it.
func (p *Proxy) enter(d Direction, n int) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, s := &p.road[d], &p.shape
	if now := time.Now(); r.free.Before(now.Add(-slack)) {
		r.free = now.Add(-slack)
		if s.Rate[d] <= 0 {
			r.free = now
		}
	}
	r.free = r.free.Add(transmission(int64(n), s.Rate[d]))
	due := r.free.Add(s.Delay)
	for at := 0; s.Loss > 0 && at < n; at += packet {
		if r.loss.Float64() < s.Loss {
			due = due.Add(2*s.Delay + recovery)
		}
	}
	return due
}

// jam is how long to wait until the queue has room, and how much to read then;
// held is what the connection has between its sockets.
func (p *Proxy) jam(d Direction, held int64) (wait time.Duration, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rate := p.shape.Rate[d]
	if n = 64 << 10; rate > 0 {
		wait = time.Until(p.road[d].free) - transmission(p.shape.queue(d), rate)
		n = min(n, max(packet, rate/200))
	}
	if held > p.shape.holds(d) {
		wait = max(wait, 2*time.Millisecond) // a hole, or a receiver that does not read
	}
	return wait, n
}

type chunk struct {
	due  time.Time
	data []byte
}

// transit is what is between the two sockets of one direction of a connection.
type transit struct {
	mu     sync.Mutex
	queue  []chunk
	held   int64         // bytes, of the chunk that is being written too
	ended  bool          // the sender sends no more
	broken bool          // the receiver takes no more
	wake   chan struct{} // capacity 1
}

func (t *transit) add(c chunk) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, c)
	t.held += int64(len(c.data))
	t.signal()
	return !t.broken
}

func (t *transit) end() { t.mu.Lock(); defer t.mu.Unlock(); t.ended = true; t.signal() }

func (t *transit) holds() int64 { t.mu.Lock(); defer t.mu.Unlock(); return t.held }

func (t *transit) written(n int) { t.mu.Lock(); defer t.mu.Unlock(); t.held -= int64(n) }

func (t *transit) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *transit) next() (c chunk, ok bool) {
	for {
		t.mu.Lock()
		if len(t.queue) > 0 {
			c, t.queue = t.queue[0], t.queue[1:]
			t.mu.Unlock()
			return c, true
		}
		ended := t.ended
		t.mu.Unlock()
		if ended {
			return c, false
		}
		<-t.wake
	}
}

// pump carries one direction of a connection.
func (p *Proxy) pump(d Direction, dst, src net.Conn) {
	t := &transit{wake: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	wg.Go(func() { p.deliver(d, t, dst, src) })
	defer wg.Wait()
	defer t.end()
	buf := make([]byte, 64<<10)
	var last time.Time
	for {
		wait, size := p.jam(d, t.holds())
		if wait > 0 {
			time.Sleep(min(wait, 50*time.Millisecond)) // a cut, or another shape, is noticed soon
			if !p.stands(src) {
				return
			}
			continue
		}
		n, err := src.Read(buf[:size])
		if n > 0 {
			due := p.enter(d, n)
			if due.Before(last) {
				due = last
			}
			if last = due; !t.add(chunk{due, append([]byte(nil), buf[:n]...)}) {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reset(dst)
			}
			return
		}
	}
}

func (p *Proxy) stands(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.conns[c]
	return ok && !p.closed
}

// deliver writes each chunk when it is due.
func (p *Proxy) deliver(d Direction, t *transit, dst, src net.Conn) {
	for {
		c, ok := t.next()
		if !ok || !p.pass(d, c, dst) {
			break
		}
		if _, err := dst.Write(c.data); err != nil {
			break
		}
		p.bytes[d].Add(int64(len(c.data)))
		t.written(len(c.data))
	}
	t.mu.Lock()
	t.broken = true
	t.mu.Unlock()
	reset(dst)
	reset(src)
}

// pass waits until the chunk may go; false means the link is gone.
func (p *Proxy) pass(d Direction, c chunk, dst net.Conn) bool {
	for {
		p.mu.Lock()
		_, stands := p.conns[dst]
		hole, changed := p.hole[d], p.changed
		stands = stands && !p.closed
		p.mu.Unlock()
		switch wait := time.Until(c.due); {
		case !stands:
			return false
		case hole:
			<-changed
		case wait <= 0:
			return true
		default:
			late := time.NewTimer(wait)
			select {
			case <-changed:
			case <-late.C:
			}
			late.Stop()
		}
	}
}
