package agent

import "sync"

// freeList keeps a few values for the next who needs one. Unlike a sync.Pool it
// survives garbage collections, which are frequent in a small heap, and most of all
// in a flood.
type freeList[T any] struct {
	keep int

	mu   sync.Mutex
	free []*T
}

// get returns nil if there is none.
func (l *freeList[T]) get() *T {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.free)
	if n == 0 {
		return nil
	}
	v := l.free[n-1]
	l.free[n-1], l.free = nil, l.free[:n-1]
	return v
}

func (l *freeList[T]) put(v *T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) < l.keep {
		l.free = append(l.free, v)
	}
}

func (l *freeList[T]) trim() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = nil
}

// Trim lets go of memory that is kept for the next flood: a megabyte, after one.
func (a *Agent) Trim() {
	a.frames.spareChunks.trim()
	a.frames.spareGroups.trim()
}
