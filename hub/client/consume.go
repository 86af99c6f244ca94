package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// ConsumerConfig says what a group reads and how. All processes of a group give
// the same; the one that comes last decides.
type ConsumerConfig struct {
	Stream string // empty: EDGE
	Group  string // A-Z a-z 0-9 _ -; a group of its own for every stream, but for retries, which those of one name share
	// Filter is on the subjects of the stream, <prefix>.<device>.<subject>:
	// edge.*.sensors.> takes what every device publishes below sensors. Empty is
	// everything. What a group passes over stays passed over when the filter changes.
	Filter string
	// AckWait is how long a process may be silent (crashed, cut off) before others
	// get what it holds; handlers may take longer. 0: 30 s.
	AckWait time.Duration
	// MaxDeliver is how often a message is delivered before the server gives up
	// and the hub puts it into DEAD; -1 is for ever, 0 is 10. A crash, and a stop
	// that gives a message back, count as well.
	MaxDeliver int
	// MaxInFlight is how many handlers run at a time in this process; as many
	// messages wait behind them, each at most as large as the server's max_payload
	// (1 MiB). 0: 64. With 1, and one process, messages come in the stream's order,
	// but for those that failed.
	MaxInFlight int
	From        From // of a new group; one that exists goes on where it is
	// Backoff is how long a message waits after its first, second … failure; the
	// last holds for all that follow. Empty: 1 s, 5 s, 30 s, 2 min, 10 min.
	Backoff []time.Duration
}

const (
	maxInFlight  = 4096
	retryLookout = 5 * time.Second // how often to look whether RETRY has come into being
	retryPause   = time.Minute     // after an error
)

func (cfg *ConsumerConfig) fill() error {
	if cfg.Stream == "" {
		cfg.Stream = defaultStream
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = 30 * time.Second
	}
	if cfg.MaxDeliver == 0 {
		cfg.MaxDeliver = 10
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 64
	}
	if len(cfg.Backoff) == 0 {
		cfg.Backoff = defaultBackoff()
	}
	if err := checkGroup(cfg.Group); err != nil {
		return err
	}
	if cfg.Filter == ">" {
		cfg.Filter = ""
	}
	if cfg.Filter != "" {
		if err := wire.CheckFilter(cfg.Filter); err != nil {
			return fmt.Errorf("hub/client: Filter: %w", err)
		}
	}
	switch {
	case cfg.Stream == blocksStream:
		return errors.New("hub/client: Stream: BLOCKS holds packed blocks; use ConsumeBatch")
	case cfg.AckWait < minAckWait:
		return fmt.Errorf("hub/client: AckWait %s is less than %s", cfg.AckWait, minAckWait)
	case cfg.MaxDeliver < -1:
		return fmt.Errorf("hub/client: MaxDeliver %d is neither -1 (for ever) nor a number of deliveries", cfg.MaxDeliver)
	case cfg.MaxInFlight < 1 || cfg.MaxInFlight > maxInFlight:
		return fmt.Errorf("hub/client: MaxInFlight %d is not 1 to %d", cfg.MaxInFlight, maxInFlight)
	case slices.Min(cfg.Backoff) < 0:
		return fmt.Errorf("hub/client: Backoff %v holds a negative pause", cfg.Backoff)
	}
	return nil
}

// Handler handles a message, which is its own to keep. nil acks it; an error
// gives it back to the group after a pause; one that wraps ErrTerminate ends it.
// ctx ends when the call that runs the handler is to end, which then waits for it.
type Handler func(ctx context.Context, m *Message) error

// Consume hands the messages of a stream to handler, sharing them with the other
// processes of the group, until ctx ends (nil), the Client is closed (ErrClosed)
// or the group is removed (ErrGroupRemoved). It then waits for the handlers that
// run, and gives back what was fetched and not handled.
func (c *Client) Consume(ctx context.Context, cfg ConsumerConfig, handler Handler) error {
	if handler == nil {
		return errors.New("hub/client: Consume without a handler")
	}
	if err := cfg.fill(); err != nil {
		return err
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	r := &consumer{c: c, cfg: cfg, handler: handler, get: c.source(cfg.Stream)}
	g := &group{stream: cfg.Stream, name: cfg.Group, from: cfg.From, ackWait: cfg.AckWait, maxDeliver: cfg.MaxDeliver}
	if cfg.Filter != "" {
		g.filters = []string{cfg.Filter}
	}
	stream, cons, err := c.open(ctx, g)
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return err
	}
	r.prefixes = prefixesOf(stream.CachedInfo().Config.Subjects)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var retries sync.WaitGroup
	retries.Go(func() { r.retries(ctx) })
	err = r.puller(cons, cfg.Stream, r.message).run(ctx)
	cancel()
	retries.Wait()
	if err == nil {
		err = ended(ctx)
	}
	return err
}

// consumer is one call of Consume.
type consumer struct {
	c        *Client
	cfg      ConsumerConfig
	handler  Handler
	get      source   // of the stream
	prefixes []string // of the stream's subjects, each with its dot
}

func (r *consumer) puller(cons jetstream.Consumer, stream string, handle func(context.Context, *held) error) *puller {
	return &puller{
		c: r.c, cons: cons, group: r.cfg.Group, stream: stream, ackWait: r.cfg.AckWait, last: r.cfg.MaxDeliver,
		backoff: r.cfg.Backoff, running: r.cfg.MaxInFlight, ahead: r.cfg.MaxInFlight, handle: handle,
	}
}

// message handles one message of the route's stream.
func (r *consumer) message(ctx context.Context, h *held) error {
	msg := h.msg
	data, ok, err := whole(ctx, r.get, h.seq, msg.Subject(), msg.Headers(), msg.Data())
	if err != nil || !ok {
		return r.unfit(h, err)
	}
	m := parseMessage(msg.Subject(), msg.Headers(), r.prefixes)
	m.Payload, m.Stream, m.StreamSeq, m.Stored, m.Deliveries = data, r.cfg.Stream, h.seq, h.time, h.nth
	return r.handler(ctx, &m)
}

// unfit decides about a message that no handler can have; a part that is not
// the last (nil) is done with.
func (r *consumer) unfit(h *held, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errParts):
		r.c.cfg.Log.Error("a message cannot be put together; it is terminated", "group", r.cfg.Group, "stream_seq", h.seq, "error", err)
		return fmt.Errorf("%w: %w", ErrTerminate, err)
	}
	return fmt.Errorf("%w: %w", errLater, err)
}

// retries reads what was sent again from DEAD to this group, as soon as the hub
// has a stream for that, until ctx ends.
func (r *consumer) retries(ctx context.Context) {
	g := &group{
		stream: retryStream, name: r.cfg.Group, filters: []string{"retry." + r.cfg.Group},
		ackWait: r.cfg.AckWait, maxDeliver: r.cfg.MaxDeliver,
	}
	told := ""
	for ctx.Err() == nil {
		_, cons, err := r.c.open(ctx, g)
		if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
			told = ""
		}
		if err == nil {
			err = r.puller(cons, retryStream, r.retry).run(ctx)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, jetstream.ErrStreamNotFound) && err.Error() != told {
			told = err.Error()
			r.c.cfg.Log.Warn("retries of dead letters cannot be read; trying again", "group", r.cfg.Group, "error", err)
		}
		pause := retryLookout
		if told != "" {
			pause = retryPause
		}
		sleep(ctx, pause)
	}
}

// retry handles one message of RETRY as what it was at first.
func (r *consumer) retry(ctx context.Context, h *held) error {
	msg := h.msg
	of, err := parseRetry(msg.Headers())
	if err != nil {
		r.c.cfg.Log.Error("a retry does not say what it is; it is terminated", "group", r.cfg.Group, "retry_seq", h.seq, "error", err)
		return fmt.Errorf("%w: %w", ErrTerminate, err)
	}
	if of.stream != r.cfg.Stream {
		return fmt.Errorf("%w: it belongs to the group's namesake on stream %s", errLater, of.stream)
	}
	data, ok, err := whole(ctx, r.get, of.seq, of.subject, msg.Headers(), msg.Data())
	if err != nil || !ok {
		return r.unfit(h, err)
	}
	m := parseMessage(of.subject, msg.Headers(), r.prefixes)
	m.Payload, m.Stream, m.StreamSeq, m.Stored = data, of.stream, of.seq, h.time
	m.Deliveries, m.Retry = h.nth, of.n
	return r.handler(ctx, &m)
}
