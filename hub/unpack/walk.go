package unpack

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Walk is a back-fill: blocks of the ledger that are unpacked into a stream once
// more, by a younger table. It gives the stream what it did not get before.
type Walk struct {
	First uint64 `json:"first"` // ledger sequence
	End   uint64 `json:"end"`   // exclusive
	Table Table  `json:"routes"`
}

func (w *Walk) holds(seq uint64) bool { return w.First <= seq && seq < w.End }

// entry is a stream's checkpoint with its walks. While Walk is under way, the
// checkpoint's position lies in it, and the rest of the ledger waits at Then: so
// what the stream holds is at every moment a function of what the entry says,
// whoever writes.
type entry struct {
	Checkpoint
	Asked *Walk    `json:"asked,omitempty"` // begins as soon as it is known where the stream stands
	Walk  *Walk    `json:"walk,omitempty"`
	Then  Position `json:"then,omitzero"`
	Done  []Walk   `json:"done,omitempty"` // oldest first
	Lost  Lost     `json:"lost,omitzero"`
}

// errCourseEnd means that everything up to the end of the course is stored.
var errCourseEnd = errors.New("unpack: all is unpacked")

// errNews means that a walk is asked for, or that routes have changed.
var errNews = errors.New("unpack: there is something else to do")

// course is what a turn unpacks.
type course struct {
	tables Tables
	end    uint64 // ledger sequence before which it ends; 0: it goes on for ever
	walk   *Walk
	done   []Walk
}

// course returns what follows the position of the state at hand.
func (w *worker) course(tables Tables) course {
	e := &w.state.val
	if e.Walk != nil {
		return course{tables: tables, end: e.Walk.End, walk: e.Walk, done: e.Done}
	}
	return course{tables: tables, end: w.end}
}

func (c course) over(next uint64) bool { return c.end > 0 && next >= c.end }

func (c course) projector(stream string) *Projector {
	p := NewProjector(stream, c.tables)
	p.walk, p.done = c.walk, c.done
	return p
}

// beginWalk makes the walk that was asked for the course, durable before
// anything of it is written. The stream stands exactly at from.
func (w *worker) beginWalk(ctx context.Context, from *start, first uint64) error {
	if err := w.u.fault("backfill:begin"); err != nil {
		return err
	}
	e := w.state.val
	walk := *e.Asked
	walk.First = min(max(walk.First, first), walk.End)
	e.Asked, e.Walk, e.Then = nil, &walk, from.Position
	e.Checkpoint = Checkpoint{Incarnation: from.Incarnation, Position: Position{Block: walk.First}, StreamSeq: from.last}
	if err := w.state.store(ctx, e); err != nil {
		return err
	}
	from.Checkpoint = e.Checkpoint
	w.u.cfg.Log.Info("a back-fill begins", "stream", w.stream, "first_block", walk.First, "last_block", walk.End-1)
	return nil
}

// quiet comes before the first message of a walk. A writer that does not know of
// the walk yet has several batches on the way, each guarded by where the one before
// will end: one of the later would go through if the walk, by chance, had stored as
// many messages as one that failed, and what failed would be missing for good. So
// what is there is made durable with the walk, and nothing is written until such a
// writer has looked (news), which it does every CheckpointEvery. errNews: something
// came meanwhile.
func (w *worker) quiet(ctx context.Context, from *start) error {
	if w.state.val.Walk == nil || from.Position != (Position{Block: w.state.val.Walk.First}) {
		return nil
	}
	if from.StreamSeq != w.state.val.StreamSeq {
		if err := w.save(ctx, from.Checkpoint); err != nil {
			return err
		}
	}
	if err := w.u.fault("backfill:quiet"); err != nil {
		return err
	}
	if err := sleep(ctx, 2*w.u.cfg.CheckpointEvery); err != nil {
		return err
	}
	now, err := w.u.cfg.Store.Info(ctx, w.stream)
	if err == nil && now.Last != from.last {
		return errNews
	}
	return err
}

// endWalk goes back to where the stream was, now that its last sequence is last.
func (w *worker) endWalk(ctx context.Context, last uint64) error {
	if err := w.u.fault("backfill:end"); err != nil {
		return err
	}
	e := w.state.val
	walk := *e.Walk
	e.Checkpoint = Checkpoint{Incarnation: e.Incarnation, Position: e.Then, StreamSeq: last}
	e.Walk, e.Then, e.Done = nil, Position{}, append(slices.Clip(e.Done), walk)
	if err := w.state.store(ctx, e); err != nil {
		return err
	}
	w.u.cfg.Log.Info("a back-fill is complete", "stream", w.stream, "first_block", walk.First, "last_block", walk.End-1)
	return nil
}

// forgetWalks: their blocks belong to a ledger that is gone. The next checkpoint
// says so.
func (w *worker) forgetWalks() {
	e := &w.state.val
	if e.Walk != nil || e.Asked != nil {
		w.u.cfg.Log.Error("a back-fill ends early, as the ledger has lost its blocks", "stream", w.stream)
	}
	e.Asked, e.Walk, e.Then, e.Done = nil, nil, Position{}, nil
	w.forgetLost()
}

// overtaken takes a message, of which this is the position after it, for one
// that an instance wrote which did not know of the walk yet: after the walk was
// made durable and before anything of it was stored. The stream has it, so it is
// not written again after the walk.
func (w *worker) overtaken(pos Position) {
	if e := &w.state.val; e.Then.Before(pos) {
		e.Then = pos
	}
}

// news returns errNews if another instance has written the checkpoint, as when a
// walk was asked for or has begun, or has declared a table that this turn does not
// know.
func (w *worker) news(ctx context.Context, known bool, tables Tables) error {
	s := saved[entry]{kv: w.state.kv, key: w.state.key}
	if _, err := s.load(ctx); err != nil {
		return err
	}
	t := saved[tablesValue]{kv: w.state.kv, key: keyTables}
	if _, err := t.load(ctx); err != nil {
		return err
	}
	if known && s.rev != w.state.rev || !t.val.Versions.same(tables) {
		return errNews
	}
	return nil
}

// finished notes that a stream whose routes are gone has all that is its, or is
// gone itself.
func (w *worker) finished(err error) error {
	if !errors.Is(err, errCourseEnd) {
		w.u.cfg.Log.Warn("the stream of a route that was removed is gone; what the ledger still had for it is not unpacked", "stream", w.stream)
	} else {
		w.u.cfg.Log.Info("the stream of a route that was removed has all that was its", "stream", w.stream, "up_to_block", w.end-1)
	}
	w.mu.Lock()
	w.done = true
	w.mu.Unlock()
	w.health.set(w.u, w.stream, nil)
	return fmt.Errorf("%w: %s", errCourseEnd, w.stream)
}
