package commands

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// waitPoll is how soon Wait sees what it was not told.
const waitPoll = 2 * time.Second

// Wait returns the command when it is settled, or as it is when ctx ends.
func (c *Commands) Wait(ctx context.Context, device, id string) (admin.Command, error) {
	news := make(chan *nats.Msg, 16)
	// What is written to the bucket passes by on its subject before it is durable:
	// a hint to look.
	sub, err := c.cfg.Conn.ChanSubscribe(commandKey(device, id), news)
	if err != nil {
		return admin.Command{}, err
	}
	defer sub.Unsubscribe() // fails only on a closed connection
	poll := time.NewTicker(waitPoll)
	defer poll.Stop()
	for {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestFor)
		r, err := c.record(look, device, id)
		cancel()
		if err != nil || r.State.Settled() || ctx.Err() != nil {
			return r.show(nil), err
		}
		select {
		case <-ctx.Done():
		case <-poll.C:
		case <-news:
			settle := time.NewTimer(20 * time.Millisecond) // until it is durable
			select {
			case <-settle.C:
			case <-ctx.Done():
			}
			settle.Stop()
		}
	}
}
