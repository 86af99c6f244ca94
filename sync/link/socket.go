package link

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxQueued is what a socket takes beyond the kernel's buffer before a
	// publisher waits; one message may go over it.
	maxQueued = 64 << 10
	// piece is how much is handed to the kernel at once: on a link of 16 KB/s it
	// makes room for a piece every second, well within any silence limit.
	piece = 16 << 10
	// blocked is how long a write takes, at least, that had to wait for the peer.
	blocked = 2 * time.Millisecond
	// linger is how long Close waits for what is queued.
	linger = 250 * time.Millisecond
)

// socket is a net.Conn whose Write never blocks. NATS writes while it holds the
// connection's lock, so a peer that takes nothing would stop even Close; here
// the one who waits is the publisher, in waitRoom, before it enters NATS.
type socket struct {
	net.Conn
	once sync.Once
	done chan struct{} // closed when pump has ended
	wake chan struct{} // capacity 1: there is something for pump

	progress atomic.Int64 // Unix nanoseconds: last end of a write that had waited

	mu      sync.Mutex
	queue   []byte        // taken from NATS, not yet seen by pump
	pending int           // len(queue) and what pump has still to write
	room    chan struct{} // closed when pending falls to maxQueued; nil: nobody waits
	closing bool
	err     error // why pump ended
}

func newSocket(c net.Conn) *socket {
	if tcp, ok := c.(*net.TCPConn); ok {
		boundUnsent(tcp, maxQueued)
	}
	s := &socket{Conn: c, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	go s.pump()
	return s
}

// Write queues p.
func (s *socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, s.err
	case s.closing:
		return 0, net.ErrClosed
	}
	s.queue = append(s.queue, p...)
	s.pending += len(p)
	s.signal()
	return len(p), nil
}

// waitRoom returns when the next message may be written.
func (s *socket) waitRoom(ctx context.Context) error {
	for {
		s.mu.Lock()
		if s.err != nil || s.pending <= maxQueued {
			defer s.mu.Unlock()
			return s.err
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		select {
		case <-room:
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pump writes what is queued; it is the only one that waits for the peer.
func (s *socket) pump() {
	defer close(s.done)
	var buf []byte
	for {
		s.mu.Lock()
		buf, s.queue = s.queue, buf[:0]
		closing := s.closing
		s.mu.Unlock()
		if len(buf) == 0 {
			if closing {
				return
			}
			<-s.wake
			continue
		}
		if err := s.drain(buf); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			s.Conn.Close() // the reader must notice as well
			return
		}
		if cap(buf) > 4*maxQueued {
			buf = nil // one large message must not hold its memory for ever
		}
	}
}

func (s *socket) drain(buf []byte) error {
	for len(buf) > 0 {
		start := time.Now()
		n, err := s.Conn.Write(buf[:min(piece, len(buf))])
		if err != nil {
			return err
		}
		if now := time.Now(); now.Sub(start) >= blocked {
			s.progress.Store(now.UnixNano())
		}
		buf = buf[n:]
		s.took(n)
	}
	return nil
}

func (s *socket) took(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= n
	if s.pending <= maxQueued && s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// signal needs mu or a pump that will look again anyway.
func (s *socket) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// failure is why the socket could not be written any more, if so.
func (s *socket) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close gives what is queued a moment to leave, and waits for pump.
func (s *socket) Close() (err error) {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.signal()
		s.mu.Unlock()
		late := time.NewTimer(linger)
		defer late.Stop()
		select {
		case <-s.done:
		case <-late.C:
		}
		err = s.Conn.Close()
		<-s.done
	})
	return err
}

// SetDeadline bounds reads only, as Write never waits.
func (s *socket) SetDeadline(t time.Time) error { return s.SetReadDeadline(t) }

// SetWriteDeadline does nothing, as Write never waits.
func (s *socket) SetWriteDeadline(time.Time) error { return nil }
