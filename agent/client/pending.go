package client

import "context"

// Pending is a message on its way.
type Pending struct {
	c *Client

	// Guarded by c.mu.
	receipt Receipt
	err     *Error
	settled bool
	done    chan struct{} // made when somebody waits; closed when settled
}

// Wait returns what came of the message. It can be called more than once. If ctx
// ends first the message may still be accepted.
func (p *Pending) Wait(ctx context.Context) (Receipt, error) {
	c := p.c
	c.mu.Lock()
	if !p.settled {
		if p.done == nil {
			p.done = make(chan struct{})
		}
		done := p.done
		c.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
			return Receipt{}, ctx.Err()
		}
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if p.err != nil {
		return Receipt{}, p.err
	}
	return p.receipt, nil
}

// settle is called once, with c.mu held.
func (p *Pending) settle(r Receipt, err *Error) {
	p.receipt, p.err, p.settled = r, err, true
	if p.done != nil {
		close(p.done)
	}
}

// window is the messages that have no answer, by number: a ring that grows to
// the most that are allowed. Answers may come in any order.
type window struct {
	ring  []*Pending // len is a power of two; nil where answered
	first uint64     // number of the oldest without an answer
	next  uint64     // number of the next message
	open  int        // without an answer
}

func newWindow() window { return window{ring: make([]*Pending, 64), first: 1, next: 1} }

func (w *window) at(n uint64) **Pending { return &w.ring[n&uint64(len(w.ring)-1)] }

func (w *window) push(p *Pending) {
	if w.next-w.first == uint64(len(w.ring)) {
		old := *w
		w.ring = make([]*Pending, 2*len(old.ring))
		for n := old.first; n < old.next; n++ {
			*w.at(n) = *old.at(n)
		}
	}
	*w.at(w.next) = p
	w.next++
	w.open++
}

// take removes message n; nil if it has its answer, or was never sent.
func (w *window) take(n uint64) *Pending {
	if n < w.first || n >= w.next {
		return nil
	}
	slot := w.at(n)
	p := *slot
	*slot = nil
	if p != nil {
		w.open--
	}
	for w.first < w.next && *w.at(w.first) == nil {
		w.first++
	}
	return p
}
