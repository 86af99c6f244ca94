package commands

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// NewCommand is a command to be sent.
type NewCommand struct {
	ID      string // "": drawn. The same one again is the same command
	Device  string
	Group   string
	Subject string
	Payload []byte
	TTL     time.Duration // 0: Config.TTL
}

// Send stores a command and returns it when it is durable. An id that the device
// has a command of is answered with that. ErrTaken, ErrOther, store.ErrSubjectFull (too many
// of the device are not settled) and store.ErrFull mean that nothing is stored.
func (c *Commands) Send(ctx context.Context, n NewCommand) (admin.Command, error) {
	known := n.ID != ""
	if !known {
		n.ID = newID()
	}
	if n.TTL == 0 {
		n.TTL = c.cfg.TTL
	}
	if known {
		if r, err := c.existing(ctx, n); !errors.Is(err, store.ErrNotFound) {
			if err == nil {
				err = n.is(r)
			}
			return r.show(nil), err
		}
	}
	r, err := c.store(ctx, n)
	if err == nil {
		err = n.is(r)
	}
	if err != nil {
		return admin.Command{}, err
	}
	if err := c.fault("sent"); err != nil {
		return admin.Command{}, err
	}
	r, err = c.index(ctx, r)
	return r.show(nil), err
}

// is reports ErrOther if what has the id is another command.
func (n NewCommand) is(r record) error {
	if r.Sum != "" && r.Sum != sum(n.Subject, n.Payload) {
		return ErrOther
	}
	return nil
}

// newID draws an id: 130 random bits.
func newID() string { return strings.ToLower(rand.Text()) }

// existing returns the command that has the id already, or store.ErrNotFound.
func (c *Commands) existing(ctx context.Context, n NewCommand) (record, error) {
	r, err := c.record(ctx, n.Device, n.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return r, err
	}
	if n.Group == "" { // ids of a group's commands are made of their device
		r, err := c.anywhere(ctx, n.ID)
		switch {
		case err == nil && r.Device != n.Device:
			return r, fmt.Errorf("%w, %s", ErrTaken, r.Device)
		case !errors.Is(err, ErrUnknown):
			return r, err
		}
	}
	m, err := c.find(ctx, n.Device, n.ID)
	if err != nil {
		return record{}, err
	}
	return c.index(ctx, m.record)
}

// store puts the command into COMMANDS. After an unclear answer it looks: what is
// there is not stored again, and by its id the server knows it for a while.
func (c *Commands) store(ctx context.Context, n NewCommand) (record, error) {
	cmd := command{record: record{ID: n.ID, Device: n.Device, Group: n.Group, Subject: n.Subject}, payload: n.Payload,
		ackWait: c.cfg.AckWait, maxDeliver: c.cfg.MaxDeliver}
	for try := 0; ; try++ {
		err := c.fault("send")
		var seq uint64
		if err == nil {
			seq, err = c.cfg.Store.PublishBatch(ctx, []store.Msg{cmd.message(n.TTL)})
		}
		if err == nil {
			return c.stored(ctx, n, seq)
		}
		if !errors.Is(err, store.ErrUnknownOutcome) || try == 3 || ctx.Err() != nil {
			return record{}, fmt.Errorf("commands: send: %w", err)
		}
		m, e := c.find(ctx, n.Device, n.ID)
		if e == nil {
			c.cfg.OnTransition(wire.CommandPending)
			return m.record, nil
		}
		if !errors.Is(e, store.ErrNotFound) {
			return record{}, e
		}
	}
}

// stored reads the command back: the server's answer may be about one that has
// the same id.
func (c *Commands) stored(ctx context.Context, n NewCommand, seq uint64) (record, error) {
	info, err := c.stream(ctx, false)
	if err != nil {
		return record{}, err
	}
	m, err := c.cfg.Store.Get(ctx, store.Commands, seq)
	if errors.Is(err, store.ErrNotFound) { // settled since, by whoever sent it first
		r, err := c.record(ctx, n.Device, n.ID)
		if errors.Is(err, store.ErrNotFound) {
			err = fmt.Errorf("%w: it has been removed from %s already", ErrUnknown, store.Commands)
		}
		return r, err
	}
	if err != nil {
		return record{}, err
	}
	cmd, err := parse(m, info.Incarnation)
	switch {
	case err != nil:
		return record{}, err
	case cmd.Device != n.Device || cmd.ID != n.ID:
		return record{}, fmt.Errorf("%w, %s", ErrTaken, cmd.Device)
	}
	c.cfg.OnTransition(wire.CommandPending)
	return cmd.record, nil
}

// index writes the record of a pending command, unless there is one.
func (c *Commands) index(ctx context.Context, r record) (record, error) {
	return c.change(ctx, r, func(r *record) bool { return r.rev == 0 })
}
