package commands

import (
	"context"
	"errors"
	"strconv"

	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// finish does what follows from a final state that is durable: a letter if
// nobody has done the command, then its message goes. It may be called again.
func (c *Commands) finish(ctx context.Context, r *record) error {
	cmd, err := c.message(ctx, r)
	if errors.Is(err, store.ErrNotFound) {
		return c.clear(ctx, r, nil)
	}
	if err != nil {
		return err
	}
	return c.clear(ctx, r, cmd)
}

// message is the command in COMMANDS, or store.ErrNotFound.
func (c *Commands) message(ctx context.Context, r *record) (*command, error) {
	info, err := c.stream(ctx, false)
	if err != nil {
		return nil, err
	}
	if r.Stream != info.Incarnation { // the stream was made anew; it may be there again
		return c.find(ctx, r.Device, r.ID)
	}
	m, err := c.cfg.Store.Get(ctx, store.Commands, r.Seq)
	if err != nil {
		return nil, err
	}
	cmd, err := parse(m, info.Incarnation)
	if err != nil || cmd.ID != r.ID || cmd.Device != r.Device {
		return nil, store.ErrNotFound // overtaken by a stream that was made anew just now
	}
	return cmd, nil
}

// clear is finish for who knows the message; nil: there is none.
func (c *Commands) clear(ctx context.Context, r *record, cmd *command) error {
	if r.State == wire.CommandExpired || r.State == wire.CommandFailed {
		if err := c.fault("letter"); err != nil {
			return err
		}
		if err := c.cfg.Letters.Command(ctx, letter(r, cmd)); err != nil {
			return err
		}
	}
	if cmd == nil {
		return nil
	}
	if err := c.fault("remove"); err != nil {
		return err
	}
	if _, err := c.cfg.Store.Delete(ctx, store.Commands, cmd.Seq); err != nil {
		return err
	}
	return c.fault("removed")
}

func letter(r *record, cmd *command) deadletter.LostCommand {
	out := deadletter.LostCommand{
		Incarnation: r.Stream, Seq: r.Seq, Subject: wire.CommandSubject(r.Device), Reason: string(r.State), Detail: r.Reason,
		Deliveries: r.Deliveries,
		Header:     map[string][]string{HdrSubject: {r.Subject}, HdrID: {r.ID}},
	}
	if r.Group != "" {
		out.Header[HdrGroup] = []string{r.Group}
	}
	if cmd != nil {
		out.Payload, out.Kept = cmd.payload, true
		out.Header[HdrTTL] = []string{(stamp(cmd.Expires).Sub(stamp(cmd.Sent))).String()}
		out.Header[HdrMaxDeliver] = []string{strconv.Itoa(cmd.maxDeliver)}
	}
	return out
}
