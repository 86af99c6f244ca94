package hub

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
)

// openDead makes what keeps the messages that consumers gave up.
func (p *parts) openDead() (err error) {
	cfg := p.hub.cfg
	var streams []string
	for _, r := range cfg.Routes {
		streams = append(streams, r.Stream)
	}
	p.dead, err = deadletter.New(deadletter.Config{
		Store: p.store, Streams: streams,
		OnDead: func(reason string) { p.hub.metrics.dead(reason).Inc() },
		Fault:  cfg.Fault, Log: cfg.Log,
	})
	return err
}

const (
	maxDeads   = 8                // requests that go through DEAD at the same time
	deadFor    = 15 * time.Second // after which a call with all ends, to be continued
	deadPage   = 256              // letters that such a call looks for at once
	maxRefused = 20               // that an answer names
)

// letterOf is a letter as the API shows it.
func letterOf(m deadletter.Listed) admin.Letter {
	h := m.Header
	stream, subject := deadletter.SplitSubject(m.Subject)
	number := func(key string) uint64 {
		n, err := strconv.ParseUint(h.Get(key), 10, 64)
		if err != nil {
			return 0 // absent, or not ours
		}
		return n
	}
	out := admin.Letter{
		Seq: m.Seq, Time: m.Time.UTC(), Stream: stream, Subject: subject, Size: m.Size,
		Reason: h.Get(deadletter.HdrReason), Detail: h.Get(deadletter.HdrDetail), Consumer: h.Get(deadletter.HdrConsumer),
		Deliveries: number(deadletter.HdrDeliveries), StreamSeq: number(deadletter.HdrStreamSeq), Retry: number(deadletter.HdrRetry),
	}
	if out.Detail == "" {
		out.Detail = h.Get(deadletter.HdrGap)
	}
	if err := deadletter.RefuseRetry(m.Subject, h); err != nil {
		out.Refusal = err.Error()
	}
	return out
}

func wholeLetter(m store.Stored) admin.WholeLetter {
	out := admin.WholeLetter{
		Letter:  letterOf(deadletter.Listed{Seq: m.Seq, Time: m.Time, Subject: m.Subject, Header: m.Header, Size: len(m.Data)}),
		Headers: ownHeaders(m.Header),
	}
	out.SetPayload(m.Data)
	return out
}

// ownHeaders are without those of the storage.
func ownHeaders(h nats.Header) map[string][]string {
	out := map[string][]string(maps.Clone(h))
	maps.DeleteFunc(out, func(k string, _ []string) bool { return strings.HasPrefix(k, "Nats-") })
	return out
}

// deadAll does something with every letter that was chosen, page by page, until
// all is done or deadFor has passed. UpTo keeps it from chasing letters that come
// back meanwhile.
func (p *parts) deadAll(ctx context.Context, c admin.DeadChoice, do deadWork) (out admin.DeadDone, err error) {
	began := time.Now()
	out.UpTo = c.UpTo
	if out.UpTo == 0 {
		info, err := p.store.Info(ctx, store.Dead)
		if err != nil {
			return out, err
		}
		out.UpTo = info.Last
	}
	q := deadletter.Query{Filter: c.Filter, Consumer: c.Consumer, Reason: c.Reason, After: c.After, UpTo: out.UpTo}
	for out.UpTo > q.After {
		page, next, err := p.dead.List(ctx, q, deadPage)
		if err != nil {
			return out, err
		}
		seqs := make([]uint64, len(page))
		for i, m := range page {
			seqs[i] = m.Seq
		}
		for some := range slices.Chunk(seqs, 64) {
			done, err := do(ctx, some)
			add(&out, done)
			if err != nil {
				return out, err
			}
			if q.After = some[len(some)-1]; time.Since(began) > deadFor {
				out.Next = q.After
				return out, nil
			}
		}
		if next == 0 {
			break
		}
		if q.After = next; time.Since(began) > deadFor {
			out.Next = next
			return out, nil
		}
	}
	out.UpTo = 0
	return out, nil
}

// deadWork does something with letters and adds up what became of them.
type deadWork func(context.Context, []uint64) (admin.DeadDone, error)

func (p *parts) retryDead(ctx context.Context, seqs []uint64) (admin.DeadDone, error) {
	o, err := p.dead.Retry(ctx, seqs)
	out := deadDone(o)
	out.Retried = o.Done
	return out, err
}

func (p *parts) purgeDead(ctx context.Context, seqs []uint64) (admin.DeadDone, error) {
	o, err := p.dead.Purge(ctx, seqs)
	out := deadDone(o)
	out.Purged = o.Done
	return out, err
}

func deadDone(o deadletter.Outcome) admin.DeadDone {
	out := admin.DeadDone{Gone: o.Gone, Refused: len(o.Refused)}
	for _, r := range o.Refused[:min(len(o.Refused), maxRefused)] {
		out.Why = append(out.Why, admin.Refused{Seq: r.Seq, Why: r.Why.Error()})
	}
	return out
}

func add(sum *admin.DeadDone, d admin.DeadDone) {
	sum.Retried += d.Retried
	sum.Purged += d.Purged
	sum.Gone += d.Gone
	sum.Refused += d.Refused
	sum.Why = append(sum.Why, d.Why[:min(len(d.Why), maxRefused-len(sum.Why))]...)
}
