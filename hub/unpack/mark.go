package unpack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// markRoom is by how much a full ledger is widened for the marks of one pass.
const markRoom = 1 << 20

// mark appends a mark to the flow whose newest message is m, until the newest
// lies beyond last. Ingest may append at the same time: the guard decides, and
// what ingest appends carries the set on as well.
func (u *Unpacker) mark(ctx context.Context, m store.Stored, last uint64) error {
	for m.Seq <= last {
		err := u.appendMark(ctx, m, m.Header.Get(hdrClosed))
		if err != nil && !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome) {
			return fmt.Errorf("unpack: mark %s: %w", m.Subject, err)
		}
		// Only reading tells, also after success: the purge depends on it.
		if m, err = u.cfg.Store.Last(ctx, u.ledger, m.Subject); err != nil {
			return fmt.Errorf("unpack: mark %s: %w", m.Subject, err)
		}
	}
	return nil
}

// markAndPurge marks the flows whose newest messages are given, oldest first,
// then purges up to last. A ledger that is too full for a mark is widened until
// the purge has made room.
func (u *Unpacker) markAndPurge(ctx context.Context, emptied []store.Stored, last uint64) error {
	widened := false
	defer func() {
		if widened {
			u.narrow(ctx)
		}
	}()
	for _, m := range emptied {
		err := u.mark(ctx, m, last)
		if errors.Is(err, store.ErrFull) && !widened {
			if err = u.cfg.Store.Widen(ctx, u.ledger, markRoom); err == nil {
				widened = true
				err = u.mark(ctx, m, last)
			}
		}
		if err != nil {
			return err
		}
	}
	return u.purge(ctx, last)
}

// narrow takes Widen back. If it fails, the next start of a hub does.
func (u *Unpacker) narrow(ctx context.Context) {
	if err := u.cfg.Store.Widen(context.WithoutCancel(ctx), u.ledger, -markRoom); err != nil {
		u.cfg.Log.Warn("the ledger keeps 1 MiB more than configured until the next start", "error", err)
	}
}

// appendMark stores the received set of m under the guard of m.
func (u *Unpacker) appendMark(ctx context.Context, m store.Stored, closed string) error {
	set := m.Header[hdrReceived]
	if len(set) != 1 {
		return fmt.Errorf("message %d has no %s header, so the flow's state is not known; nothing is purged until it is removed by hand", m.Seq, hdrReceived)
	}
	if err := u.fault("retain:mark"); err != nil {
		return err
	}
	h := nats.Header{hdrMark: {"1"}, hdrReceived: set, store.GuardSubject: {strconv.FormatUint(m.Seq, 10)}}
	if closed != "" {
		h[hdrClosed] = []string{closed}
	}
	_, err := u.cfg.Store.PublishBatch(ctx, []store.Msg{{Subject: m.Subject, Header: h}})
	return err
}

// closeEpochs appends marks to the flows of closed epochs until ctx ends.
func (u *Unpacker) closeEpochs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-u.closed:
			for lane := range wire.Lane(wire.NumLanes) {
				subject := wire.BlockSubject(c.device, wire.Flow{Epoch: c.epoch, Lane: lane})
				if err := u.closeFlow(ctx, subject); err != nil && ctx.Err() == nil {
					u.cfg.Log.Warn("a drained epoch is not marked as closed; its mark stays longer", "subject", subject, "error", err)
				}
			}
		}
	}
}

func (u *Unpacker) closeFlow(ctx context.Context, subject string) error {
	m, err := u.cfg.Store.Last(ctx, u.ledger, subject)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil // the epoch has nothing in this lane
	case err != nil:
		return err
	case m.Header[hdrClosed] != nil:
		return nil
	}
	return u.appendMark(ctx, m, u.cfg.Now().UTC().Format(time.RFC3339))
}
