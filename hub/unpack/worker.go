package unpack

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// worker writes one stream while it holds the lease.
type worker struct {
	u      *Unpacker
	stream string
	end    uint64       // of a stream whose routes are gone: the ledger has nothing for it from here on; 0: it has
	state  saved[entry] // owned by work
	health health

	mu       sync.Mutex
	at       entry  // newest fact known; guarded by mu
	done     bool   // the end is reached; guarded by mu
	intruded uint64 // messages of others found in the stream; guarded by mu
	gone     Lost   // what is counted so far; the next checkpoint saves it; guarded by mu
}

func (w *worker) seen() entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// confirm notes a fact.
func (w *worker) confirm(c Checkpoint) {
	e := w.state.val
	e.Checkpoint = c
	w.mu.Lock()
	w.at = e
	w.mu.Unlock()
}

// standby keeps Status and Lag fresh while another instance works.
func (w *worker) standby(ctx context.Context) {
	s := saved[entry]{kv: w.state.kv, key: w.state.key}
	if found, err := s.load(ctx); err == nil && found {
		w.mu.Lock()
		w.at, w.gone = s.val, s.val.Lost
		w.mu.Unlock()
		w.health.set(w.u, w.stream, nil)
	}
}

// work unpacks until ctx ends or the lease is to be given up. Each turn begins
// with what is durable.
func (w *worker) work(ctx context.Context) error {
	wait := retryFirst
	for {
		stored, err := w.turn(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case errors.Is(err, wire.ErrVersion):
			return err // a newer instance may take over
		case errors.Is(err, errCourseEnd), w.end > 0 && errors.Is(err, jetstream.ErrStreamNotFound):
			return w.finished(err)
		case errors.Is(err, errNews):
			continue
		case errors.Is(err, store.ErrGuard), errors.Is(err, errConflict):
			// Another instance writes. If it took our lease over, ctx ends soon; if it
			// believes to hold one that it has lost, it will notice.
			w.u.cfg.Log.Info("another instance writes the stream; looking again", "stream", w.stream, "error", err)
		case errors.Is(err, store.ErrFull):
			err = fmt.Errorf("stream %s takes no more; raise the route's max_bytes, or let back ends catch up and purge: %w", w.stream, err)
			fallthrough
		default:
			w.health.set(w.u, w.stream, err)
		}
		if stored {
			wait = retryFirst
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, retryMost)
	}
}

// turn resumes and unpacks until something fails. It reports whether anything
// was stored.
func (w *worker) turn(ctx context.Context) (stored bool, err error) {
	tables, err := w.u.currentTables(ctx)
	if err != nil {
		return false, err
	}
	from, err := w.resume(ctx, tables)
	if err != nil {
		return false, err
	}
	p := &pump{w: w, from: from, course: w.course(tables)}
	err = p.run(ctx)
	if p.course.walk != nil && errors.Is(err, errCourseEnd) {
		err = w.endWalk(ctx, p.fact.StreamSeq)
	}
	return p.stored, err
}

// start is where a turn begins.
type start struct {
	Checkpoint        // from which to read
	skip       uint64 // projected messages from there that the stream has already
	last       uint64 // the stream's last sequence
	ledger     uint64 // the ledger's, read later: the stream has nothing from behind it
}

// resume finds where the stream stands.
func (w *worker) resume(ctx context.Context, tables Tables) (start, error) {
	if err := w.u.fault("unpack:resume"); err != nil {
		return start{}, err
	}
	found, err := w.state.load(ctx)
	if err != nil {
		return start{}, err
	}
	w.countFrom(w.state.val.Lost)
	stream, err := w.u.cfg.Store.Info(ctx, w.stream)
	if err != nil {
		return start{}, err
	}
	ledger, err := w.u.cfg.Store.Info(ctx, w.u.ledger)
	if err != nil {
		return start{}, err
	}
	cp, last := w.state.val.Checkpoint, stream.Last
	if found && cp.Incarnation == ledger.Incarnation && last >= cp.StreamSeq && cp.Block <= ledger.Last+1 {
		from := start{Checkpoint: cp, last: last, ledger: ledger.Last}
		if cp.Block < ledger.First && w.lost(w.course(tables), cp.Block, ledger.First) {
			if err := w.save(ctx, cp); err != nil { // nothing else may come to save
				return start{}, err
			}
		}
		err := w.known(ctx, &from, tables)
		if err == nil && from.skip == 0 && w.state.val.Asked != nil {
			err = w.beginWalk(ctx, &from, ledger.First)
		}
		if err == nil {
			err = w.quiet(ctx, &from)
		}
		w.confirm(w.state.val.Checkpoint)
		return from, err
	}
	cp, err = w.anew(ctx, found, cp, ledger, last, tables)
	if err != nil {
		return start{}, err
	}
	w.confirm(cp)
	return start{Checkpoint: cp, last: last, ledger: ledger.Last}, nil
}

// known resumes from a checkpoint that holds: at the newest message of the
// stream if it is still there, else by counting.
func (w *worker) known(ctx context.Context, from *start, tables Tables) (err error) {
	from.skip, err = from.Resume(from.last)
	if err != nil || from.skip == 0 {
		return err
	}
	pos, ok, err := w.locate(ctx, from.last, from.Checkpoint, tables)
	switch {
	case ok:
		from.Position, from.StreamSeq, from.skip = pos, from.last, 0
	case err == nil:
		w.u.cfg.Log.Warn("messages were purged from the stream before it was resumed; going on by counting, which takes every message since the checkpoint for the hub's own",
			"stream", w.stream, "messages", from.skip)
	}
	return err
}

// anew makes a checkpoint where none holds, durable before anything is written.
func (w *worker) anew(ctx context.Context, found bool, old Checkpoint, ledger store.Info, last uint64, tables Tables) (Checkpoint, error) {
	cp := Checkpoint{Incarnation: ledger.Incarnation, Position: Position{Block: ledger.First}, StreamSeq: last}
	log := w.u.cfg.Log.With("stream", w.stream)
	switch {
	case found && old.Incarnation != ledger.Incarnation:
		w.forgetWalks()
		log.Warn("the ledger is a new one; unpacking starts at its first block", "block", cp.Block)
		return cp, w.save(ctx, cp)
	case found && old.Block > ledger.Last+1:
		w.forgetWalks()
		cp.Block = ledger.Last + 1
		log.Error("the ledger has lost blocks that were unpacked already; unpacking starts at its end", "expected", old.Block, "block", cp.Block)
		return cp, w.save(ctx, cp)
	}
	if found {
		cp.Position = old.Position
	}
	pos, ok, err := w.locate(ctx, last, Checkpoint{Position: cp.Position}, tables)
	if err != nil {
		return cp, err
	}
	if ok {
		cp.Position = pos
	}
	if found {
		log.Error("the stream has lost messages that were stored; unpacking goes on after the last that is there, or where it was", "expected", old.StreamSeq, "last", last, "position", cp.Position)
	}
	return cp, w.save(ctx, cp)
}

// save makes a checkpoint durable.
func (w *worker) save(ctx context.Context, cp Checkpoint) error {
	if err := w.u.fault("unpack:checkpoint"); err != nil {
		return err
	}
	e := w.state.val
	e.Checkpoint, e.Lost = cp, w.lostSoFar()
	return w.state.store(ctx, e)
}
