package client

import (
	"context"
	"errors"
	"time"
)

// maxResult is how many bytes of a result are kept.
const maxResult = 64 << 10

// Command is an instruction for this device.
type Command struct {
	ID         string // the same for every delivery: make effects idempotent by it
	Subject    string
	Payload    []byte
	Deliveries int       // to programs, this one included
	Sent       time.Time // by the hub's clock
	Expires    time.Time // when it is worth nothing any more, by this device's clock
}

// Handler carries out a command and returns its result, of which the first
// 64 KiB are kept. After an error the command is delivered again, later, and to
// any subscriber, unless the error wraps ErrTerminate. ctx ends when the
// subscription does.
type Handler func(ctx context.Context, c Command) (result []byte, err error)

// ErrTerminate is wrapped by the error of a handler to say that the command
// cannot be done, now or later: it has failed.
var ErrTerminate = errors.New("the command cannot be done")

// Subscribe hands commands whose subject matches filter to handler, one at a
// time, until ctx ends or the client is closed; then it waits for the handler
// and returns nil. The command is acked with the handler's result when that
// returns. While the agent does not answer, it is asked again and again: Subscribe
// uses connections of its own and does not end when the Client's breaks.
//
// A handler that takes longer than ack_wait is not called a second time here,
// but another subscriber may be; after max_deliver times ack_wait the command
// has failed. An error, an *Error, is returned when the agent refuses the filter.
func (c *Client) Subscribe(ctx context.Context, filter string, handler Handler) error {
	return c.SubscribeMany(ctx, filter, 1, handler)
}

// SubscribeMany is Subscribe with up to n commands at a time, at most 64. Those
// of one subject still come one after another.
func (c *Client) SubscribeMany(ctx context.Context, filter string, n int, handler Handler) error {
	if n < 1 || n > 64 {
		return errorf("bad_request", "%d commands at a time; 1 to 64 are possible", n)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-stop:
		}
	}()
	s := newSubscription(c.path, handler, n)
	return s.run(ctx, filter)
}
