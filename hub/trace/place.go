package trace

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// better is the order of states: of several places, the message has the state
// of the one that matters most.
var better = map[string]int{
	admin.TraceUnknown: 0, admin.TraceUnrouted: 1, admin.TracePacked: 2, admin.TraceRemoved: 3,
	admin.TraceWaiting: 4, admin.TraceStored: 5, admin.TraceDead: 6,
}

func (a *asked) state(s string) {
	if better[s] > better[a.out.State] {
		a.out.State = s
	}
}

// places follows a message of a block into the streams that get it.
func (a *asked) places(ctx context.Context, m store.Stored, b *wire.Block, index int) error {
	places, err := a.t.cfg.Unpack.Places(ctx, m, b, index)
	if err != nil {
		return err
	}
	if len(places) == 0 {
		a.step(admin.TraceStep{Hop: "route", State: "unknown", Text: "its route is not one of this hub instance: another was started later with other routes; ask that one"})
	}
	for _, p := range places {
		switch {
		case p.Packed:
			a.state(admin.TracePacked)
			text := "its route is packed: it is in BLOCKS only, for back ends that read blocks"
			if p.MaxAge > 0 {
				text += fmt.Sprintf(", until %s at least", m.Time.Add(p.MaxAge).UTC().Format(time.RFC3339))
			}
			a.step(admin.TraceStep{Hop: "route", State: "packed", Block: m.Seq, Text: text})
		case p.Stream == "":
			a.state(admin.TraceUnrouted)
			a.step(admin.TraceStep{Hop: "route", State: "unrouted", Block: m.Seq,
				Text: "no route takes its subject: it is in BLOCKS only, until blocks.retain; add a route, then `fieldpost-hub routes backfill`"})
		default:
			if err := a.place(ctx, m, index, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// place looks for a message of a block in one stream.
func (a *asked) place(ctx context.Context, m store.Stored, index int, p unpack.Place) error {
	if _, err := a.t.cfg.Store.Info(ctx, p.Stream); errors.Is(err, jetstream.ErrStreamNotFound) {
		a.state(admin.TraceRemoved)
		a.step(admin.TraceStep{Hop: "stream", State: "removed", Stream: p.Stream, Text: fmt.Sprintf("somebody has deleted the stream %s", p.Stream)})
		return nil
	}
	f, ok, err := a.bisect(ctx, p, m.Seq, index)
	if err != nil {
		return err
	}
	if !ok && (p.Done || p.Backfill) {
		// The stream is in the ledger's order, but for back-fills and for what an older
		// ledger has left in it.
		hits, err := a.newest(ctx, p.Stream, p.Subject, a.mine)
		if err != nil {
			return err
		}
		if len(hits) > 0 {
			f, ok = hits[0], true // the first part
		}
	}
	switch {
	case ok:
		return a.stored(ctx, p.Stream, f)
	case !p.Done:
		a.waiting(p)
		return nil
	case a.incomplete():
		a.step(admin.TraceStep{Hop: "stream", State: "unknown", Stream: p.Stream,
			Text: fmt.Sprintf("it was unpacked into %s, and is not in what was searched; older parts were not looked through", p.Stream)})
		return a.letters(ctx, p.Stream, p.Subject)
	}
	a.state(admin.TraceRemoved)
	text := fmt.Sprintf("it was unpacked into %s and is not there any more (max_age, max_bytes, or somebody removed it)", p.Stream)
	if p.Lost > 0 {
		text = fmt.Sprintf("the blocks up to it are unpacked into %s, and it is not there (any more): let go (max_age, max_bytes), removed, or never stored, as %d blocks were purged from BLOCKS too early", p.Stream, p.Lost)
	}
	a.step(admin.TraceStep{Hop: "stream", State: "removed", Stream: p.Stream, Text: text})
	return a.letters(ctx, p.Stream, p.Subject)
}

func (a *asked) waiting(p unpack.Place) {
	a.state(admin.TraceWaiting)
	text := fmt.Sprintf("it waits to be unpacked into %s as %s", p.Stream, p.Subject)
	if p.Lag > 0 {
		text += fmt.Sprintf(": that is %d blocks behind it, its own included", p.Lag)
	}
	if p.Err != nil {
		text += fmt.Sprintf("; it is held up: %v", p.Err)
	}
	a.step(admin.TraceStep{Hop: "stream", State: "waiting", Stream: p.Stream, Lag: p.Lag, Text: text})
}

// stored says where in a stream the message is, and who has had it.
func (a *asked) stored(ctx context.Context, stream string, f found) error {
	a.state(admin.TraceStored)
	text := fmt.Sprintf("stored in %s as %s, and still there", stream, f.subject)
	last := f.seq
	if i, n, ok := wire.ParsePart(f.header.Get(unpack.HdrPart)); ok && i == 1 {
		text += fmt.Sprintf(", in %d parts", n)
		last += uint64(n - 1)
	}
	if f.header.Get(unpack.HdrBackfill) != "" {
		text += ", behind messages that are newer"
	}
	block, _, _ := unpack.ParseBlock(f.header.Get(unpack.HdrBlock))
	a.step(admin.TraceStep{Hop: "stream", State: "stored", Time: f.time, Stream: stream, Seq: f.seq, Block: block, Text: text})
	if err := a.consumers(ctx, stream, f, last); err != nil {
		return err
	}
	return a.letters(ctx, stream, f.subject)
}

// bisect finds the message of a block in a stream by its place in the ledger,
// with as many reads as the stream's length has binary digits. Where the stream
// is not in the ledger's order, it may miss it; it never finds another.
func (a *asked) bisect(ctx context.Context, p unpack.Place, block uint64, index int) (found, bool, error) {
	st := a.t.cfg.Store
	last, err := st.Last(ctx, p.Stream, p.Subject)
	if errors.Is(err, store.ErrNotFound) {
		return found{}, false, nil
	}
	if err != nil {
		return found{}, false, err
	}
	info, err := st.Info(ctx, p.Stream)
	if err != nil {
		return found{}, false, err
	}
	at := last
	for lo, hi := info.First, last.Seq; lo < hi; {
		mid := lo + (hi-lo)/2
		m, err := st.Next(ctx, p.Stream, p.Subject, mid)
		if errors.Is(err, store.ErrNotFound) { // removed meanwhile
			return found{}, false, nil
		}
		if err != nil {
			return found{}, false, err
		}
		if b, i, ok := unpack.ParseBlock(m.Header.Get(unpack.HdrBlock)); ok && (b > block || b == block && i >= index) {
			at, hi = m, mid
		} else {
			lo = m.Seq + 1
		}
	}
	f := found{subject: at.Subject, seq: at.Seq, time: at.Time, header: at.Header}
	return f, a.mine(&f), nil
}

// mine reports whether a message of a stream is the one that is asked for.
func (a *asked) mine(f *found) bool { return numbered(f.header, a.flow, a.out.Seq) }

func numbered(h nats.Header, f wire.Flow, seq uint64) bool {
	lane := h.Get(unpack.HdrLane)
	return h.Get(unpack.HdrSeq) == strconv.FormatUint(seq, 10) && h.Get(unpack.HdrEpoch) == f.Epoch.String() &&
		(lane == f.Lane.String() || lane == "" && f.Lane == wire.Normal)
}

// everywhere looks for the message in every stream by its number, where its
// block does not tell.
func (a *asked) everywhere(ctx context.Context) (any bool, err error) {
	for _, s := range a.t.cfg.Streams {
		hits, err := a.newest(ctx, s.Name, s.Prefix+"."+a.out.Device+".>", a.mine)
		if err != nil {
			return any, err
		}
		if len(hits) == 0 {
			continue
		}
		any = true
		a.out.Subject = hits[0].subject[len(s.Prefix)+len(a.out.Device)+2:]
		a.out.ID = hits[0].header.Get(unpack.HdrID)
		if err := a.stored(ctx, s.Name, hits[0]); err != nil {
			return any, err
		}
	}
	return any, nil
}
