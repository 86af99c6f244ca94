package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	retryFirst = time.Second
	retryMost  = 5 * time.Minute
	fetchRetry = time.Second // between attempts at the stream
)

// Config configures a Runner.
type Config struct {
	JetStream jetstream.JetStream
	Hooks     []Hook // checked, with defaults
	// OnSent counts messages by result: delivered, refused or failed.
	OnSent func(hook, result string, n int)
	Log    *slog.Logger
	Now    func() time.Time
}

// Runner sends what its webhooks want.
type Runner struct {
	workers []*worker
	client  *http.Client
}

// worker sends a webhook the messages of its stream, or those of RETRY.
type worker struct {
	cfg    Config
	hook   Hook
	from   string // the stream that it reads
	secret []byte
	client *http.Client
	wait   time.Duration // after the next failure; owned by run
	delay  time.Duration // after the last failure; owned by run
	held   []delivery    // fetched and not posted yet; owned by run
	due    []uint64      // sequences that come again before those; owned by run

	mu  sync.Mutex
	err error // why it does not get on; guarded by mu
}

// New reads the secrets. Nothing is sent before Run.
func New(cfg Config) (*Runner, error) {
	r := &Runner{client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute},
		// A redirect is an answer, and not one that the messages may follow.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for _, h := range cfg.Hooks {
		secret, err := h.secret()
		if err != nil {
			return nil, err
		}
		for _, from := range []string{h.Stream, store.Retry} {
			r.workers = append(r.workers, &worker{cfg: cfg, hook: h, from: from, secret: secret, client: r.client, wait: retryFirst})
		}
	}
	return r, nil
}

// Run sends until ctx ends; it returns nil then.
func (r *Runner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	<-ctx.Done() // also without any webhook
	r.client.CloseIdleConnections()
	return nil
}

// Status says of each webhook, in the order of the configuration, why it does not
// get on; nil if it does.
func (r *Runner) Status() (out []error) {
	for i := 0; i < len(r.workers); i += 2 {
		err := r.workers[i].problem()
		if err == nil {
			err = r.workers[i+1].problem()
		}
		out = append(out, err)
	}
	return out
}

func (w *worker) problem() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *worker) now() time.Time { return w.cfg.Now() }

// set logs transitions.
func (w *worker) set(err error) {
	w.mu.Lock()
	was := w.err
	w.err = err
	w.mu.Unlock()
	switch {
	case err != nil && was == nil:
		w.cfg.Log.Warn("webhook does not get on; it is tried again", "webhook", w.hook.Name, "url", w.hook.Place(), "err", err)
	case err == nil && was != nil:
		w.cfg.Log.Info("webhook gets on again", "webhook", w.hook.Name)
	}
}

func (w *worker) run(ctx context.Context) {
	cfg := w.hook.consumer()
	if w.from == store.Retry {
		cfg = w.hook.retries()
	}
	var made time.Time // the consumer that held messages are of
	for unread := false; ctx.Err() == nil; {
		consumer, err := w.cfg.JetStream.CreateOrUpdateConsumer(ctx, w.from, cfg)
		if err == nil && !consumer.CachedInfo().Created.Equal(made) {
			// A new one begins anew, and an ack of what the old one gave would be one
			// of another message.
			made = consumer.CachedInfo().Created
			w.held, w.due = nil, nil
		}
		for err == nil && ctx.Err() == nil {
			var batch []delivery
			if batch, err = w.collect(ctx, consumer); err == nil && unread {
				unread = false
				w.set(nil)
			}
			if err == nil && !w.inTurn(ctx, requests(batch)) {
				w.pause(ctx, w.delay)
			}
		}
		if ctx.Err() == nil {
			unread = true
			w.set(fmt.Errorf("stream %s: %w", w.from, err))
			sleep(ctx, fetchRetry)
		}
	}
	w.tell(w.held, func(d delivery) error { return d.msg.Nak() }) // others may take it at once
}

// collect waits for messages, at most a batch of them with those that are held.
func (w *worker) collect(ctx context.Context, consumer jetstream.Consumer) (out []delivery, err error) {
	out, w.held = w.held, nil
	for until := time.Now().Add(w.dueFor()); ; {
		w.keep(out)
		if n := w.hook.Batch - len(out); n > 0 {
			some, e := w.fetch(ctx, consumer, n)
			if out = append(out, some...); e != nil && len(some) == 0 {
				w.held = out
				return nil, e
			}
		}
		out = inOrder(out)
		if len(out) >= w.hook.Batch || ctx.Err() != nil || w.complete(out) || time.Now().After(until) {
			w.due = nil
			return out, nil
		}
	}
}

// fetch reads up to n messages.
func (w *worker) fetch(ctx context.Context, consumer jetstream.Consumer, n int) (out []delivery, err error) {
	fetched, err := consumer.Fetch(n, jetstream.FetchMaxWait(w.hook.Wait))
	if err != nil {
		return nil, err
	}
	for m := range fetched.Messages() {
		meta, err := m.Metadata()
		if err != nil {
			return out, fmt.Errorf("metadata: %w", err)
		}
		d := delivery{msg: m, seq: meta.Sequence.Stream, size: len(m.Data())}
		d.line = admin.NewMessage(m.Subject(), m.Headers(), m.Data(), d.seq, meta.Timestamp)
		d.line.Deliveries = meta.NumDelivered
		if w.from == store.Retry {
			d.line.Original()
		}
		if ctx.Err() != nil {
			if err := m.Nak(); err != nil {
				return out, err
			}
			continue
		}
		out = append(out, d)
	}
	return out, fetched.Error()
}

// requests divides a batch into what fits into one request each.
func requests(batch []delivery) (out [][]delivery) {
	for from, size, i := 0, 0, 0; i < len(batch); i++ {
		size += batch[i].size
		if i+1 == len(batch) || size+batch[i+1].size > maxBody {
			out = append(out, batch[from:i+1])
			from, size = i+1, 0
		}
	}
	return out
}

// deliver settles every message of a batch: as delivered, as refused, or to come
// again when the backoff is over. It reports whether the other side has answered
// for good.
func (w *worker) deliver(ctx context.Context, batch []delivery) bool {
	after, err := w.post(ctx, batch)
	switch {
	case err == nil:
		w.settled(batch, "delivered", func(d delivery) error { return d.msg.DoubleAck(ctx) })
		w.wait = retryFirst
		w.set(nil)
		return true
	case isRefused(err) && len(batch) > 1:
		return w.inTurn(ctx, slices.Collect(slices.Chunk(batch, 1))) // which of them?
	case isRefused(err):
		reason := fmt.Sprintf("webhook %s: %v", w.hook.Name, err)
		w.settled(batch, "refused", func(d delivery) error { return d.msg.TermWithReason(reason) })
		w.cfg.Log.Warn("webhook refuses a message", "webhook", w.hook.Name, "seq", batch[0].line.Seq, "answer", err)
		return true
	case ctx.Err() != nil: // stopping: others may take it at once
		w.settled(batch, "failed", func(d delivery) error { return d.msg.Nak() })
		return false
	}
	w.set(err)
	wait := max(w.wait/2+rand.N(w.wait/2), after)
	w.wait = min(2*w.wait, retryMost)
	w.settled(batch, "failed", func(d delivery) error { return d.msg.NakWithDelay(wait) })
	w.again(batch)
	w.delay = wait
	return false
}

// inTurn delivers one request after the other, as deliver does.
func (w *worker) inTurn(ctx context.Context, requests [][]delivery) bool {
	for i, batch := range requests {
		rest := slices.Concat(requests[i+1:]...)
		if i > 0 {
			w.keep(slices.Concat(batch, rest))
		}
		if !w.deliver(ctx, batch) { // the other side is down: the rest waits as well
			w.hold(rest)
			return false
		}
	}
	return true
}

// settled tells JetStream what became of messages. What it does not learn comes
// again after the ack wait.
func (w *worker) settled(batch []delivery, result string, tell func(delivery) error) {
	w.cfg.OnSent(w.hook.Name, result, len(batch))
	w.tell(batch, tell)
}

func (w *worker) tell(batch []delivery, tell func(delivery) error) {
	for _, d := range batch {
		if err := tell(d); err != nil && !errors.Is(err, context.Canceled) {
			w.cfg.Log.Debug("a message of a webhook was not settled and comes again", "webhook", w.hook.Name, "seq", d.line.Seq, "err", err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
