package deadletter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Letters is one hub instance's part in DEAD. Its methods are safe for
// concurrent use.
type Letters struct {
	cfg     Config
	toDead  once
	toRetry once

	mu     sync.Mutex
	err    error     // why nothing moves; guarded by mu
	logged time.Time // when letters were last logged; owned by Run
	unsaid int       // letters since then; owned by Run
}

// New checks cfg. Nothing runs before Run.
func New(cfg Config) (*Letters, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Letters{
		cfg:     cfg,
		toDead:  once{store: cfg.Store, target: store.Dead, fault: cfg.Fault, name: "dead"},
		toRetry: once{store: cfg.Store, target: store.Retry, fault: cfg.Fault, name: "retry"},
	}, nil
}

const (
	durable    = "dead"           // the consumer of ADVISORIES that all instances share
	fetchWait  = 10 * time.Second // of one request for advisories
	firstPause = 100 * time.Millisecond
	longPause  = 15 * time.Second
	sayEvery   = time.Minute
	// skew is how far the clocks of a cluster's servers may be apart. An advisory
	// that is older than the stream is about another stream of that name.
	skew = time.Minute
)

// Run turns advisories into letters until ctx ends; it returns nil then.
// Whatever goes wrong meanwhile is tried again, logged once and shown by Err.
func (l *Letters) Run(ctx context.Context) error {
	for pause := firstPause; ctx.Err() == nil; {
		moved, err := l.collect(ctx)
		if ctx.Err() != nil {
			break
		}
		if moved {
			pause = firstPause
		}
		l.set(err)
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = min(2*pause, longPause)
	}
	return nil
}

// Err says why letters are held up; nil if they are not.
func (l *Letters) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Letters) set(err error) {
	l.mu.Lock()
	was := l.err
	l.err = err
	l.mu.Unlock()
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		l.cfg.Log.Error("dead letters are held up and tried again", "error", err)
	case err == nil && was != nil:
		l.cfg.Log.Info("dead letters go on")
	}
}

// collect works until something fails, and reports whether anything was done.
func (l *Letters) collect(ctx context.Context) (moved bool, err error) {
	consumer, err := l.cfg.Store.JetStream().CreateOrUpdateConsumer(ctx, store.Advisories, jetstream.ConsumerConfig{
		Durable: durable, Description: "Fieldpost: dead letters", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: l.cfg.AckWait, MaxDeliver: -1,
		// One batch at a time, whatever the number of instances: they would get in
		// each other's way at the guard.
		MaxAckPending: batchItems,
	})
	if err != nil {
		return false, fmt.Errorf("deadletter: consumer of %s: %w", store.Advisories, err)
	}
	for {
		msgs, err := l.fetch(ctx, consumer)
		if err == nil {
			err = l.handle(ctx, msgs)
		}
		if err != nil {
			return moved, errors.Join(err, l.giveBack(msgs))
		}
		l.set(nil)
		l.say()
		moved = moved || len(msgs) > 0
	}
}

// giveBack lets whoever is faster have the advisories at once; what was acked
// before stays so. If it fails, they come back after AckWait.
func (l *Letters) giveBack(msgs []jetstream.Msg) error {
	if err := l.toDead.at("return"); err != nil {
		return err
	}
	for _, m := range msgs {
		if err := m.Nak(); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			return fmt.Errorf("deadletter: nak: %w", err)
		}
	}
	return nil
}

// fetch waits for one advisory and takes what is there with it.
func (l *Letters) fetch(ctx context.Context, c jetstream.Consumer) (out []jetstream.Msg, err error) {
	if err := l.toDead.at("fetch"); err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	first, err := c.Fetch(1, jetstream.FetchContext(wait))
	if err == nil {
		out, err = gather(out, first)
	}
	if ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	if wait.Err() != nil {
		err = nil
	}
	if err != nil || len(out) == 0 {
		return out, err
	}
	rest, err := c.FetchNoWait(batchItems - 1)
	if err != nil {
		return out, err
	}
	return gather(out, rest)
}

func gather(out []jetstream.Msg, batch jetstream.MessageBatch) ([]jetstream.Msg, error) {
	for m := range batch.Messages() {
		out = append(out, m)
	}
	err := batch.Error()
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) {
		err = nil
	}
	return out, err
}

// handle puts the letters of some advisories into DEAD and acks all of them.
func (l *Letters) handle(ctx context.Context, msgs []jetstream.Msg) error {
	if len(msgs) == 0 {
		return nil
	}
	var items []*item
	bytes := 0
	reasons := map[*item]string{}
	put := func() error {
		err := l.toDead.put(ctx, items, func(it *item) {
			l.cfg.OnDead(reasons[it])
			l.unsaid++
		})
		items, bytes = nil, 0
		return err
	}
	seen := map[string]bool{}
	streams := map[string]time.Time{}
	for _, m := range msgs {
		it, g, err := l.read(ctx, m, streams)
		if err != nil {
			return err
		}
		if it == nil || seen[it.key] { // the second of a pair stands for nothing of its own
			continue
		}
		seen[it.key] = true
		items, reasons[it] = append(items, it), g.Reason
		if bytes += len(it.msg.Data); bytes >= batchBytes { // not all of them in memory
			if err := put(); err != nil {
				return err
			}
		}
	}
	if err := put(); err != nil {
		return err
	}
	if err := l.toDead.at("ack"); err != nil {
		return err
	}
	for _, m := range msgs {
		if err := m.Ack(); err != nil {
			return fmt.Errorf("deadletter: ack: %w", err) // it comes again and is recognised
		}
	}
	return nil
}

// read makes an advisory an item; nil if there is nothing to do.
func (l *Letters) read(ctx context.Context, m jetstream.Msg, streams map[string]time.Time) (*item, given, error) {
	g, err := parseAdvisory(m.Subject(), m.Data())
	if err != nil {
		l.cfg.Log.Warn("something that is no advisory is ignored", "error", err)
		return nil, g, nil
	}
	if !l.ours(g.Stream) {
		return nil, g, nil
	}
	if err := l.toDead.at("read"); err != nil {
		return nil, g, err
	}
	created, known := streams[g.Stream]
	if !known {
		info, err := l.cfg.Store.Info(ctx, g.Stream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, g, err
		}
		created = info.Created // zero: the stream is gone
		streams[g.Stream] = created
	}
	var found *store.Stored
	if !created.IsZero() && !g.Time.Add(skew).Before(created) {
		switch st, err := l.cfg.Store.Get(ctx, g.Stream, g.Seq); {
		case err == nil:
			found = &st
		case !errors.Is(err, store.ErrNotFound):
			return nil, g, err
		}
	}
	if g.removed(found != nil) {
		return nil, g, nil
	}
	id := g.key(created)
	return &item{key: id, by: g.ID, msg: letter(g, found, id, l.cfg.Store.MaxPayload()), shrink: shrink}, g, nil
}

func (l *Letters) ours(stream string) bool {
	for _, s := range l.cfg.Streams {
		if s == stream {
			return true
		}
	}
	return false
}

// say logs letters once in a while.
func (l *Letters) say() {
	if l.unsaid > 0 && time.Since(l.logged) >= sayEvery {
		l.cfg.Log.Warn("messages are in DEAD, as their consumers gave them up", "messages", l.unsaid)
		l.unsaid, l.logged = 0, time.Now()
	}
}
