package unpack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// gaps turns every void of the ledger, and every run of blank messages, into one
// message on dead.gap.<device>.
type gaps struct {
	u      *Unpacker
	dec    *wire.Decoder    // owned by work; nil before the first block with blanks
	state  saved[gapsEntry] // owned by work; StreamSeq is not used
	health health

	mu   sync.Mutex
	seen Unrouted // as far as is known; guarded by mu
}

// work reads the ledger until ctx ends or something fails.
func (g *gaps) work(ctx context.Context) error {
	at, err := g.resume(ctx)
	if err != nil {
		return err
	}
	tables, err := g.u.currentTables(ctx)
	if err != nil {
		return err
	}
	r, err := g.u.cfg.Store.Reader(g.u.ledger, at.Block)
	if err != nil {
		return err
	}
	defer r.Close()
	saved := time.Now()
	var parts pieces
	for {
		m, err := r.Next(ctx)
		if err == nil {
			next := m.Seq + 1
			m, whole, broken := parts.add(m)
			if whole && broken == nil { // else whoever unpacks it finds that out
				err = g.take(ctx, m)
				g.count(&at.Unrouted, tables, m)
			}
			if !parts.open() {
				at.Block = next
			}
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
			if tables, err = g.u.currentTables(ctx); err != nil {
				return err
			}
		}
		g.show(at.Unrouted)
		if idle {
			g.health.set(g.u, "housekeeping", nil)
			if err := r.Wait(ctx); err != nil {
				return err
			}
		}
	}
}

// resume returns where to read on.
func (g *gaps) resume(ctx context.Context) (gapsEntry, error) {
	info, err := g.u.cfg.Store.Info(ctx, g.u.ledger)
	if err != nil {
		return gapsEntry{}, err
	}
	if _, err := g.state.load(ctx); err != nil {
		return gapsEntry{}, err
	}
	at := g.state.val
	switch {
	case at.Incarnation != info.Incarnation:
		at.Checkpoint = Checkpoint{Incarnation: info.Incarnation, Position: Position{Block: info.First}}
	case at.Block > info.Last+1:
		at.Block = info.Last + 1
	default:
		return at, nil
	}
	return at, g.save(ctx, at)
}

func (g *gaps) save(ctx context.Context, at gapsEntry) error {
	if err := g.u.fault("gap:checkpoint"); err != nil {
		return err
	}
	return g.state.store(ctx, at)
}

// take looks at one message of the ledger.
func (g *gaps) take(ctx context.Context, m store.Stored) error {
	if m.Header[hdrVoid] == nil && m.Header[hdrBlank] == nil {
		return nil
	}
	if err := g.u.fault("gap:read"); err != nil {
		return err
	}
	runs, h, err := g.runs(m)
	if errors.Is(err, wire.ErrVersion) {
		return fmt.Errorf("unpack: block %d of %s was written by a newer Fieldpost; upgrade this hub: %w", m.Seq, m.Subject, err)
	}
	var device string
	if err == nil {
		device, err = deviceOf(m.Subject, h)
	}
	switch {
	case err != nil && m.Header[hdrBlank] != nil:
		return nil // whoever unpacks it finds that out
	case err != nil:
		return g.u.poison(ctx, m, err)
	}
	if err := g.publish(ctx, m, device, h, runs); err != nil {
		return fmt.Errorf("unpack: gaps in %s of %s: %w", h.Range(), strings.TrimPrefix(m.Subject, "fp.blocks."), err)
	}
	return nil
}

// gap is a range of a block that will never come.
type gap struct {
	wire.Range
	reason wire.Reason
}

// runs lists the gaps of a block: all of a void, else its runs of blank messages.
func (g *gaps) runs(m store.Stored) (out []gap, h *wire.Header, err error) {
	if m.Header[hdrBlank] == nil {
		h, err := wire.ParseHeader(m.Data)
		return []gap{{h.Range(), h.Reason}}, &h, err
	}
	if g.dec == nil {
		g.dec = wire.NewDecoder()
	}
	b, err := g.dec.Decode(m.Data, false)
	if err != nil {
		return nil, nil, err
	}
	for i := range b.Messages {
		seq, why := b.First+uint64(i), b.Messages[i].Blank
		if n := len(out); n > 0 && out[n-1].Last+1 == seq && out[n-1].reason == why {
			out[n-1].Last = seq
		} else if why != 0 {
			out = append(out, gap{wire.Range{First: seq, Last: seq}, why})
		}
	}
	return out, &b.Header, nil
}

func (g *gaps) publish(ctx context.Context, m store.Stored, device string, h *wire.Header, runs []gap) error {
	ds := make([]deadMsg, len(runs))
	for i, r := range runs {
		ds[i] = deadMsg{index: int(r.First - h.First), header: nats.Header{
			HdrGap: {h.Flow.String() + "/" + r.Range.String()}, HdrReason: {r.reason.String()}}}
	}
	stored, err := g.u.dead(ctx, deadPlace{"dead.gap." + device, m.Seq, "gap:publish"}, ds)
	if err == nil {
		err = g.u.fault("gap:commit")
	}
	if err != nil {
		return err
	}
	for _, r := range runs[len(runs)-stored:] {
		g.u.cfg.OnDead(r.reason.String())
	}
	return nil
}
