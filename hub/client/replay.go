package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// ReplayConfig says what to read again. Times are those at which the stream took
// a message (Message.Stored): what a device sent late lies where it arrived.
type ReplayConfig struct {
	Stream string    // empty: EDGE
	From   time.Time // zero: the first message that the stream holds
	To     time.Time // the last moment that counts; zero: what is there at the start
	Filter string    // as in ConsumerConfig
}

// replayLook is how long nothing may come before it is looked whether anything is left.
const replayLook = 2 * time.Second

// replayGone is when the server removes a consumer that nobody pulls from.
const replayGone = 30 * time.Second

// Replay hands a part of a stream to handler, one message after the other in the
// stream's order, and leaves nothing behind on the server but a consumer that goes
// half a minute later. It ends (nil) at To or after the last message that was
// there when it began, whichever is first, or with the handler's first error, or
// with ctx (its error: not all was read).
func (c *Client) Replay(ctx context.Context, cfg ReplayConfig, handler Handler) error {
	if handler == nil {
		return errors.New("hub/client: Replay without a handler")
	}
	if cfg.Stream == "" {
		cfg.Stream = defaultStream
	}
	if cfg.Stream == blocksStream {
		return errors.New("hub/client: Stream: BLOCKS holds packed blocks; use ConsumeBatch")
	}
	want := jetstream.OrderedConsumerConfig{InactiveThreshold: replayGone}
	want.DeliverPolicy, _, want.OptStartTime, _ = From{Time: cfg.From}.policy()
	if cfg.Filter == ">" {
		cfg.Filter = ""
	}
	if cfg.Filter != "" {
		if err := wire.CheckFilter(cfg.Filter); err != nil {
			return fmt.Errorf("hub/client: Filter: %w", err)
		}
		want.FilterSubjects = []string{cfg.Filter}
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	r := &replay{c: c, cfg: cfg, handler: handler, get: c.source(cfg.Stream)}
	if err := r.run(ctx, want); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

// replay is one call of Replay.
type replay struct {
	c        *Client
	cfg      ReplayConfig
	handler  Handler
	get      source // of the stream
	prefixes []string
	at       uint64 // sequence that was read
	end      uint64 // last sequence of the stream at the start
}

func (r *replay) run(ctx context.Context, want jetstream.OrderedConsumerConfig) error {
	var stream jetstream.Stream
	err := r.c.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = r.c.stream(ctx, r.cfg.Stream)
		return err
	})
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	r.prefixes, r.end = prefixesOf(info.Config.Subjects), info.State.LastSeq
	if err := checkWithin(r.cfg.Filter, r.cfg.Stream, r.prefixes); err != nil {
		return err
	}
	var cons jetstream.Consumer
	err = r.c.ask(ctx, func(ctx context.Context) (err error) {
		cons, err = stream.OrderedConsumer(ctx, want)
		return err
	})
	if err != nil {
		return fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	defer it.Stop()
	more, err := r.begin(ctx)
	for more && err == nil {
		m, next := it.Next(jetstream.NextMaxWait(replayLook))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(next, nats.ErrTimeout): // the ordered consumer reconnects by itself
			more = r.look(ctx)
		case next != nil:
			return fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, next)
		default:
			more, err = r.take(ctx, m)
		}
	}
	return err
}

// begin goes to From and reports whether anything is to be read from there on.
func (r *replay) begin(ctx context.Context) (bool, error) {
	if !r.cfg.From.IsZero() {
		from := r.cfg.From.UTC()
		m, err := r.get(ctx, getRequest{Since: &from})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return false, nil
		case err != nil:
			return false, err
		}
		r.at = m.Sequence - 1
	}
	return r.more(ctx)
}

// look is more, where an answer that does not come means that there may be.
func (r *replay) look(ctx context.Context) bool {
	more, err := r.more(ctx)
	if err != nil {
		r.c.cfg.Log.Debug("a replay waits for the server", "stream", r.cfg.Stream, "error", err)
	}
	return more || err != nil
}

// more reports whether anything behind what was read is to be read. The stream
// itself is asked: what a consumer says of its pending messages is a guess at times.
func (r *replay) more(ctx context.Context) (bool, error) {
	if r.at >= r.end {
		return false, nil
	}
	m, err := r.get(ctx, getRequest{Seq: r.at + 1, Next: cmp.Or(r.cfg.Filter, ">")})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return m.Sequence <= r.end && !r.past(m.Time), nil
}

// past reports whether what was stored at t comes after To.
func (r *replay) past(t time.Time) bool { return !r.cfg.To.IsZero() && t.After(r.cfg.To) }

// take hands on one message and reports whether more may follow.
func (r *replay) take(ctx context.Context, msg jetstream.Msg) (more bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	r.at = meta.Sequence.Stream
	if r.at > r.end || r.past(meta.Timestamp) {
		return false, nil
	}
	data, ok, err := whole(ctx, r.get, r.at, msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return false, fmt.Errorf("hub/client: replay %s, sequence %d: %w", r.cfg.Stream, r.at, err)
	}
	if ok {
		m := parseMessage(msg.Subject(), msg.Headers(), r.prefixes)
		m.Payload, m.Stream, m.StreamSeq, m.Stored, m.Deliveries = data, r.cfg.Stream, r.at, meta.Timestamp, 1
		err = r.handler(ctx, &m)
	}
	if err == nil && meta.NumPending == 0 {
		return r.look(ctx), nil
	}
	return r.at < r.end, err
}
