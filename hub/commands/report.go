package commands

import (
	"context"
	"errors"
	"maps"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// apply takes in reports and returns the ids of all when they are durable and
// nothing is left to be done for them, or are of no use.
func (c *Commands) apply(ctx context.Context, device string, reports []wire.CommandReport) (noted []string, err error) {
	if len(reports) == 0 {
		return nil, nil
	}
	for try := 0; ; try++ {
		err = c.tryApply(ctx, device, reports)
		if err == nil {
			break
		}
		if !again(try, err) {
			return nil, err
		}
	}
	seen := map[string]bool{}
	for _, p := range reports {
		if !seen[p.ID] {
			seen[p.ID] = true
			noted = append(noted, p.ID)
		}
	}
	return noted, nil
}

func (c *Commands) tryApply(ctx context.Context, device string, reports []wire.CommandReport) error {
	known, err := c.reportedOn(ctx, device, reports)
	if err != nil {
		return err
	}
	changed, states := map[string]*record{}, []wire.CommandState{}
	for _, p := range reports {
		if r := known[p.ID]; r != nil && r.reported(p, c.cfg.Now()) {
			changed[p.ID] = r
			states = append(states, p.State)
		}
	}
	if len(changed) > 0 {
		if err := c.fault("report"); err != nil {
			return err
		}
		var entries []entry
		for r := range maps.Values(changed) {
			entries = append(entries, r.entry())
		}
		if err := c.put(ctx, entries...); err != nil {
			return err
		}
		for _, s := range states {
			c.cfg.OnTransition(s)
		}
		if err := c.fault("reported"); err != nil {
			return err
		}
	}
	for _, r := range known { // also what a crash left of those before
		if r.State.Settled() {
			if err := c.finish(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportedOn reads the records that reports are about. Of a command without one
// the message in COMMANDS says as much. A report about anything else is of no use.
func (c *Commands) reportedOn(ctx context.Context, device string, reports []wire.CommandReport) (map[string]*record, error) {
	known := map[string]*record{}
	missing := map[string]bool{}
	for _, p := range reports {
		if known[p.ID] != nil || missing[p.ID] {
			continue
		}
		r, err := c.record(ctx, device, p.ID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			missing[p.ID] = true
		case err != nil:
			return nil, err
		default:
			known[p.ID] = &r
		}
	}
	if len(missing) == 0 {
		return known, nil
	}
	err := c.among(ctx, device, func(id string) bool { return missing[id] }, func(cmd *command) bool {
		delete(missing, cmd.ID)
		known[cmd.ID] = &cmd.record
		return len(missing) > 0
	})
	for range missing {
		c.cfg.Rejected("command_unknown")
	}
	return known, err
}
