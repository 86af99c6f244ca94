package commands

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// span is a part of COMMANDS that has been looked at: nothing in it is to be
// done before due. So the memory that commands take here is that of spans.
type span struct {
	first, last uint64
	due         int64
}

const spanLength = 1024 // sequences

// sweepLoop sweeps until ctx ends. What goes wrong is tried again, logged once
// and shown by Err.
func (c *Commands) sweepLoop(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Sweep)
	defer tick.Stop()
	for {
		err := c.sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		was := c.err
		c.err = err
		c.mu.Unlock()
		switch {
		case err != nil && (was == nil || was.Error() != err.Error()):
			c.cfg.Log.Error("commands cannot be looked through; it is tried again", "error", err)
		case err == nil && was != nil:
			c.cfg.Log.Info("commands are looked through again")
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// sweep settles what expired, completes what a crash left half done in commands
// that are new since the last time, and cleans the bucket. All instances do it:
// whoever comes second finds nothing to do.
func (c *Commands) sweep(ctx context.Context) error {
	info, err := c.stream(ctx, true)
	if err != nil {
		return err
	}
	if info.Incarnation != c.of {
		c.of, c.spans, c.seen = info.Incarnation, nil, 0
	}
	now, kept := c.cfg.Now().UnixMilli(), c.spans[:0:0]
	for i, s := range c.spans {
		if s.last >= info.First && s.due <= now {
			if s.due, err = c.sweepSpan(ctx, s.first, s.last); err != nil {
				c.spans = append(kept, c.spans[i:]...)
				return err
			}
		}
		if s.last >= info.First && s.due < math.MaxInt64 {
			kept = append(kept, s)
		}
	}
	c.spans = kept
	for c.seen = max(c.seen, info.First-1); c.seen < info.Last; {
		s := span{first: c.seen + 1, last: min(info.Last, c.seen+spanLength)}
		if s.due, err = c.sweepSpan(ctx, s.first, s.last); err != nil {
			return err
		}
		c.seen = s.last
		if s.due < math.MaxInt64 {
			c.remember(s)
		}
	}
	return c.clean(ctx)
}

// remember keeps spans few where commands come one by one.
func (c *Commands) remember(s span) {
	if n := len(c.spans); n > 0 && s.last-c.spans[n-1].first < spanLength {
		c.spans[n-1].last, c.spans[n-1].due = s.last, min(c.spans[n-1].due, s.due)
		return
	}
	c.spans = append(c.spans, s)
}

// sweepSpan looks at the messages from first to last and returns when that is to
// be done again.
func (c *Commands) sweepSpan(ctx context.Context, first, last uint64) (due int64, err error) {
	due = math.MaxInt64
	r, err := c.cfg.Store.Reader(store.Commands, first)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) || err == nil && m.Seq > last {
			return due, nil
		}
		if err != nil {
			return 0, err
		}
		cmd, err := parse(m, c.of)
		if err != nil {
			continue // who asks for it says so
		}
		at, err := c.tend(ctx, cmd)
		if err != nil {
			return 0, err
		}
		due = min(due, at)
	}
}

// tend does what is due for one command and returns when something will be.
func (c *Commands) tend(ctx context.Context, cmd *command) (due int64, err error) {
	now := c.cfg.Now()
	r, err := c.change(ctx, cmd.record, func(r *record) bool {
		return now.UnixMilli() >= r.due() && r.settle(wire.CommandExpired, r.why(), now) || r.rev == 0
	})
	switch {
	case err != nil:
		return 0, err
	case r.State.Settled():
		return math.MaxInt64, c.clear(ctx, &r, cmd)
	}
	return r.due(), nil
}
