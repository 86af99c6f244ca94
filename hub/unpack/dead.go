package unpack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	deadTries   = 10      // how often others may get in the way without anything being stored
	deadBatch   = 256     // messages in one atomic batch
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
	stored, err := u.dead(ctx, deadPlace{"dead." + u.ledger + "." + m.Subject, m.Seq, "unpack:poison"}, []deadMsg{{
		header: nats.Header{HdrReason: {reason}, HdrDetail: {detail}}, data: data,
	}})
	if err != nil {
		return fmt.Errorf("unpack: block %d of %s cannot be decoded, and not be put into DEAD either: %w", m.Seq, m.Subject, err)
	}
	if stored > 0 {
		u.cfg.OnDead("poison")
		u.cfg.Log.Error("a block cannot be decoded; it is in DEAD", "block", m.Seq, "subject", m.Subject, "error", why)
	}
	return nil
}

// deadPlace is where the messages go that one block of the ledger makes.
type deadPlace struct {
	subject string
	block   uint64
	point   string // label for the fault seam
}

// deadMsg is one of them.
type deadMsg struct {
	index  int // in the block, ascending; 0 if it stands for all of it
	header nats.Header
	data   []byte
}

// dead stores messages, unless they are there already, and returns how many it
// stored. Whoever writes to a subject of DEAD does so in the ledger's order, so
// the newest message of the subject tells what is stored; the guard makes sure
// that it is still the newest.
func (u *Unpacker) dead(ctx context.Context, at deadPlace, ds []deadMsg) (stored int, err error) {
	info, err := u.cfg.Store.Info(ctx, u.ledger)
	if err != nil {
		return 0, err
	}
	all, left := -1, len(ds)
	for try := 0; ; try++ {
		var guard uint64
		last, err := u.cfg.Store.Last(ctx, store.Dead, at.subject)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return 0, err
		default:
			guard = last.Seq
			if last.Header.Get(hdrLedger) == info.Incarnation {
				block, index := parseDeadBlock(last.Header.Get(HdrBlock))
				ds = slices.DeleteFunc(ds, func(d deadMsg) bool { return block > at.block || block == at.block && index >= d.index })
			}
		}
		if all < 0 {
			all = len(ds)
		}
		if len(ds) < left { // whoever stored them
			try, left = 0, len(ds)
		}
		for err = nil; len(ds) > 0 && err == nil; {
			some := ds[:min(len(ds), deadBatch)]
			if err = u.fault(at.point); err == nil {
				guard, err = u.cfg.Store.PublishBatch(ctx, at.messages(some, info.Incarnation, guard))
			}
			if err == nil {
				ds = ds[len(some):]
			}
		}
		if len(ds) == 0 {
			return all, nil
		}
		if try == deadTries || !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome) {
			return 0, err
		}
	}
}

// messages of one atomic batch, behind the one with sequence guard.
func (at *deadPlace) messages(ds []deadMsg, incarnation string, guard uint64) []store.Msg {
	out := make([]store.Msg, len(ds))
	for i, d := range ds {
		h := maps.Clone(d.header)
		h[HdrBlock] = []string{deadBlock(at.block, d.index)}
		h[hdrLedger] = []string{incarnation}
		if i == 0 {
			h[store.GuardSubject] = []string{strconv.FormatUint(guard, 10)}
		}
		out[i] = store.Msg{Subject: at.subject, Header: h, Data: d.data}
	}
	return out
}

// deadBlock says from which block of the ledger a message in DEAD was made, and
// from which message of it if it does not stand for the whole.
func deadBlock(block uint64, index int) string {
	s := strconv.FormatUint(block, 10)
	if index > 0 {
		s += "/" + strconv.Itoa(index)
	}
	return s
}

// parseDeadBlock is the inverse of deadBlock; zeros for anything else.
func parseDeadBlock(s string) (block uint64, index int) {
	a, b, more := strings.Cut(s, "/")
	block, err := strconv.ParseUint(a, 10, 64)
	if err == nil && more {
		index, err = strconv.Atoi(b)
	}
	if err != nil {
		return 0, 0
	}
	return block, index
}
