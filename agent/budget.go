package agent

import (
	"context"
	"sync"
)

// budget bounds how much of something is in use at once.
type budget struct {
	max int64

	mu    sync.Mutex
	used  int64          // guarded by mu
	queue []*budgetClaim // waiting, oldest first; guarded by mu
}

type budgetClaim struct {
	n     int64
	given chan struct{} // closed when n is taken
}

func newBudget(max int64) *budget { return &budget{max: max} }

// take takes n if there is room now.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.max {
		return false
	}
	b.used += n
	return true
}

// wait takes n, which must not exceed max, when there is room.
func (b *budget) wait(ctx context.Context, n int64) error {
	b.mu.Lock()
	if len(b.queue) == 0 && b.used+n <= b.max {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	c := &budgetClaim{n: n, given: make(chan struct{})}
	b.queue = append(b.queue, c)
	b.mu.Unlock()
	select {
	case <-c.given:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == c {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			b.serve()
			return ctx.Err()
		}
	}
	return nil // given meanwhile
}

// give returns n.
func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("agent: more returned than taken")
	}
	b.serve()
}

func (b *budget) serve() {
	for len(b.queue) > 0 && b.used+b.queue[0].n <= b.max {
		b.used += b.queue[0].n
		close(b.queue[0].given)
		b.queue = b.queue[1:]
	}
}
