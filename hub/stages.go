package hub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A stage is work that runs as long as the hub does. Stages stop one after the
// other, in the order in which they are listed.
type stage struct {
	name string
	run  func(ctx context.Context) error
	// again starts it anew after a failure, with backoff; the hub is not ready
	// meanwhile. Without it a failure ends the hub.
	again bool
}

// workers runs stages and knows which of them are down.
type workers struct {
	hub *Hub

	mu     sync.Mutex
	down   map[string]error  // guarded by mu
	logged map[string]logged // guarded by mu
}

type logged struct {
	text string
	at   time.Time
}

func newWorkers(h *Hub) *workers {
	return &workers{hub: h, down: map[string]error{}, logged: map[string]logged{}}
}

// run starts all stages, waits for ctx or for the first that ends by itself,
// then stops them in order. It returns when all have ended. If what they stand
// on is of no use any more (errReopen), it is given up first: none of them has to
// wait for answers that will not come.
func (w *workers) run(ctx context.Context, stages []stage, giveUp func()) error {
	w.reset()
	ended := make(chan error, len(stages))
	stops := make([]func(), len(stages))
	for i, s := range stages {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := w.keep(own, s); own.Err() == nil {
				ended <- err
			} else if err != nil {
				w.hub.cfg.Log.Warn("did not stop cleanly", "part", s.name, "err", err)
			}
		}()
		stops[i] = func() { cancel(); <-done }
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	if errors.Is(err, errReopen) {
		giveUp()
	} else {
		w.hub.stopping.Store(true)
		w.hub.cfg.Log.Info("hub stops")
	}
	for _, stop := range stops {
		stop()
	}
	return err
}

const (
	againFirst = time.Second
	againMost  = 30 * time.Second
)

// keep runs one stage until ctx ends, or until it fails for good.
func (w *workers) keep(ctx context.Context, s stage) error {
	for wait := againFirst; ; wait = min(2*wait, againMost) {
		began := time.Now()
		err := s.run(ctx)
		if ctx.Err() != nil {
			return err
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		err = fmt.Errorf("hub: %s: %w", s.name, err)
		if !s.again {
			return err
		}
		if time.Since(began) > 2*againMost {
			wait = againFirst
		}
		w.set(s.name, err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		w.set(s.name, nil)
	}
}

// set notes that a stage is down, or that it runs again. What fails the same
// way again and again is logged once in a while.
func (w *workers) set(name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.down, name)
		return
	}
	w.down[name] = err
	if l := w.logged[name]; l.text != err.Error() || time.Since(l.at) > 10*time.Minute {
		w.logged[name] = logged{err.Error(), time.Now()}
		w.hub.cfg.Log.Error("a part of the hub failed and is started again", "part", name, "err", err)
	}
}

// reset forgets what was said of stages that have ended.
func (w *workers) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.down)
}

// reasons says which stages are down.
func (w *workers) reasons() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.down)) {
		out = append(out, w.down[name].Error())
	}
	return out
}
