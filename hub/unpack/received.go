package unpack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Received is what the ledger says of one sequence of a flow.
type Received struct {
	Known bool        // the ledger holds the state of the flow
	Set   wire.Ranges // all that it has received, voids included
	Has   bool        // the sequence is in Set

	// Block is the one that brought it, under its first sequence, and First what it
	// holds. Zero if it has left the ledger.
	Block store.Stored
	// Older says that blocks have left the ledger. Then a void may cover what one of
	// them had brought.
	Older bool
	// Content is nil without Block, or if that cannot be decoded: Err says why.
	Content *wire.Block
	Err     error
}

// Received looks up a sequence of a flow. Every message of the ledger carries the
// received set after it, which only grows: so the block is found by bisection,
// with as many reads as the ledger's length has binary digits.
func (u *Unpacker) Received(ctx context.Context, device string, f wire.Flow, seq uint64) (r Received, err error) {
	subject := wire.BlockSubject(device, f)
	last, err := u.cfg.Store.Last(ctx, u.ledger, subject)
	if errors.Is(err, store.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Known = true
	if r.Set, err = receivedSet(last); err != nil {
		return r, err
	}
	one := wire.Range{First: seq, Last: seq}
	if r.Has = r.Set.Contains(one); !r.Has {
		return r, nil
	}
	info, err := u.cfg.Store.Info(ctx, u.ledger)
	if err != nil {
		return r, err
	}
	at := last
	for lo, hi := info.First, last.Seq; lo < hi; {
		mid := lo + (hi-lo)/2
		m, err := u.tail(ctx, subject, mid)
		if errors.Is(err, store.ErrNotFound) { // purged meanwhile
			return r, nil
		}
		if err != nil {
			return r, err
		}
		set, err := receivedSet(m)
		if err != nil {
			return r, err
		}
		if set.Contains(one) {
			at, hi = m, mid
		} else {
			lo = m.Seq + 1
		}
	}
	if at.Header[hdrMark] != nil {
		return r, nil
	}
	return u.open(ctx, r, at, info, seq)
}

// open reads the block that ends with the message at.
func (u *Unpacker) open(ctx context.Context, r Received, at store.Stored, info store.Info, seq uint64) (Received, error) {
	m, err := u.block(ctx, beginning(at))
	if errors.Is(err, store.ErrNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.Older = info.First > 1
	b, err := wire.NewDecoder().Decode(m.Data, true)
	switch {
	case err != nil:
		r.Block, r.Err = m, err
	case b.First <= seq && seq <= b.Last():
		r.Block, r.Content = m, b
	}
	return r, nil // else it is the first of the flow that is left
}

// tail reads the first message of a subject at seq or later that says what the
// flow has received: of a block in pieces, the last.
func (u *Unpacker) tail(ctx context.Context, subject string, seq uint64) (store.Stored, error) {
	m, err := u.cfg.Store.Next(ctx, u.ledger, subject, seq)
	if err != nil {
		return m, err
	}
	if i, of, ok := wire.ParsePart(m.Header.Get(hdrPiece)); ok && i < of {
		return u.cfg.Store.Get(ctx, u.ledger, m.Seq+uint64(of-i))
	}
	return m, nil
}

// Block reads the block that ends with the message at seq of the ledger, or
// store.ErrNotFound if there is none that is whole.
func (u *Unpacker) Block(ctx context.Context, seq uint64) (store.Stored, *wire.Block, error) {
	at, err := u.cfg.Store.Get(ctx, u.ledger, seq)
	if err != nil {
		return at, nil, err
	}
	if at.Header[hdrMark] != nil {
		return at, nil, store.ErrNotFound
	}
	m, err := u.block(ctx, beginning(at))
	if err != nil {
		return m, nil, err
	}
	b, err := wire.NewDecoder().Decode(m.Data, true)
	return m, b, err
}

// Carries reports whether a message of the ledger with these headers ends a block
// of messages: not the middle of one, no void, no mark.
func Carries(h nats.Header) bool {
	i, of, _ := wire.ParsePart(h.Get(hdrPiece))
	return i == of && h[hdrVoid] == nil && h[hdrMark] == nil
}

func receivedSet(m store.Stored) (wire.Ranges, error) {
	set, err := wire.ParseRanges(m.Header.Get(hdrReceived))
	if err == nil && len(set) == 0 {
		err = errors.New("the set is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("unpack: message %d of the ledger (%s) does not say what was received: %w", m.Seq, m.Subject, err)
	}
	return set, nil
}

// Place is where a message of a block goes.
type Place struct {
	Stream  string // empty: no route takes it, or its route is packed
	Subject string // in the stream
	Packed  bool   // its route is packed
	MaxAge  time.Duration
	// Backfill says that a back-fill puts it there: beside messages that are newer.
	Backfill bool
	Done     bool   // it was put there, as far as this instance knows
	Lag      uint64 // not Done: blocks that come first, its own included; 0: not known
	Err      error  // not Done: why the stream does not go on
	Lost     uint64 // blocks that were removed before the stream had them
}

// Places lists where the message with that index of a block goes: by the routes
// that hold for the block, and by back-fills. An empty list means that this
// instance does not know the stream: another was started with other routes.
func (u *Unpacker) Places(ctx context.Context, m store.Stored, b *wire.Block, index int) (out []Place, err error) {
	tables, err := u.currentTables(ctx)
	if err != nil {
		return nil, err
	}
	r := tables.At(m.Seq).Route(b.Messages[index].Subject)
	switch {
	case r == nil:
		out = append(out, Place{})
	case r.Packed:
		out = append(out, Place{Packed: true, MaxAge: u.packedAge(r)})
	}
	for _, s := range u.Status() {
		place, ok, err := u.placeIn(s, tables, m, b, index)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, place)
		}
	}
	return out, nil
}

// packedAge is the max_age that the configuration gives to a packed route: the
// table in the bucket does not have it.
func (u *Unpacker) packedAge(r *Route) time.Duration {
	for i := range u.cfg.Routes {
		if c := &u.cfg.Routes[i]; c.Packed && c.Match == r.Match {
			return c.MaxAge
		}
	}
	return 0
}

// placeIn tells whether a stream gets the message, and how far it is.
func (u *Unpacker) placeIn(s Status, tables Tables, m store.Stored, b *wire.Block, index int) (p Place, ok bool, err error) {
	courses := []*Walk{nil}
	for i := range s.Walks {
		courses = append(courses, &s.Walks[i])
	}
	courses = append(courses, s.Walk, s.Asked)
	for i, walk := range courses {
		if i > 0 && walk == nil {
			continue
		}
		proj := NewProjector(s.Stream, tables)
		proj.walk, proj.done = walk, s.Walks[:min(max(i-1, 0), len(s.Walks))]
		outs, err := proj.Project(nil, m.Seq, m.Subject, b)
		if err != nil {
			return p, false, err
		}
		for n, o := range outs {
			if o.Index != index {
				continue
			}
			p = Place{Stream: s.Stream, Subject: o.Subject, Backfill: walk != nil, Lost: s.Lost.Blocks}
			at, known := s.next(i, walk)
			end := Position{Block: m.Seq, Index: uint64(n + o.Parts)}
			if p.Done = known && !at.Before(end); !p.Done {
				p.Err = s.Err
				if known && at.Block <= m.Seq {
					p.Lag = m.Seq - at.Block + 1
				}
			}
			return p, true, nil
		}
	}
	return p, false, nil
}

// next returns where one course of a stream goes on: the i-th of placeIn.
func (s *Status) next(i int, walk *Walk) (at Position, known bool) {
	switch {
	case s.At.Incarnation == "":
		return at, false
	case i == 0 && s.Walk != nil:
		return s.Then, true
	case i == 0 || walk == s.Walk:
		return s.At.Position, true
	case walk == s.Asked:
		return at, false
	}
	return Position{Block: walk.End}, true // done
}
