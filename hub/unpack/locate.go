package unpack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxForeign bounds how far back a message of ours is looked for, past others'.
const maxForeign = 10_000

// locate returns the position after the newest message of ours in the stream,
// looking from sequence last back to the checkpoint's. If none came after the
// checkpoint, that is the checkpoint's position; ok is false if a part was
// purged, so that only counting tells. A message is ours if the ledger holds it
// where it says: those of an older ledger, or of others, are not mistaken.
func (w *worker) locate(ctx context.Context, last uint64, cp Checkpoint, tables Tables) (pos Position, ok bool, err error) {
	others, then := uint64(0), w.state.val.Then
	for seq := last; seq > cp.StreamSeq; seq-- {
		m, err := w.u.cfg.Store.Get(ctx, w.stream, seq)
		if errors.Is(err, store.ErrNotFound) || last-seq > maxForeign {
			return Position{}, false, nil
		}
		if err != nil {
			return Position{}, false, err
		}
		c := w.course(tables)
		pos, ok, err := w.place(ctx, m, c)
		if err == nil && !ok && c.walk != nil {
			if pos, ok, err = w.place(ctx, m, course{tables: tables}); ok && then.Before(pos) {
				w.overtaken(pos)
				continue
			}
			ok = false
		}
		if err != nil {
			return Position{}, false, err
		}
		if ok && !pos.Before(cp.Position) { // else somebody has copied an old one of ours
			w.foreign(others)
			return pos, true, nil
		}
		others++
	}
	w.foreign(others)
	return cp.Position, true, nil
}

// foreign reports messages that were not of the ledger.
func (w *worker) foreign(n uint64) {
	if n > 0 {
		w.mu.Lock()
		w.intruded += n
		w.mu.Unlock()
		w.u.cfg.Log.Error("others have published into a stream that only the hub may write", "stream", w.stream, "messages", n)
	}
}

// place returns the position after m, if m is what the ledger projects there.
func (w *worker) place(ctx context.Context, m store.Stored, c course) (pos Position, ok bool, err error) {
	seq, index, ok := ParseBlock(m.Header.Get(HdrBlock))
	if !ok {
		return Position{}, false, nil
	}
	raw, err := w.u.block(ctx, seq)
	if errors.Is(err, store.ErrNotFound) {
		return Position{}, false, nil
	}
	if err != nil {
		return Position{}, false, err
	}
	b, err := wire.NewDecoder().Decode(raw.Data, false)
	if err != nil {
		return Position{}, false, nil // a poison block projects to nothing
	}
	outs, err := c.projector(w.stream).Project(nil, seq, raw.Subject, b)
	if err != nil {
		return Position{}, false, nil
	}
	part := 1
	if p, _, ok := strings.Cut(m.Header.Get(HdrPart), "/"); ok {
		if part, err = strconv.Atoi(p); err != nil {
			return Position{}, false, nil
		}
	}
	for i := range outs {
		o := &outs[i]
		if o.Index == index && o.Part == part && o.Subject == m.Subject &&
			o.seq == m.Header.Get(HdrSeq) && b.Epoch.String() == m.Header.Get(HdrEpoch) {
			return Position{Block: seq, Index: uint64(i) + 1}, true, nil
		}
	}
	return Position{}, false, nil
}

// block reads the block that begins at a sequence of the ledger.
func (u *Unpacker) block(ctx context.Context, seq uint64) (store.Stored, error) {
	var parts pieces
	for {
		m, err := u.cfg.Store.Get(ctx, u.ledger, seq)
		if err != nil {
			return store.Stored{}, err
		}
		m, ok, err := parts.add(m)
		if err != nil {
			return store.Stored{}, store.ErrNotFound
		}
		if ok {
			return m, nil
		}
		if !parts.open() {
			return store.Stored{}, store.ErrNotFound // the middle of a block
		}
		seq++
	}
}

// ParseBlock reads a HdrBlock of a route's stream, "<ledger sequence>/<index>".
func ParseBlock(v string) (seq uint64, index int, ok bool) {
	a, b, _ := strings.Cut(v, "/")
	seq, err1 := strconv.ParseUint(a, 10, 64)
	index, err2 := strconv.Atoi(b)
	return seq, index, err1 == nil && err2 == nil && fmt.Sprintf("%d/%d", seq, index) == v
}
