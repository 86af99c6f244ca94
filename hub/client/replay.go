package client

import (
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

// Replay hands a part of a stream to handler, one message after the other in the
// stream's order, and leaves nothing behind on the server. It ends (nil) at To or
// after the last message that was there when it began, whichever is first, or
// with the handler's first error, or with ctx (its error: not all was read).
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
	want := jetstream.OrderedConsumerConfig{}
	want.DeliverPolicy, _, want.OptStartTime, _ = From{Time: cfg.From}.policy()
	if cfg.Filter != "" && cfg.Filter != ">" {
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
	r := &replay{c: c, cfg: cfg, handler: handler}
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
	stream   jetstream.Stream
	prefixes []string
	end      uint64 // last sequence of the stream at the start
	at       uint64 // that was read
}

func (r *replay) run(ctx context.Context, want jetstream.OrderedConsumerConfig) (err error) {
	if r.stream, err = r.c.stream(ctx, r.cfg.Stream); err != nil {
		return err
	}
	info := r.stream.CachedInfo()
	r.prefixes, r.end = prefixesOf(info.Config.Subjects), info.State.LastSeq
	cons, err := r.stream.OrderedConsumer(ctx, want)
	if err != nil {
		return fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(256))
	if err != nil {
		return fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	defer it.Stop()
	for more := r.end > 0; more; {
		m, err := it.Next(jetstream.NextMaxWait(replayLook))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, nats.ErrTimeout):
			more, err = r.left(ctx, cons)
		case err == nil:
			more, err = r.take(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// left reports whether anything that is still to be read is there. An answer that
// does not come says nothing; the ordered consumer reconnects by itself.
func (r *replay) left(ctx context.Context, cons jetstream.Consumer) (bool, error) {
	info, err := cons.Info(ctx)
	if err != nil {
		r.c.cfg.Log.Debug("a replay waits for the server", "stream", r.cfg.Stream, "error", err)
		return true, nil
	}
	return info.NumPending > 0 || info.NumAckPending > 0 || info.Delivered.Stream > r.at && info.Delivered.Consumer > 0, nil
}

// take hands on one message and reports whether more may follow.
func (r *replay) take(ctx context.Context, msg jetstream.Msg) (more bool, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return false, fmt.Errorf("hub/client: replay %s: %w", r.cfg.Stream, err)
	}
	r.at = meta.Sequence.Stream
	if r.at > r.end || !r.cfg.To.IsZero() && meta.Timestamp.After(r.cfg.To) {
		return false, nil
	}
	more = r.at < r.end && meta.NumPending > 0
	data, ok, err := whole(ctx, r.stream, r.at, msg.Subject(), msg.Headers(), msg.Data())
	if err != nil {
		return false, fmt.Errorf("hub/client: replay %s, sequence %d: %w", r.cfg.Stream, r.at, err)
	}
	if !ok {
		return more, nil
	}
	m := parseMessage(msg.Subject(), msg.Headers(), r.prefixes)
	m.Payload, m.Stream, m.StreamSeq, m.Stored, m.Deliveries = data, r.cfg.Stream, r.at, meta.Timestamp, 1
	return more, r.handler(ctx, &m)
}
