package client

import (
	"context"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// Command is one instruction for a device.
type Command struct {
	Device  string
	Subject string        // that a program there subscribes to, such as valve.set
	Payload []byte        // at most 256 KiB
	TTL     time.Duration // 0: what the hub has as commands.ttl
	// ID names the command: the same one again is the same command, so a program
	// that gives one may send again after an error. Empty: drawn by the hub.
	ID string
}

// sendWait is how long one request waits; the next one goes on.
const sendWait = 30 * time.Second

// Send stores a command at the hub and returns it when that is durable: the device
// gets it when it is online. After an error that is no *admin.Problem it may be
// stored; sent again with the same ID it is the same.
func (c *Client) Send(ctx context.Context, cmd Command) (admin.Command, error) {
	return c.send(ctx, cmd, 0)
}

// SendAndWait is Send that returns when the command is settled: State is then
// acked, failed, expired or cancelled. If ctx ends before, the command goes on and
// the error is that of ctx.
func (c *Client) SendAndWait(ctx context.Context, cmd Command) (admin.Command, error) {
	for {
		out, err := c.send(ctx, cmd, sendWait)
		if err != nil || out.State.Settled() {
			return out, err
		}
		cmd.ID = out.ID
		if ctx.Err() != nil {
			return out, fmt.Errorf("hub/client: wait for command %s: %w", out.ID, context.Cause(ctx))
		}
	}
}

func (c *Client) send(ctx context.Context, cmd Command, wait time.Duration) (admin.Command, error) {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return admin.Command{}, err
	}
	defer done()
	n := admin.NewCommand{ID: cmd.ID, Subject: cmd.Subject, PayloadB64: cmd.Payload}
	if cmd.TTL != 0 {
		n.TTL = cmd.TTL.String()
	}
	out, err := c.admin.Send(ctx, cmd.Device, n, wait)
	if err != nil {
		return out, fmt.Errorf("hub/client: send to %s: %w", cmd.Device, err)
	}
	return out, nil
}
