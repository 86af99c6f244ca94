package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Keys of the bucket: command.<device>.<id>, cancel.<device>, group.<id>.
const keyPrefix = "$KV." + store.CommandsBucket + "."

func commandKey(device, id string) string { return keyPrefix + "command." + device + "." + id }
func cancelKey(device string) string      { return keyPrefix + "cancel." + device }
func groupKey(id string) string           { return keyPrefix + "group." + id }

// get reads a value at the leader into v and returns its revision.
func (c *Commands) get(ctx context.Context, key string, v any) (rev uint64, err error) {
	m, err := c.cfg.Store.Last(ctx, store.CommandsIndex, key)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(m.Data, v); err != nil {
		return 0, fmt.Errorf("commands: the entry %s of bucket %s is not readable: %w; remove it", m.Subject[len(keyPrefix):], store.CommandsBucket, err)
	}
	return m.Seq, nil
}

// record reads a command's record, or store.ErrNotFound.
func (c *Commands) record(ctx context.Context, device, id string) (r record, err error) {
	r.rev, err = c.get(ctx, commandKey(device, id), &r)
	return r, err
}

// entry is a value that is to replace the one with revision rev; 0: none.
type entry struct {
	key string
	rev uint64
	v   any
}

func (r *record) entry() entry { return entry{commandKey(r.Device, r.ID), r.rev, r} }

// put writes all entries or none; store.ErrGuard means that one has changed.
func (c *Commands) put(ctx context.Context, entries ...entry) error {
	msgs, size := make([]store.Msg, len(entries)), 0
	for i, e := range entries {
		data, err := json.Marshal(e.v)
		if err != nil {
			return fmt.Errorf("commands: %w", err)
		}
		size += len(e.key) + len(data)
		msgs[i] = store.Msg{Subject: e.key, Data: data, Header: nats.Header{store.GuardSubject: {strconv.FormatUint(e.rev, 10)}}}
	}
	if _, err := c.cfg.Store.PublishBatch(ctx, msgs); err != nil {
		return fmt.Errorf("commands: write records: %w", err)
	}
	c.wrote(size)
	return nil
}

// wrote has the sweep come earlier when the bucket fills fast.
func (c *Commands) wrote(size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written += size; c.wakeAfter == 0 || c.written < c.wakeAfter {
		return
	}
	c.written = 0
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// again reports whether a write is to be tried again from what is there now.
func again(try int, err error) bool {
	return try < tries && (errors.Is(err, store.ErrGuard) || errors.Is(err, store.ErrUnknownOutcome))
}

// change applies fn to the record as it is, or to base if there is none, until
// nobody has changed it meanwhile. fn reports whether there is something to
// write. It returns the record as it is then.
func (c *Commands) change(ctx context.Context, base record, fn func(*record) bool) (r record, err error) {
	for try := 0; ; try++ {
		r, err = c.record(ctx, base.Device, base.ID)
		if errors.Is(err, store.ErrNotFound) {
			r, err = base, nil
			r.rev = 0
		}
		if err != nil {
			return r, err
		}
		was := r.State
		if !fn(&r) {
			return r, nil
		}
		if err = c.fault("change"); err == nil {
			err = c.put(ctx, r.entry())
		}
		if err == nil {
			if r.State != was {
				c.cfg.OnTransition(r.State)
			}
			return r, c.fault("changed")
		}
		if !again(try, err) {
			return r, err
		}
	}
}

func (c *Commands) fault(step string) error {
	if err := c.cfg.Fault("commands:" + step); err != nil {
		return fmt.Errorf("commands: %s: %w", step, err)
	}
	return nil
}
