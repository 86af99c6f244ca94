package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Limits of one framed connection.
const (
	maxFrameHead = 16 << 10  // of a publish beside its payload: subject, id, headers
	maxPending   = 16 << 10  // publishes handed to the spool and not answered
	maxSpare     = 16 << 10  // of a write buffer that is kept
	maxUnread    = 256 << 10 // bytes of answers that the program has not read
)

// frameConn is a connection that speaks the framed protocol. One goroutine
// reads publishes and hands them to the spool, one writes the answers.
type frameConn struct {
	a     *Agent
	c     net.Conn
	limit int // of a frame's type and body

	in       input             // owned by the reader
	count    uint64            // publishes read; owned by the reader
	waited   time.Duration     // for the rest of the frame that has begun; owned by the reader
	subjects map[string]string // checked, so that most cost no memory; owned by the reader

	mu      sync.Mutex
	changed *sync.Cond // pending or out became less, or over was set
	out     []byte     // answers not written yet; guarded by mu
	spare   []byte     // the buffer that is written in turn; guarded by mu
	pending int        // publishes with the spool; guarded by mu
	ending  bool       // the reader is done: write what there is and stop; guarded by mu
	broken  bool       // nothing can be written any more; guarded by mu
	stopped bool       // the agent stops: read no more; guarded by mu
	wake    chan struct{}
}

func newFrameConn(a *Agent, c net.Conn) *frameConn {
	f := &frameConn{
		a: a, c: c, limit: 1 + int(a.cfg.Socket.MaxPayload) + maxFrameHead,
		subjects: map[string]string{}, wake: make(chan struct{}, 1),
	}
	f.changed = sync.NewCond(&f.mu)
	f.in = input{a: a}
	return f
}

// serve returns when everything read was answered, or nobody reads answers.
func (f *frameConn) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(f.write)
	work.Go(func() { f.watchStop(ctx, cancel) })
	f.answer(func(out []byte) []byte {
		return frame.AppendHello(out, frame.Hello{
			Version: f.a.cfg.Version, Device: f.a.device, MaxPayload: f.a.cfg.Socket.MaxPayload, MaxFrame: f.limit,
		})
	})
	p := f.read(ctx)
	f.in.release()
	f.finish(p)
	cancel()
	work.Wait()
}

// watchStop ends the reading when the agent stops.
func (f *frameConn) watchStop(ctx context.Context, cancel func()) {
	select {
	case <-f.a.stopping:
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stopped = true
		f.c.SetReadDeadline(time.Now())
	case <-ctx.Done():
	}
}

// finish answers what is pending, tells why the connection ends, and lets the
// writer go.
func (f *frameConn) finish(p *problem) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.pending > 0 {
		f.changed.Wait()
	}
	if p != nil {
		f.out = frame.AppendError(f.out, frame.Error{First: f.count + 1, Code: p.code, Retry: uint64(p.retry()), Detail: p.detail})
	}
	f.ending = true
	f.signal()
}

// read takes publishes until the connection ends; it returns what to tell the
// program, or nil if it has gone.
func (f *frameConn) read(ctx context.Context) *problem {
	for {
		f.await()
		if p := f.in.room(ctx); p != nil {
			return p
		}
		inFrame := len(f.in.rest()) > 0
		f.setReadDeadline(inFrame)
		began := time.Now()
		n, err := f.c.Read(f.in.free())
		f.in.filled(n)
		if inFrame {
			f.waited += time.Since(began)
		}
		if p := f.take(); p != nil {
			return p
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if f.a.gate.now() == stopping {
				return newProblem(codeStopping, "retry when the agent runs again")
			}
			return newProblem(codeTimeout, "the rest of a frame did not come within %v; send it at once", f.a.cfg.BodyTimeout)
		case errors.Is(err, io.EOF) && len(f.in.rest()) > 0:
			return newProblem(codeBadRequest, "the connection ends in the middle of a frame")
		default:
			return nil
		}
	}
}

// await holds the reader back while there is too much without an answer.
func (f *frameConn) await() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.broken && (f.pending >= maxPending || len(f.out) > maxUnread) {
		f.changed.Wait()
	}
}

// setReadDeadline bounds the wait for the rest of a frame, not for its first byte:
// a frame may hold memory that others wait for.
func (f *frameConn) setReadDeadline(inFrame bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.stopped:
		f.c.SetReadDeadline(time.Now())
	case inFrame:
		f.c.SetReadDeadline(time.Now().Add(f.a.cfg.BodyTimeout - f.waited))
	default:
		f.c.SetReadDeadline(time.Time{})
	}
}

// take hands all complete frames of the input to the spool.
func (f *frameConn) take() *problem {
	g := grouping{f: f, now: time.Now()}
	for {
		typ, body, rest, need, err := frame.Next(f.in.rest(), f.limit)
		if err != nil {
			g.submit()
			return f.malformed(err)
		}
		if need > 0 {
			f.in.need = need
			g.submit()
			return nil
		}
		if typ != frame.TypePublish {
			g.submit()
			return newProblem(codeBadRequest, "frame type %d is not available in this version", typ)
		}
		var pub frame.View
		if err := frame.ParsePublish(body, &pub); err != nil {
			g.submit()
			return f.malformed(err)
		}
		f.in.consumed(rest)
		f.count++
		f.waited = 0
		g.add(&pub)
	}
}

func (f *frameConn) malformed(err error) *problem {
	if errors.Is(err, frame.ErrTooLarge) {
		return newProblem(codeTooLarge, "a frame is larger than socket.max_payload, %d bytes, allows (%v)", f.a.cfg.Socket.MaxPayload, err)
	}
	return newProblem(codeBadRequest, "%v", err)
}

// subject returns a checked subject.
func (f *frameConn) subject(b []byte) (string, *problem) {
	if s, ok := f.subjects[string(b)]; ok {
		return s, nil
	}
	s := string(b)
	if err := wire.CheckSubject(s); err != nil {
		return "", newProblem(codeBadSubject, "%v", err)
	}
	if len(f.subjects) == maxSubjects {
		clear(f.subjects)
	}
	f.subjects[s] = s
	return s, nil
}

// maxSubjects bounds the memory of subjects seen, per connection.
const maxSubjects = 256

// answer appends a frame for the writer. It does not block.
func (f *frameConn) answer(appendTo func([]byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return
	}
	f.out = appendTo(f.out)
	f.signal()
}

// settled is called when n publishes that were with the spool have their answer.
func (f *frameConn) settled(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pending -= n
	f.changed.Broadcast()
}

func (f *frameConn) signal() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// write sends answers until the reader is done and all are sent.
func (f *frameConn) write() {
	for range f.wake {
		for {
			f.mu.Lock()
			out, ending := f.out, f.ending
			f.out, f.spare = f.spare[:0], nil
			f.changed.Broadcast()
			f.mu.Unlock()
			if len(out) == 0 && ending {
				return
			}
			if len(out) > 0 {
				f.c.SetWriteDeadline(time.Now().Add(f.a.cfg.BodyTimeout))
				if _, err := f.c.Write(out); err != nil {
					f.fail(fmt.Errorf("agent: answers are not read: %w", err))
				}
			}
			if cap(out) > maxSpare {
				out = nil
			}
			f.mu.Lock()
			f.spare = out
			more := len(f.out) > 0 || f.ending
			f.mu.Unlock()
			if !more {
				break
			}
		}
	}
}

// fail ends a connection on which nothing can be written. What it has published
// stands.
func (f *frameConn) fail(err error) {
	f.a.log.Debug("framed connection broken", "error", err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = true
	f.out = nil
	f.c.Close() // ends the reader
	f.changed.Broadcast()
}
