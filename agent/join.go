package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/agent/command"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/downlink"
	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// openSpool opens the spool of the configuration.
func (a *Agent) openSpool() (store, error) {
	st, err := spool.Open(a.spoolConfig())
	if err != nil {
		return nil, a.openError(err)
	}
	return st, nil
}

func (a *Agent) spoolConfig() spool.Config {
	c := a.cfg.Spool
	return spool.Config{
		Dir: a.cfg.spoolDir(), MaxBytes: c.MaxBytes, KeepFree: c.KeepFree, CommitDelay: c.CommitDelay, Keys: c.Keys,
		MemoryFirst: c.Durability == memoryFirst, WhenFull: whenFull[c.WhenFull], MaxAge: c.MaxAge,
		Fault: a.cfg.Fault, Log: a.log,
		Synced: func(d time.Duration) { a.metrics.fsync.Update(d.Seconds()) },
	}
}

// openError says why the spool cannot be opened.
func (a *Agent) openError(err error) error {
	switch {
	case errors.Is(err, spool.ErrLocked):
		return fmt.Errorf("agent: data_dir %s: another agent uses it: %w", a.cfg.DataDir, err)
	case errors.Is(err, spool.ErrKey):
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(fmt.Errorf("spool.key_file: %w", err)))
	}
	return fmt.Errorf("agent: data_dir %s: %w", a.cfg.DataDir, err)
}

// openCommands opens the memory of commands beside the spool. Time to live is
// counted by the spool's clock.
func (a *Agent) openCommands(st store) *command.Store {
	return command.Open(command.Config{
		Dir: a.cfg.commandDir(), Clock: st.Clock, Counted: a.metrics.command, Fault: a.cfg.Fault, Log: a.log,
	})
}

// pingInterval is how often NATS itself asks whether an idle link is alive; a
// session asks on its own. In class metered its ping of 5 minutes is enough.
func (a *Agent) pingInterval() time.Duration {
	if a.linkClass() == classMetered {
		return 15 * time.Minute
	}
	return 20 * time.Second
}

// newNATSUplink joins the spool with the hub of the configuration.
func (a *Agent) newNATSUplink(st store) (uplinks, error) {
	sp, ok := st.(*spool.Spool)
	if !ok {
		return nil, fmt.Errorf("agent: no uplink for a %T", st)
	}
	dialer := a.cfg.Dialer
	if dialer == nil {
		var err error
		dialer, err = link.NewNATS(link.Config{
			URLs: a.cfg.Hub.URLs, Device: a.device, Creds: a.cfg.Hub.Creds, CA: a.cfg.Hub.CA,
			PingInterval: a.pingInterval,
		})
		if err != nil {
			return nil, fmt.Errorf("agent: %w: hub: %w", ErrConfig, err)
		}
	}
	hooks := a.metrics.hooks(func(n uint64) { a.rewound.Add(n) })
	count := hooks.Transition
	hooks.Transition = func(up bool) { count(up); sp.LinkUp(up) }
	down := downlink.New(downlink.Config{Device: a.device, Store: a.exchange, HubID: sp.HubID, Class: a.linkClass, Log: a.log})
	return uplink.New(uplink.Config{
		Device: a.device, Version: a.cfg.Version, Labels: a.cfg.Labels,
		Source: sp, Pins: sp, Dialer: dialer,
		Epoch:      func() wire.Epoch { return sp.Stats().Epoch },
		Class:      a.linkClass,
		FreshFirst: a.cfg.Spool.Order == freshFirst, FreshShare: a.cfg.Spool.FreshShare,
		Tuning: a.tuned.Load().Link.tuning(), Policy: a.policy,
		Heartbeat: func() wire.Heartbeat { return heartbeat(sp.Stats(), sp.Err(), a.started) },
		Hooks:     hooks,
		Attached: func(ctx context.Context, c link.Conn) {
			a.desired.SessionUp()
			down.Run(ctx, c)
		},
		Log: a.log,
	}), nil
}

// heartbeat is the agent's state as the hub's registry shows it.
func heartbeat(s spool.Stats, trouble error, started time.Time) wire.Heartbeat {
	h := wire.Heartbeat{
		Started: started.UnixMilli(), DiskUsed: s.DiskUsed, DiskMax: s.DiskMax,
		Backlog: map[string]wire.LaneBacklog{}, Dropped: map[string]uint64{}, Quarantine: s.Quarantine.Segments,
	}
	if trouble != nil {
		h.Error = &wire.LastError{Text: trouble.Error()}
	}
	if !s.Epoch.IsZero() {
		h.Epoch = s.Epoch.String()
	}
	for i, l := range s.Lanes {
		b := wire.LaneBacklog{Messages: l.Messages, Bytes: l.Bytes}
		if !l.Oldest.IsZero() {
			b.Oldest = l.Oldest.UnixMilli()
		}
		h.Backlog[wire.Lane(i).String()] = b
	}
	for r, n := range s.Dropped {
		if n > 0 {
			h.Dropped[r.String()] = n
		}
	}
	return h
}
