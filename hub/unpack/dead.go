package unpack

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of messages in DEAD, next to HdrBlock.
const (
	HdrReason = "Fieldpost-Reason"
	HdrGap    = "Fieldpost-Gap"    // <epoch>/<lane>/<first>-<last>
	HdrDetail = "Fieldpost-Detail" // for people
	hdrLedger = "Fieldpost-Ledger" // incarnation that HdrBlock counts in
)

const (
	deadTries   = 10      // how often two instances may get in each other's way
	deadHeaders = 4 << 10 // bytes that a message in DEAD needs beside its body, at most
)

// poison puts a block that cannot be decoded into DEAD, once.
func (u *Unpacker) poison(ctx context.Context, m store.Stored, why error) error {
	reason := "corrupt"
	if errors.Is(why, wire.ErrLimit) {
		reason = "limit"
	}
	detail, data := why.Error(), m.Data
	if len(data) > u.cfg.Store.MaxPayload()-deadHeaders {
		detail, data = detail+" (and too large to be kept here)", nil
	}
	stored, err := u.dead(ctx, deadMsg{
		subject: "dead." + u.ledger + "." + m.Subject, block: m.Seq, point: "unpack:poison",
		header: nats.Header{HdrReason: {reason}, HdrDetail: {detail}}, data: data,
	})
	if err != nil {
		return fmt.Errorf("unpack: block %d of %s cannot be decoded, and not be put into DEAD either: %w", m.Seq, m.Subject, err)
	}
	if stored {
		u.cfg.OnDead("poison")
		u.cfg.Log.Error("a block cannot be decoded; it is in DEAD", "block", m.Seq, "subject", m.Subject, "error", why)
	}
	return nil
}

// deadMsg is one message for DEAD, made from one block of the ledger.
type deadMsg struct {
	subject string
	block   uint64
	header  nats.Header
	data    []byte
	point   string // label for the fault seam
}

// dead stores d unless it is there already. Whoever writes to a subject of DEAD
// does so in the ledger's order, so the newest message of the subject tells
// whether d is stored; the guard makes sure that it is still the newest.
func (u *Unpacker) dead(ctx context.Context, d deadMsg) (stored bool, err error) {
	info, err := u.cfg.Store.Info(ctx, u.ledger)
	if err != nil {
		return false, err
	}
	d.header[HdrBlock] = []string{strconv.FormatUint(d.block, 10)}
	d.header[hdrLedger] = []string{info.Incarnation}
	for try := 0; ; try++ {
		var guard uint64
		last, err := u.cfg.Store.Last(ctx, store.Dead, d.subject)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return false, err
		default:
			guard = last.Seq
			block, err := strconv.ParseUint(last.Header.Get(HdrBlock), 10, 64)
			if err == nil && block >= d.block && last.Header.Get(hdrLedger) == info.Incarnation {
				return stored, nil
			}
		}
		d.header[store.GuardSubject] = []string{strconv.FormatUint(guard, 10)}
		if err = u.fault(d.point); err == nil {
			_, err = u.cfg.Store.PublishBatch(ctx, []store.Msg{{Subject: d.subject, Header: d.header, Data: d.data}})
			stored = err == nil || errors.Is(err, store.ErrUnknownOutcome)
		}
		if err == nil || try == deadTries || !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome) {
			return stored && err == nil, err
		}
	}
}
