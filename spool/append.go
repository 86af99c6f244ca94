package spool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// request is one Append on its way through a lane.
type request struct {
	msgs  []wire.Message
	done  func(Receipt, error)
	bytes int  // by wire.Message.Size, with an allowance for columns
	alone bool // its group is given to nobody else: a block with it could not be encoded

	// Filled in when the request joins a group.
	receipt Receipt
}

// messageCost is what a message takes in a block besides its content, at most,
// in round figures: times, lengths, subject and header numbers.
const messageCost = 48

// lane is the write path of one priority class: a queue, one goroutine that
// numbers and encodes, and one that commits.
type lane struct {
	s    *Spool
	name wire.Lane

	mu      sync.Mutex
	queue   []*request // guarded by mu
	bytes   int        // of the queue, guarded by mu
	enough  int        // guarded by mu: so many requests are worth a commit
	closing bool       // guarded by mu; nothing is queued afterwards

	wake chan struct{} // capacity 1: the queue became worth a look
	quit chan struct{} // closed when closing is set

	// Owned by run.
	next uint64    // next sequence
	base uint64    // first sequence of this run; 0 before the first message
	flow wire.Flow // zero before the first message
	seg  *segment  // nil before the first message and after a failure
	head *head     // of seg: only its room is looked at
	enc  *wire.Encoder
	busy bool // a group is with the committer, which then owns failed

	open      []wire.Message // of the group in hand, not encoded yet
	openBytes int
	scratch   []byte // for the encoder

	commits chan *group   // to commitLoop
	idle    chan struct{} // from commitLoop: the group was answered

	witness witness // owned by commitLoop

	failed wire.Ranges // numbered but never durable: voided with the next commit

	mem     *memory // nil: every commit goes to the disk
	lostErr error   // of Close, once run has ended

	done sync.WaitGroup // both goroutines
}

// Append stores msgs, all or none, in order, and returns when they are
// durable. Concurrent calls share a commit. ctx bounds the wait only: what was
// handed to a commit may become durable all the same.
func (s *Spool) Append(ctx context.Context, l wire.Lane, msgs []wire.Message) (Receipt, error) {
	type answer struct {
		r   Receipt
		err error
	}
	if err := ctx.Err(); err != nil {
		return Receipt{}, err
	}
	ch := make(chan answer, 1)
	s.Enqueue(l, msgs, func(r Receipt, err error) { ch <- answer{r, err} })
	select {
	case a := <-ch:
		return a.r, a.err
	case <-ctx.Done():
		return Receipt{}, ctx.Err()
	}
}

// Enqueue is Append without the wait: done is called once and must not block,
// neither may it call Close. It is called from the commit loop, or before
// Enqueue returns if msgs are refused at once. Order of calls is order of
// sequences. msgs must not be changed before done is called.
func (s *Spool) Enqueue(l wire.Lane, msgs []wire.Message, done func(Receipt, error)) {
	r := &request{msgs: msgs, done: done}
	if err := s.admit(l, r); err != nil {
		done(Receipt{}, err)
		return
	}
	if !s.lanes[l].push(r) {
		done(Receipt{}, ErrClosed)
	}
}

// admit refuses what no block could hold, before it can spoil the block of others.
func (s *Spool) admit(l wire.Lane, r *request) error {
	switch {
	case !l.Valid():
		return fmt.Errorf("%w: %s", ErrInvalid, l)
	case len(r.msgs) == 0:
		return fmt.Errorf("%w: there is none", ErrInvalid)
	case len(r.msgs) > s.cfg.MaxBatch:
		return fmt.Errorf("%w: %d messages; one append takes %d", ErrTooLarge, len(r.msgs), s.cfg.MaxBatch)
	}
	size := 0
	for i := range r.msgs {
		m := &r.msgs[i]
		size += m.Size()
		switch {
		case m.Subject == "" || len(m.Subject) > wire.MaxSubject:
			return fmt.Errorf("%w: message %d: subject of %d bytes; it has 1 to %d", ErrInvalid, i+1, len(m.Subject), wire.MaxSubject)
		case m.TTL < 0 || m.TTL > wire.MaxTTL:
			return fmt.Errorf("%w: message %d: ttl of %d ms", ErrInvalid, i+1, m.TTL)
		case m.Time < wire.MinTime || m.Time > wire.MaxTime:
			return fmt.Errorf("%w: message %d: time %d ms is not in the years 1 to 9999", ErrInvalid, i+1, m.Time)
		case m.Blank != 0:
			return fmt.Errorf("%w: message %d is blank", ErrInvalid, i+1)
		}
	}
	if size > maxAppend {
		return fmt.Errorf("%w: %d bytes; one append takes %d", ErrTooLarge, size, maxAppend)
	}
	r.bytes = size + len(r.msgs)*messageCost
	return nil
}

// push queues r. It wakes the lane when there is something new to decide: a
// first request, or enough for a block.
func (l *lane) push(r *request) bool {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return false
	}
	before := l.bytes
	l.queue = append(l.queue, r)
	l.bytes += r.bytes
	block := l.s.cfg.BlockBytes
	tell := len(l.queue) == 1 || len(l.queue) == l.enough || before < block && l.bytes >= block
	l.mu.Unlock()
	if tell {
		l.poke()
	}
	return true
}

func (l *lane) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// peek returns the first request, or nil.
func (l *lane) peek() *request {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0]
}

// pop removes the first request.
func (l *lane) pop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= l.queue[0].bytes
	l.queue[0] = nil
	l.queue = l.queue[1:]
	if len(l.queue) == 0 {
		l.queue = nil // the array of a burst goes with it
	}
}

// unpop puts requests back in front.
func (l *lane) unpop(rs []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rs {
		l.bytes += r.bytes
	}
	l.queue = append(append([]*request(nil), rs...), l.queue...)
}

// queued tells how many requests wait, and whether waiting for more gains
// nothing: there is enough for a block, or as many as came together the last
// time, which is when publishers that wait for each answer are all back.
func (l *lane) queued() (n int, enough, closing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = len(l.queue)
	all := n >= l.enough && l.s.cfg.CommitDelay <= cohortDelay
	return n, n > 0 && (l.bytes >= l.s.cfg.BlockBytes || all), l.closing
}

// cohortDelay is the longest CommitDelay that ends when everybody is back. A
// longer one was asked for: it brings together what comes one by one.
const cohortDelay = 10 * time.Millisecond

// waiting is the size of the queue.
func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes
}

// expect notes how many requests came together.
func (l *lane) expect(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enough = max(2, n*3/4) // a lone message waits for company
}
