package unpack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	retainStep  = 100_000 // messages of the ledger that one pass looks at
	scanTimeout = time.Minute
	scanGone    = 30 * time.Second // the server removes a consumer that nobody pulls from
)

// retain lets old blocks go until ctx ends or something fails.
func (u *Unpacker) retain(ctx context.Context) error {
	for {
		more, err := u.retainOnce(ctx)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if err := sleep(ctx, u.cfg.RetainEvery); err != nil {
			return err
		}
	}
}

// retainOnce purges what is old enough and everywhere, and reports whether more
// of it is left. Every step may be the last before a crash: marks do no harm
// without the purge, and the purge comes only when every flow that it would
// empty has its mark.
func (u *Unpacker) retainOnce(ctx context.Context) (more bool, err error) {
	info, err := u.cfg.Store.Info(ctx, u.ledger)
	if err != nil || info.Messages == 0 {
		return false, err
	}
	to, err := u.disposable(ctx, info)
	if err != nil || to < info.First {
		return false, err
	}
	more = to >= info.First+retainStep
	to = min(to, info.First+retainStep-1)
	if to, err = u.wholeBlocks(ctx, to); err != nil || to < info.First {
		return false, err
	}
	ends, err := u.scan(ctx, info.First, to)
	if err != nil {
		return false, err
	}
	emptied, err := u.emptied(ctx, to, ends)
	if err != nil {
		return false, err
	}
	// A full ledger has no place for marks: what needs none goes first. What is
	// left must begin with a whole block, for whoever reads it from its beginning.
	if len(emptied) > 0 {
		if first := beginning(emptied[0]); first > info.First {
			if err := u.purge(ctx, first-1); err != nil {
				return false, err
			}
		}
	}
	return more, u.markAndPurge(ctx, emptied, to)
}

func (u *Unpacker) purge(ctx context.Context, to uint64) error {
	if err := u.fault("retain:purge"); err != nil {
		return err
	}
	return u.cfg.Store.PurgeTo(ctx, u.ledger, to)
}

// disposable returns the last sequence up to which every block is old enough and
// known by every stream and by the gaps, by what their checkpoints say durably.
func (u *Unpacker) disposable(ctx context.Context, info store.Info) (to uint64, err error) {
	to = info.Last
	for _, name := range append(slices.Collect(maps.Keys(u.workers)), gapsName) {
		n, err := u.taken(ctx, name, info)
		if err != nil {
			return 0, err
		}
		to = min(to, n)
	}
	age := u.cfg.Retain
	for _, r := range u.cfg.Routes {
		if r.Packed {
			age = max(age, r.MaxAge)
		}
	}
	young, err := u.cfg.Store.FirstSince(ctx, u.ledger, u.cfg.Now().Add(-age))
	switch {
	case err == nil:
		to = min(to, max(young.Seq, 1)-1)
	case !errors.Is(err, store.ErrNotFound):
		return 0, err
	}
	return to, nil
}

// taken returns the last sequence up to which a stream, or the gaps, need no
// block any more.
func (u *Unpacker) taken(ctx context.Context, name string, info store.Info) (uint64, error) {
	w := u.workers[name]
	if w != nil && w.status().Done {
		return info.Last, nil
	}
	s := saved[entry]{kv: u.kv, key: keyCheckpoint(name)}
	if found, err := s.load(ctx); err != nil || !found || s.val.Incarnation != info.Incarnation {
		return 0, err
	}
	if w != nil && w.end > 0 && s.val.Block >= w.end { // by another instance
		return info.Last, nil
	}
	need := s.val.Block
	if a := s.val.Asked; a != nil {
		need = min(need, a.First)
	}
	return max(need, 1) - 1, nil
}

// wholeBlocks returns the sequence up to which no block is cut.
func (u *Unpacker) wholeBlocks(ctx context.Context, to uint64) (uint64, error) {
	m, err := u.cfg.Store.Get(ctx, u.ledger, to)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return to, nil
	case err != nil:
		return 0, err
	}
	if i, of, _ := wire.ParsePart(m.Header.Get(hdrPiece)); i < of {
		return to - uint64(i), nil
	}
	return to, nil
}

// beginning returns where the block begins that ends with m.
func beginning(m store.Stored) uint64 {
	i, _, _ := wire.ParsePart(m.Header.Get(hdrPiece))
	return m.Seq - uint64(max(i, 1)-1)
}

// scan lists the subjects of the ledger's messages from first to last with the
// highest sequence of each in that range. It reads headers only.
func (u *Unpacker) scan(ctx context.Context, first, last uint64) (map[string]uint64, error) {
	if err := u.fault("retain:scan"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, scanTimeout) // another instance may purge what is waited for
	defer cancel()
	fail := func(err error) (map[string]uint64, error) {
		return nil, fmt.Errorf("unpack: read the ledger's headers: %w", err)
	}
	c, err := u.cfg.Store.JetStream().OrderedConsumer(ctx, u.ledger, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first, HeadersOnly: true,
		InactiveThreshold: scanGone,
	})
	if err != nil {
		return fail(err)
	}
	it, err := c.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return fail(err)
	}
	defer it.Stop()
	ends := map[string]uint64{}
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fail(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fail(err)
		}
		seq := meta.Sequence.Stream
		if seq <= last {
			ends[m.Subject()] = seq
		}
		if seq >= last || meta.NumPending == 0 {
			return ends, nil
		}
	}
}

// emptied lists the newest messages of the flows that a purge up to last would
// empty, oldest first, but for those that may be forgotten.
func (u *Unpacker) emptied(ctx context.Context, last uint64, ends map[string]uint64) (out []store.Stored, err error) {
	for subject := range ends {
		m, err := u.cfg.Store.Last(ctx, u.ledger, subject)
		switch {
		case errors.Is(err, store.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		}
		if m.Seq <= last && !u.forgotten(m) {
			m.Data = nil
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b store.Stored) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}

// forgotten reports whether m is the mark of an epoch that was closed long ago.
func (u *Unpacker) forgotten(m store.Stored) bool {
	since, err := time.Parse(time.RFC3339, m.Header.Get(hdrClosed))
	return err == nil && m.Header.Get(hdrMark) != "" && u.cfg.Now().Sub(since) >= u.cfg.KeepClosed
}
