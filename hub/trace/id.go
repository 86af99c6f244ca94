package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// ID tells where the newest message of a device with that publisher's id is. It
// looks through the routes' streams, then through the ledger's blocks for what is
// not unpacked.
func (t *Tracer) ID(ctx context.Context, device, id string) (admin.Trace, error) {
	a := t.ask(device)
	err := a.id(ctx, id)
	a.out.ID = id
	return a.answer(), err
}

func (a *asked) id(ctx context.Context, id string) error {
	f, seq, n, err := a.inStreams(ctx, id)
	if err == nil && n == 0 {
		f, seq, n, err = a.inBlocks(ctx, id)
	}
	if err != nil {
		return err
	}
	if n == 0 {
		text := "no message of the device with this id is in the routes' streams or in BLOCKS: it was not received, or not given this id, or let go since"
		if a.incomplete() {
			text = "no message of the device with this id is in what was searched; older parts were not looked through"
		}
		a.step(admin.TraceStep{Hop: "ledger", State: "unknown", Text: text})
		return nil
	}
	if n > 1 {
		a.step(admin.TraceStep{Hop: "device", State: "published", Text: fmt.Sprintf("%d messages with this id were found: an agent remembers an id for a while only; this is the newest", n)})
	}
	l := a.t.cfg.Limits // what follows may look through something too
	a.left, a.until = max(a.left, l.Messages/2), time.Now().Add(l.Time/2)
	return a.message(ctx, f, seq)
}

// inStreams returns the number of the newest message with the id in the first
// stream that has one, and how many it has there.
func (a *asked) inStreams(ctx context.Context, id string) (f wire.Flow, seq uint64, n int, err error) {
	for _, s := range a.t.cfg.Streams {
		hits, err := a.newest(ctx, s.Name, s.Prefix+"."+a.out.Device+".>", func(f *found) bool { return f.header.Get(unpack.HdrID) == id })
		if err != nil {
			return f, 0, 0, err
		}
		numbers := map[string]bool{} // a message may have several parts
		for _, h := range hits {
			if g, q, ok := numberOf(&h); ok {
				f, seq = g, q
				numbers[fmt.Sprintf("%s/%d", g, q)] = true
			}
		}
		if len(numbers) > 0 {
			return f, seq, len(numbers), nil
		}
	}
	return f, 0, 0, nil
}

// numberOf reads the number of a stream's message.
func numberOf(f *found) (flow wire.Flow, seq uint64, ok bool) {
	flow.Lane = wire.Normal
	var err error
	if flow.Epoch, err = wire.ParseEpoch(f.header.Get(unpack.HdrEpoch)); err != nil {
		return flow, 0, false
	}
	if l := f.header.Get(unpack.HdrLane); l != "" {
		if flow.Lane, err = wire.ParseLane(l); err != nil {
			return flow, 0, false
		}
	}
	set, err := wire.ParseRanges(f.header.Get(unpack.HdrSeq) + "-" + f.header.Get(unpack.HdrSeq))
	if err != nil {
		return flow, 0, false
	}
	return flow, set[0].First, true
}

// inBlocks is inStreams for the ledger.
func (a *asked) inBlocks(ctx context.Context, id string) (flow wire.Flow, seq uint64, n int, err error) {
	var failed error
	_, err = a.windows(ctx, store.Blocks, "fp.blocks."+a.out.Device+".*.*", &a.blocks, func(f *found) bool {
		if failed != nil || !unpack.Carries(f.header) {
			return false
		}
		_, b, err := a.t.cfg.Unpack.Block(ctx, f.seq)
		if err != nil {
			if !errors.Is(err, store.ErrNotFound) && !damage(err) {
				failed = err
			}
			return false
		}
		any := false
		for i := range b.Messages {
			if b.Messages[i].ID == id {
				flow, seq, any = b.Flow, b.First+uint64(i), true
				n++
			}
		}
		return any
	})
	return flow, seq, n, errors.Join(err, failed)
}

// damage reports whether a block cannot be decoded, which is told elsewhere.
func damage(err error) bool {
	return errors.Is(err, wire.ErrCorrupt) || errors.Is(err, wire.ErrLimit) || errors.Is(err, wire.ErrVersion)
}
