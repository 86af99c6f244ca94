package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Sizes of what framed connections read into.
const (
	smallChunk  = 4 << 10  // of a connection that is mostly idle; bounded by the number of connections
	normalChunk = 64 << 10 // of a busy one
	leastRead   = 1 << 10  // room below which a chunk counts as full
)

// frameBudgets bound the memory of framed connections. Who waits for one may
// hold only those before it, so that nobody waits in a circle: chunks (never
// waited for), large, messages.
type frameBudgets struct {
	chunks   *budget // bytes of normal chunks
	large    *budget // bytes of frames that do not fit into one
	messages *budget // with the spool
	hub      *budget // publishes that wait for the hub

	spareChunks freeList[chunk] // normal ones
	spareGroups freeList[group]
}

func newFrameBudgets(s SocketConfig) frameBudgets {
	return frameBudgets{
		chunks:   newBudget(s.MaxInflight / 4),
		large:    newBudget(max(s.MaxInflight/4, s.MaxPayload+2*maxFrameHead)),
		messages: newBudget(64 << 10),
		hub:      newBudget(1024),

		spareChunks: freeList[chunk]{keep: 8},
		spareGroups: freeList[group]{keep: 4},
	}
}

// chunk is memory that a connection reads into. Payloads alias it until the
// spool has answered for them.
type chunk struct {
	buf   []byte
	held  int64 // of the budgets
	large bool
	refs  atomic.Int32 // the reader, and each group
}

var smallChunks = sync.Pool{New: func() any { return &chunk{buf: make([]byte, smallChunk)} }}

// drop gives one reference back.
func (c *chunk) drop(a *Agent) {
	if c.refs.Add(-1) > 0 {
		return
	}
	switch {
	case c.large:
		a.frames.large.give(c.held)
		a.bodies.give(min(c.held, a.bodies.max-a.frames.chunks.max))
	case c.held > 0:
		a.frames.chunks.give(c.held)
		a.bodies.give(c.held)
		c.held = 0
		a.frames.spareChunks.put(c)
	default:
		smallChunks.Put(c)
	}
}

// input is what a connection has read and not taken yet: cur.buf[r:w]. It is
// owned by the reader.
type input struct {
	a    *Agent
	cur  *chunk
	r, w int
	need int  // bytes from r on that make the next frame whole, as far as is known
	full bool // a read filled all the room: there is more to come
}

func (in *input) rest() []byte         { return in.cur.slice(in.r, in.w) }
func (in *input) free() []byte         { return in.cur.buf[in.w:] }
func (in *input) consumed(rest []byte) { in.r = in.w - len(rest) }

func (in *input) filled(n int) {
	in.w += n
	in.full = in.w == len(in.cur.buf)
}

func (c *chunk) slice(from, to int) []byte {
	if c == nil {
		return nil
	}
	return c.buf[from:to:to]
}

// hold returns the current chunk for one group.
func (in *input) hold() *chunk {
	in.cur.refs.Add(1)
	return in.cur
}

// room makes room for the next frame, as far as its size is known.
func (in *input) room(ctx context.Context) *problem {
	if in.cur != nil && in.r == in.w {
		switch {
		case in.cur.large: // it was made for one frame; nobody may wait for the next and hold it
			in.release()
		case in.cur.refs.Load() == 1:
			in.r, in.w = 0, 0 // nobody else looks at it
		}
	}
	if in.fits() {
		return nil
	}
	next := in.a.chunk(in.full || in.cur != nil && in.cur.held > 0 && in.w > len(in.cur.buf)/2)
	if in.need > len(next.buf) {
		next.refs.Store(1)
		next.drop(in.a)
		var p *problem
		if next, p = in.a.largeChunk(ctx, in.need); p != nil {
			return p
		}
	}
	next.refs.Store(1)
	n := copy(next.buf, in.rest())
	in.release()
	in.cur, in.r, in.w = next, 0, n
	return nil
}

// fits reports whether the current chunk takes the next frame, and it would not
// pay to move on. A frame that has begun in a large chunk ends there.
func (in *input) fits() bool {
	if in.cur == nil || in.r+in.need > len(in.cur.buf) {
		return false
	}
	free := len(in.cur.buf) - in.w
	return free >= leastRead || free > 0 && (in.r == 0 || in.cur.large)
}

func (in *input) release() {
	if in.cur != nil {
		in.cur.drop(in.a)
		in.cur = nil
	}
	in.r, in.w = 0, 0
}

// chunk returns a small one, or a normal one if wanted and there is memory.
func (a *Agent) chunk(normal bool) *chunk {
	if normal && a.frames.chunks.take(normalChunk) {
		if a.bodies.take(normalChunk) {
			c := a.frames.spareChunks.get()
			if c == nil {
				c = &chunk{buf: make([]byte, normalChunk)}
			}
			c.held = normalChunk
			return c
		}
		a.frames.chunks.give(normalChunk)
	}
	return smallChunks.Get().(*chunk)
}

// largeChunk waits for the memory of one large frame, but not for ever: slow
// programs may hold all of it.
func (a *Agent) largeChunk(ctx context.Context, size int) (*chunk, *problem) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.HeaderTimeout)
	defer cancel()
	n := int64(size)
	err := a.frames.large.wait(ctx, n)
	if err == nil {
		if err = a.bodies.wait(ctx, min(n, a.bodies.max-a.frames.chunks.max)); err != nil {
			a.frames.large.give(n)
		}
	}
	switch {
	case err == nil:
		return &chunk{buf: make([]byte, size), held: n, large: true}, nil
	case errors.Is(err, context.DeadlineExceeded):
		return nil, newProblem(codeQuota, "no memory for a frame of %d bytes within %v; retry, or raise socket.max_inflight", size, a.cfg.HeaderTimeout)
	}
	return nil, newProblem(codeStopping, "retry when the agent runs again")
}
