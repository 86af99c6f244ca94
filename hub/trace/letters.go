package trace

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// letters looks for letters of the message in DEAD, and for retries in RETRY.
// Both keep the headers with its number.
func (a *asked) letters(ctx context.Context, stream, subject string) error {
	hits, err := a.newest(ctx, store.Dead, "dead."+stream+"."+subject, a.mine)
	if err != nil {
		return err
	}
	for _, f := range hits {
		a.state(admin.TraceDead)
		why, by := f.header.Get(deadletter.HdrReason), f.header.Get(deadletter.HdrConsumer)
		text := fmt.Sprintf("consumer %s gave it up after %s deliveries (%s)", by, f.header.Get(deadletter.HdrDeliveries), why)
		if d := f.header.Get(deadletter.HdrDetail); d != "" {
			text += ": " + d
		}
		a.step(admin.TraceStep{Hop: "dead", State: "dead", Time: f.time, Stream: store.Dead, Seq: f.seq, Consumer: by, Reason: why,
			Text: text + fmt.Sprintf("; `fieldpost-hub dead show %d`", f.seq)})
	}
	hits, err = a.newest(ctx, store.Retry, "retry.*", a.mine)
	if err != nil {
		return err
	}
	for _, f := range hits {
		to := strings.TrimPrefix(f.subject, "retry.")
		a.step(admin.TraceStep{Hop: "retry", State: "retried", Time: f.time, Stream: store.Retry, Seq: f.seq, Consumer: to,
			Text: fmt.Sprintf("offered to consumer %s again on %s (retry %s)", to, f.subject, f.header.Get(deadletter.HdrRetry))})
		if err := a.consumers(ctx, store.Retry, f, f.seq); err != nil {
			return err
		}
	}
	return nil
}

// gapReport adds the report of a gap, which follows the ledger after a moment.
func (a *asked) gapReport(ctx context.Context) error {
	any, err := a.gapIn(ctx)
	if err == nil && !any {
		a.step(admin.TraceStep{Hop: "dead", State: "unknown", Stream: store.Dead,
			Text: fmt.Sprintf("dead.gap.%s has no report of it: not yet, or not any more (dead.max_age)", a.out.Device)})
	}
	return err
}

// gapIn looks for a report of a gap with the message in DEAD.
func (a *asked) gapIn(ctx context.Context) (any bool, err error) {
	flow := a.flow.String() + "/"
	hits, err := a.newest(ctx, store.Dead, "dead.gap."+a.out.Device, func(f *found) bool {
		text, ok := strings.CutPrefix(f.header.Get(unpack.HdrGap), flow)
		if !ok {
			return false
		}
		set, err := wire.ParseRanges(text)
		return err == nil && set.Contains(wire.Range{First: a.out.Seq, Last: a.out.Seq})
	})
	if err != nil || len(hits) == 0 {
		return false, err
	}
	f := hits[0]
	a.out.State = admin.TraceGap
	block, _, _ := strings.Cut(f.header.Get(unpack.HdrBlock), "/")
	n, err := strconv.ParseUint(block, 10, 64)
	if err != nil {
		n = 0 // not ours
	}
	a.step(admin.TraceStep{Hop: "dead", State: "gap", Time: f.time, Stream: store.Dead, Seq: f.seq, Block: n, Reason: f.header.Get(unpack.HdrReason),
		Text: fmt.Sprintf("reported on %s: %s will not come (%s)", f.subject, f.header.Get(unpack.HdrGap), f.header.Get(unpack.HdrReason))})
	return true, nil
}

// poisonLetter looks for the letter of a block that cannot be decoded.
func (a *asked) poisonLetter(ctx context.Context, m store.Stored) error {
	want := strconv.FormatUint(m.Seq, 10)
	hits, err := a.newest(ctx, store.Dead, "dead."+store.Blocks+"."+m.Subject, func(f *found) bool { return f.header.Get(unpack.HdrBlock) == want })
	if err != nil {
		return err
	}
	for _, f := range hits {
		a.step(admin.TraceStep{Hop: "dead", State: "dead", Time: f.time, Stream: store.Dead, Seq: f.seq, Block: m.Seq, Reason: f.header.Get(unpack.HdrReason),
			Text: fmt.Sprintf("the block is kept in DEAD; `fieldpost-hub dead show %d`", f.seq)})
	}
	return nil
}
