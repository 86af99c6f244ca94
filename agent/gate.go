package agent

import (
	"context"
	"sync"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// store is the spool as the agent uses it.
type store interface {
	queue
	delivery
	Stats() spool.Stats
	Clock() int64 // milliseconds that nobody can set
	Close() error
}

// queue takes messages. done is called once and must not block; until then msgs
// and what they refer to must not change.
type queue interface {
	Enqueue(lane wire.Lane, msgs []wire.Message, done func(spool.Receipt, error))
	Err() error
}

// delivery tells what the hub has.
type delivery interface {
	Delivered(f wire.Flow, seq uint64) (bool, error)
	WaitDelivered(ctx context.Context, f wire.Flow, seq uint64) error
}

type state uint8

const (
	starting state = iota
	ready
	stopping
)

var stateNames = [...]string{"starting", "ready", "stopping"}

func (s state) String() string { return stateNames[s] }

// gate lets requests to the store while it is open, and knows when the last of
// them has left.
type gate struct {
	idle chan struct{} // closed when the gate is stopped and nobody is inside

	mu    sync.Mutex
	state state // guarded by mu
	store store // guarded by mu; nil while starting
	busy  int   // requests inside; guarded by mu
}

func (g *gate) open(st store) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == starting {
		g.state, g.store = ready, st
	}
}

// enter returns the store, for use until leave; or why there is none.
func (g *gate) enter() (store, *problem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch g.state {
	case starting:
		return nil, newProblem(codeStarting, "the spool is being opened; retry in a second")
	case stopping:
		return nil, newProblem(codeStopping, "retry when the agent runs again")
	}
	g.busy++
	return g.store, nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	if g.busy == 0 && g.state == stopping {
		close(g.idle)
	}
}

// stop refuses whoever comes from now on.
func (g *gate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = stopping
	if g.busy == 0 {
		close(g.idle)
	}
}

func (g *gate) now() state {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}
