package link

import (
	"context"
	"net"
	"time"
)

const (
	// stagger is after how long the next server is tried beside those that have
	// not answered yet.
	stagger = time.Second
	// fresh is how often a server that does not answer gets a new SYN of a new
	// socket: the kernel repeats that of an old one after 1, 2, 4, 8 s, and a link
	// that is back would be noticed as late.
	fresh = 2 * time.Second
)

// outcome is how the try with this index ended.
type outcome[T any] struct {
	index int
	won   T
	err   error
}

// race tries 0 to n-1: the first at once, each next one when another has failed
// or every after the last was started. The first success is the winner; the
// others are cancelled, and dropped if they succeed all the same. It returns
// when no try runs any more; without a winner its index is -1.
func race[T any](ctx context.Context, n int, every time.Duration, try func(context.Context, int) (T, error), drop func(T)) (winner outcome[T], failed []outcome[T]) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	winner.index = -1
	results := make(chan outcome[T])
	timer := time.NewTimer(every)
	defer timer.Stop()
	next, running := 0, 0
	start := func() {
		if next == n || ctx.Err() != nil {
			return
		}
		i := next
		next, running = next+1, running+1
		go func() {
			won, err := try(ctx, i)
			results <- outcome[T]{i, won, err}
		}()
		timer.Reset(every)
	}
	for start(); running > 0; {
		select {
		case <-timer.C:
			start()
		case o := <-results:
			running--
			switch {
			case o.err != nil && winner.index < 0:
				failed = append(failed, o)
				start()
			case o.err != nil: // cancelled
			case winner.index >= 0:
				drop(o.won)
			default:
				winner = o
				cancel()
			}
		}
	}
	return winner, failed
}

// socketAnswer is what one attempt at one address came to: any answer, a refusal
// too, decides for those that still wait for one.
type socketAnswer struct {
	conn net.Conn
	err  error
}

// openSocket is dial, begun anew beside itself while nothing answers.
func openSocket(ctx context.Context, dial dialFunc, network, address string) (net.Conn, error) {
	w, _ := race(ctx, int(connectTimeout/fresh), fresh,
		func(ctx context.Context, _ int) (socketAnswer, error) {
			c, err := dial(ctx, network, address)
			return socketAnswer{c, err}, nil
		},
		func(a socketAnswer) {
			if a.err == nil {
				a.conn.Close()
			}
		})
	if w.index < 0 { // ctx had ended before
		return nil, context.Cause(ctx)
	}
	return w.won.conn, w.won.err
}
