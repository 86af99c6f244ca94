package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// cancels is what a device is to be told: the ids of commands that it may have
// and that are to be given up.
type cancels struct {
	IDs []string `json:"ids"`
}

const (
	maxCancels = 1000 // of one device
	maxTold    = 64   // in one reply
)

// ErrManyCancels means that a device is to give up too many commands already.
var ErrManyCancels = errors.New("commands: too many commands of the device are being cancelled")

// Cancel ends a command that its device cannot have. Else it asks the device to
// give it up: the answer is cancelling, and what becomes of it the device says.
// A command that is settled is left alone.
func (c *Commands) Cancel(ctx context.Context, id string) (admin.Command, error) {
	r, err := c.anywhere(ctx, id)
	if err != nil {
		return admin.Command{}, err
	}
	if r.away() && !r.State.Settled() {
		if err := c.addCancel(ctx, r.Device, r.ID); err != nil { // before the record: what is not cancelled is not told
			return admin.Command{}, err
		}
	}
	away := false
	r, err = c.change(ctx, r, func(r *record) bool {
		if away = r.away(); r.State.Settled() || away && r.Cancelling {
			return false
		}
		r.Cancelling = true
		return away || r.settle(wire.CommandCancelled, "", c.cfg.Now())
	})
	switch {
	case err != nil:
		return admin.Command{}, err
	case r.State.Settled():
		return r.show(nil), c.finish(ctx, &r)
	}
	if err := c.addCancel(ctx, r.Device, r.ID); err != nil { // it may have been offered just now
		return admin.Command{}, err
	}
	if err := c.cfg.Conn.Publish(wire.WakeSubject(r.Device), nil); err != nil {
		return admin.Command{}, fmt.Errorf("commands: wake %s: %w", r.Device, err)
	}
	return r.show(nil), nil
}

// addCancel adds an id to what the device is to be told.
func (c *Commands) addCancel(ctx context.Context, device, id string) error {
	for try := 0; ; try++ {
		var l cancels
		rev, err := c.get(ctx, cancelKey(device), &l)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if slices.Contains(l.IDs, id) {
			return nil
		}
		if len(l.IDs) >= maxCancels {
			return fmt.Errorf("%w: %d of %s; they wait until it is online", ErrManyCancels, len(l.IDs), device)
		}
		l.IDs = append(l.IDs, id)
		err = c.put(ctx, entry{cancelKey(device), rev, l})
		if err == nil || !again(try, err) {
			return err
		}
	}
}

// toCancel lists what the device is to be told, without what is settled.
func (c *Commands) toCancel(ctx context.Context, device string) (out []string, err error) {
	var l cancels
	rev, err := c.get(ctx, cancelKey(device), &l)
	if errors.Is(err, store.ErrNotFound) || err == nil && len(l.IDs) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var stay []string
	for i, id := range l.IDs {
		if len(out) == maxTold {
			stay = append(stay, l.IDs[i:]...)
			break
		}
		r, err := c.record(ctx, device, id)
		if errors.Is(err, store.ErrNotFound) || err == nil && r.State.Settled() {
			continue
		}
		if err != nil {
			return nil, err
		}
		stay = append(stay, id)
		if r.Cancelling {
			out = append(out, id)
		}
	}
	if len(stay) == len(l.IDs) {
		return out, nil
	}
	err = c.put(ctx, entry{cancelKey(device), rev, cancels{IDs: stay}})
	if errors.Is(err, store.ErrGuard) || errors.Is(err, store.ErrUnknownOutcome) {
		err = nil // the next request tidies up
	}
	return out, err
}
