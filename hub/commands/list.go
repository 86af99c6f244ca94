package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// anywhere finds a record by its id alone, or ErrUnknown.
func (c *Commands) anywhere(ctx context.Context, id string) (r record, err error) {
	r.rev, err = c.get(ctx, commandKey("*", id), &r)
	if errors.Is(err, store.ErrNotFound) {
		err = ErrUnknown
	}
	return r, err
}

// Get returns a command, with its payload as long as it is not settled, or
// ErrUnknown. One that nobody can get any more, as its message was removed by
// somebody else, is settled by that.
func (c *Commands) Get(ctx context.Context, id string) (admin.Command, error) {
	r, err := c.anywhere(ctx, id)
	if err != nil {
		return admin.Command{}, err
	}
	if r.State.Settled() {
		return r.show(nil), nil
	}
	if _, err := c.stream(ctx, true); err != nil {
		return admin.Command{}, err
	}
	cmd, err := c.message(ctx, &r)
	switch {
	case err == nil:
		return r.show(cmd.payload), nil
	case !errors.Is(err, store.ErrNotFound):
		return admin.Command{}, err
	}
	r, err = c.change(ctx, r, func(now *record) bool { // it may have been settled and removed just now
		return !now.away() && now.rev == r.rev && now.settle(wire.CommandFailed, "its message is not in COMMANDS any more: somebody removed it, or the stream was made anew", c.cfg.Now())
	})
	if err == nil && r.State.Settled() {
		err = c.finish(ctx, &r)
	}
	return r.show(nil), err
}

// Query chooses commands. The zero value is all of them.
type Query struct {
	Device, Group string
	State         wire.CommandState
	After         uint64 // exclusive; of what List returned
}

// One page looks at so many records at most, so that a query which takes little
// ends too.
const pageLook = 20_000

// List returns up to limit commands, without payloads, in the order of their last
// change, and where to go on: 0 if there was no more.
func (c *Commands) List(ctx context.Context, q Query, limit int) (out []admin.Command, next uint64, err error) {
	device := q.Device
	if device == "" {
		device = "*"
	}
	out = []admin.Command{}
	looked := 0
	next, err = c.scan(ctx, commandKey(device, "*"), q.After, func(r *record) bool {
		if (q.Group == "" || r.Group == q.Group) && (q.State == "" || r.State == q.State) {
			out = append(out, r.show(nil))
		}
		looked++
		return len(out) < limit && looked < pageLook
	})
	return out, next, err
}

// scan calls fn with the records that a filter takes until it returns false; next
// is where to go on then, 0 at the end.
func (c *Commands) scan(ctx context.Context, filter string, after uint64, fn func(*record) bool) (next uint64, err error) {
	r, err := c.cfg.Store.FilteredReader(store.CommandsIndex, filter, after+1)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		rec := record{rev: m.Seq}
		if err := json.Unmarshal(m.Data, &rec); err != nil {
			return 0, fmt.Errorf("commands: the entry %s of bucket %s is not readable: %w; remove it", m.Subject[len(keyPrefix):], store.CommandsBucket, err)
		}
		if !fn(&rec) {
			return m.Seq, nil
		}
	}
}
