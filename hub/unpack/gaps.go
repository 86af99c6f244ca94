package unpack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// gaps turns every void of the ledger into one message on dead.gap.<device>.
type gaps struct {
	u      *Unpacker
	state  saved[Checkpoint] // owned by work; StreamSeq is not used
	health health
}

// work reads the ledger until ctx ends or something fails.
func (g *gaps) work(ctx context.Context) error {
	at, err := g.resume(ctx)
	if err != nil {
		return err
	}
	r, err := g.u.cfg.Store.Reader(g.u.ledger, at.Block)
	if err != nil {
		return err
	}
	defer r.Close()
	saved := time.Now()
	for {
		m, err := r.Next(ctx)
		if err == nil {
			err = g.take(ctx, m)
			at.Block = m.Seq + 1
		}
		idle := errors.Is(err, store.ErrNotFound)
		if err != nil && !idle {
			return err
		}
		if at != g.state.val && time.Since(saved) >= g.u.cfg.CheckpointEvery {
			if err := g.save(ctx, at); err != nil {
				return err
			}
			saved = time.Now()
		}
		if idle {
			g.health.set(g.u, "housekeeping", nil)
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
	}
}

// resume returns where to read on.
func (g *gaps) resume(ctx context.Context) (Checkpoint, error) {
	info, err := g.u.cfg.Store.Info(ctx, g.u.ledger)
	if err != nil {
		return Checkpoint{}, err
	}
	if _, err := g.state.load(ctx); err != nil {
		return Checkpoint{}, err
	}
	at := g.state.val
	switch {
	case at.Incarnation != info.Incarnation:
		at = Checkpoint{Incarnation: info.Incarnation, Position: Position{Block: info.First}}
	case at.Block > info.Last+1:
		at.Block = info.Last + 1
	default:
		return at, nil
	}
	return at, g.save(ctx, at)
}

func (g *gaps) save(ctx context.Context, at Checkpoint) error {
	if err := g.u.fault("gap:checkpoint"); err != nil {
		return err
	}
	return g.state.store(ctx, at)
}

// take looks at one message of the ledger.
func (g *gaps) take(ctx context.Context, m store.Stored) error {
	if m.Header[hdrVoid] == nil {
		return nil
	}
	if err := g.u.fault("gap:read"); err != nil {
		return err
	}
	h, err := wire.ParseHeader(m.Data)
	if errors.Is(err, wire.ErrVersion) {
		return fmt.Errorf("unpack: block %d of %s was written by a newer Fieldpost; upgrade this hub: %w", m.Seq, m.Subject, err)
	}
	var device string
	if err == nil {
		device, err = deviceOf(m.Subject, &h)
	}
	if err != nil {
		return g.u.poison(ctx, m, err)
	}
	reason := h.Reason.String()
	stored, err := g.u.dead(ctx, deadMsg{
		subject: "dead.gap." + device, block: m.Seq, point: "gap:publish",
		header: nats.Header{HdrGap: {h.Flow.String() + "/" + h.Range().String()}, HdrReason: {reason}},
	})
	if err == nil {
		err = g.u.fault("gap:commit")
	}
	if err != nil {
		return fmt.Errorf("unpack: gap %s of %s: %w", h.Range(), strings.TrimPrefix(m.Subject, "fp.blocks."), err)
	}
	if stored {
		g.u.cfg.OnDead(reason)
	}
	return nil
}
