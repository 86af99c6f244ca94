package unpack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Errors of Backfill.
var (
	ErrNoRoute      = errors.New("no route unpacks into this stream")
	ErrBackfilling  = errors.New("a back-fill of this stream is under way")
	ErrBackfilled   = errors.New("nothing is left to back-fill")
	ErrNotYet       = errors.New("this stream is not unpacked into yet")
	ErrManyBackfill = errors.New("too many back-fills of blocks that are still there")
)

// maxWalks bounds what a stream's checkpoint holds.
const maxWalks = 20

// Since is where a back-fill begins: at a ledger sequence, or, if that is 0, at
// what was stored at Time or later; all that is still there if both are zero.
type Since struct {
	Seq  uint64
	Time time.Time
}

// Backfill asks for a walk of a stream from since to where the newest table
// begins to hold, without what a walk by the same table had already, and returns
// it. It is durable then, and begins on whichever instance writes the stream.
// first is where the ledger begins.
func (u *Unpacker) Backfill(ctx context.Context, stream string, since Since) (w Walk, first uint64, err error) {
	for {
		w, first, err = u.askWalk(ctx, stream, since)
		if !errors.Is(err, errConflict) {
			return w, first, err
		}
		// The stream's writer has saved its checkpoint, which it does about once a second.
		if err := sleep(ctx, retryFirst); err != nil {
			return w, first, err
		}
	}
}

func (u *Unpacker) askWalk(ctx context.Context, stream string, since Since) (Walk, uint64, error) {
	fail := func(err error) (Walk, uint64, error) { return Walk{}, 0, err }
	tables, err := u.currentTables(ctx)
	if err != nil {
		return fail(err)
	}
	newest := tables[len(tables)-1]
	if !newest.Table.unpacks(stream) {
		return fail(ErrNoRoute)
	}
	s := saved[entry]{kv: u.kv, key: keyCheckpoint(stream)}
	found, err := s.load(ctx)
	if err != nil {
		return fail(err)
	}
	info, err := u.cfg.Store.Info(ctx, u.ledger)
	if err != nil {
		return fail(err)
	}
	e := s.val
	switch {
	case !found || e.Incarnation != info.Incarnation:
		return fail(ErrNotYet)
	case e.Asked != nil || e.Walk != nil:
		return fail(ErrBackfilling)
	}
	e.Done = slices.DeleteFunc(slices.Clone(e.Done), func(d Walk) bool { return d.End <= info.First })
	if len(e.Done) >= maxWalks {
		return fail(fmt.Errorf("%w: %d", ErrManyBackfill, maxWalks))
	}
	from, err := u.walkFrom(ctx, since, info)
	if err != nil {
		return fail(err)
	}
	walk := Walk{First: from, End: newest.undone(e.Done), Table: newest.Table}
	if walk.First >= walk.End {
		return Walk{}, info.First, fmt.Errorf("%w: from block %d on the stream has what its route takes, and the ledger begins at block %d", ErrBackfilled, walk.End, info.First)
	}
	e.Asked = &walk
	return walk, info.First, s.store(ctx, e)
}

// undone returns the sequence before which no walk by this table was. Each walk
// reaches to where the one before began.
func (v Version) undone(done []Walk) uint64 {
	end := v.From
	for again := true; again; {
		again = false
		for i := range done {
			if d := &done[i]; end > 0 && d.holds(end-1) && d.Table.same(v.Table) {
				end, again = d.First, true
			}
		}
	}
	return end
}

// walkFrom returns the beginning of the first block that a walk takes.
func (u *Unpacker) walkFrom(ctx context.Context, since Since, info store.Info) (uint64, error) {
	from := since.Seq
	if from == 0 && !since.Time.IsZero() {
		m, err := u.cfg.Store.FirstSince(ctx, u.ledger, since.Time)
		switch {
		case errors.Is(err, store.ErrNotFound):
			from = info.Last + 1
		case err != nil:
			return 0, err
		default:
			from = m.Seq
		}
	}
	if from <= info.First {
		return info.First, nil
	}
	m, err := u.cfg.Store.Get(ctx, u.ledger, from)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return from, nil
	case err != nil:
		return 0, err
	}
	if i, _, _ := wire.ParsePart(m.Header.Get(hdrPiece)); i > 1 { // the middle of a block
		from -= uint64(i - 1)
	}
	return from, nil
}
