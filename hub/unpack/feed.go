package unpack

import (
	"context"
	"errors"
	"fmt"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of the ledger's messages.
const (
	hdrReceived = "Fieldpost-Received"
	hdrVoid     = "Fieldpost-Void"
	hdrBlank    = "Fieldpost-Blank"    // "1": some messages of the block are blank
	hdrBackfill = "Fieldpost-Backfill" // "1": newer messages of the lane were stored before
	hdrPiece    = "Fieldpost-Piece"    // <i>/<n>: of a block that takes several messages; the last has the other headers
	hdrMark     = "Fieldpost-Mark"     // "1": no block, only the received set
	hdrClosed   = "Fieldpost-Closed"   // of a mark: since when nothing more will come, RFC 3339
)

// chunk is what one block projects to.
type chunk struct {
	seq   uint64 // of the block
	next  uint64 // of what follows it
	from  uint64 // projected messages of the block that outs leaves out
	epoch string
	lane  wire.Lane
	outs  []Out
	left  uint64 // of the start's skip after this block
	end   bool   // nothing follows, and next is the course's end
}

// feed reads the ledger and decodes it, ahead of the pump.
type feed struct {
	w      *worker
	from   start
	course course
	out    chan<- chunk
}

// run fills out until ctx ends or something fails. It waits at the ledger's end,
// and after the end of its course.
func (f *feed) run(ctx context.Context) error {
	r, err := f.w.u.cfg.Store.Reader(f.w.u.ledger, f.from.Block)
	if err != nil {
		return err
	}
	defer r.Close()
	dec, proj := wire.NewDecoder(), f.course.projector(f.w.stream)
	var parts pieces
	next := f.from.Block
	for {
		if f.course.over(next) {
			return f.finish(ctx)
		}
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) {
			if err := r.Wait(ctx); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			err = f.w.u.fault("unpack:read")
		}
		if err != nil {
			return err
		}
		if m.Seq > next {
			f.w.lost(f.course, next, m.Seq)
		}
		if f.course.over(m.Seq) {
			return f.finish(ctx)
		}
		next = m.Seq + 1
		m, ok, broken := parts.add(m)
		if !ok {
			continue
		}
		f.past(m.Seq)
		c := chunk{seq: m.Seq, next: next, left: f.from.skip}
		if broken != nil {
			err = f.w.u.poison(ctx, m, broken)
		} else {
			err = f.project(ctx, dec, proj, m, &c)
		}
		if err != nil {
			return err
		}
		if err := f.put(ctx, c); err != nil {
			return err
		}
	}
}

// finish says that the course is over. What is still to be skipped then is
// others'.
func (f *feed) finish(ctx context.Context) error {
	if f.from.skip > 0 {
		f.w.foreign(f.from.skip)
		f.from.skip = 0
	}
	if err := f.put(ctx, chunk{next: f.course.end, end: true}); err != nil {
		return err
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (f *feed) put(ctx context.Context, c chunk) error {
	select {
	case f.out <- c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// past gives up skipping behind what the stream can have: if it has more
// messages than the ledger projects, the rest are others'.
func (f *feed) past(seq uint64) {
	if seq > f.from.ledger && f.from.skip > 0 {
		f.w.foreign(f.from.skip)
		f.from.skip = 0
	}
}

// project decodes one block of the ledger and takes off what the stream has.
func (f *feed) project(ctx context.Context, dec *wire.Decoder, proj *Projector, m store.Stored, c *chunk) error {
	if m.Header[hdrMark] != nil || m.Header[hdrVoid] != nil {
		return nil
	}
	b, err := dec.Decode(m.Data, true)
	if err == nil {
		c.outs, err = proj.Project(make([]Out, 0, len(b.Messages)), m.Seq, m.Subject, b)
	}
	switch {
	case errors.Is(err, wire.ErrVersion):
		return fmt.Errorf("unpack: block %d of %s was written by a newer Fieldpost; upgrade this hub: %w", m.Seq, m.Subject, err)
	case err != nil:
		c.outs = nil
		return f.w.u.poison(ctx, m, err)
	}
	c.epoch, c.lane = b.Epoch.String(), b.Lane
	all := len(c.outs)
	if m.Header[hdrBackfill] != nil || f.course.walk != nil {
		for i := range c.outs {
			c.outs[i].Backfill = true
		}
	}
	c.outs = Cut(&f.from.Position, &f.from.skip, m.Seq, c.outs)
	c.from, c.left = uint64(all-len(c.outs)), f.from.skip
	return nil
}
