package commands

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// A full bucket lets its oldest entries go, and one that is store.CommandsAge old
// goes too: that is right for history, and wrong for a command that is not settled.
// So the bucket is cleaned before: what is alive in its oldest part is written
// anew, which puts it at the end, and then the part is purged. All that is alive
// has room in half of the bucket, as COMMANDS is bounded (store.CommandsShare).
const (
	cleanFrom = 7.0 / 8 // of max_bytes
	cleanTo   = 3.0 / 4
	cleanWake = 1.0 / 32 // of max_bytes, written by this instance: the next sweep comes at once
	cleanAge  = store.CommandsAge / 2
)

// clean goes on with the oldest part of the bucket, as far as it has to.
func (c *Commands) clean(ctx context.Context) error {
	info, err := c.cfg.Store.Info(ctx, store.CommandsIndex)
	if err != nil {
		return err
	}
	excess, most := float64(0), float64(info.MaxBytes)
	if most > 0 {
		c.mu.Lock()
		c.wakeAfter = int(most * cleanWake)
		c.mu.Unlock()
		if float64(info.Bytes) > most*cleanFrom {
			excess = float64(info.Bytes) - most*cleanTo
		}
	}
	if c.cleaned > info.Last { // the bucket was made anew
		c.cleaned = 0
	}
	from := max(info.First, c.cleaned+1)
	if excess == 0 {
		oldest, err := c.cfg.Store.Next(ctx, store.CommandsIndex, keyPrefix+">", from)
		if errors.Is(err, store.ErrNotFound) || err == nil && c.cfg.Now().Sub(oldest.Time) < cleanAge {
			return nil
		}
		if err != nil {
			return err
		}
	}
	r, err := c.cfg.Store.FilteredReader(store.CommandsIndex, keyPrefix+">", from)
	if err != nil {
		return err
	}
	defer r.Close()
	for gone := float64(0); ; {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) || err == nil && (m.Seq > info.Last || gone >= excess && c.cfg.Now().Sub(m.Time) < cleanAge) {
			break
		}
		if err != nil {
			return err
		}
		if err := c.keep(ctx, m); err != nil {
			return err
		}
		gone += float64(len(m.Subject) + len(m.Data))
		c.cleaned = m.Seq
	}
	if excess == 0 || c.cleaned < info.First {
		return nil
	}
	if err := c.fault("clean"); err != nil {
		return err
	}
	return c.cfg.Store.PurgeTo(ctx, store.CommandsIndex, c.cleaned)
}

// keep writes an entry anew if it is alive. One that somebody changes meanwhile is
// at the end by that.
func (c *Commands) keep(ctx context.Context, m store.Stored) error {
	key := strings.TrimPrefix(m.Subject, keyPrefix)
	switch kind, _, _ := strings.Cut(key, "."); kind {
	case "command":
		var r record
		if err := json.Unmarshal(m.Data, &r); err != nil || r.State.Settled() {
			return nil // what cannot be read is told to whoever asks for it
		}
		if r.rev = m.Seq; c.cfg.Now().UnixMilli() >= r.due() { // its message is gone, or the sweep had it
			return c.lapse(ctx, r)
		}
	case "cancel":
		var l cancels
		if err := json.Unmarshal(m.Data, &l); err != nil || len(l.IDs) == 0 {
			return nil
		}
	case "group": // the commands of a group tell for themselves
		var g group
		if err := json.Unmarshal(m.Data, &g); err != nil || c.cfg.Now().Sub(time.UnixMilli(g.Sent)) > forgotten {
			return nil
		}
	}
	err := c.put(ctx, entry{m.Subject, m.Seq, json.RawMessage(m.Data)})
	if errors.Is(err, store.ErrGuard) {
		return nil
	}
	return err
}

// lapse ends a command that nobody will ever say anything about.
func (c *Commands) lapse(ctx context.Context, r record) error {
	now := c.cfg.Now()
	r, err := c.change(ctx, r, func(r *record) bool { return now.UnixMilli() >= r.due() && r.settle(wire.CommandExpired, r.why(), now) })
	if err != nil || !r.State.Settled() {
		return err
	}
	return c.finish(ctx, &r)
}
