package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// pullWait is how long one request for messages stands. It is short because
	// an end waits for it: what the server hands out until then would otherwise
	// be kept from others for the whole AckWait.
	pullWait = time.Second
	// goneAfter is how long a group must be missing: a server that starts may not
	// know it yet.
	goneAfter = 5 * time.Second
	retryMin  = 100 * time.Millisecond
	retryMax  = 2 * time.Second
)

// puller brings what a durable consumer hands out to a handler and tells the
// server what became of it.
type puller struct {
	c       *Client
	cons    jetstream.Consumer
	group   string
	stream  string
	ackWait time.Duration
	last    int // the delivery after which the server gives up; -1: none
	backoff []time.Duration
	running int // handlers at a time
	ahead   int // messages fetched beyond those
	handle  func(context.Context, *held) error
	saw     func(*jetstream.MsgMetadata) // of every delivery, in order; may be nil

	room  chan struct{} // a token for each message that may be fetched
	queue chan *held    // capacity as room, so that nobody waits to put

	mu   sync.Mutex
	idle bool             // nothing is fetched any more; guarded by mu
	back []*held          // to be given back once it is; guarded by mu
	held map[uint64]*held // by stream sequence: fetched and not settled; guarded by mu
}

// held is a message that was fetched and is not settled.
type held struct {
	msg  jetstream.Msg // as it came first
	last jetstream.Msg // of the newest delivery, which settles it; guarded by the puller's mu
	seq  uint64        // in the stream
	time time.Time     // stored
	nth  int           // delivery, from 1
}

// run returns when ctx ends (nil), or with what keeps the group from being read;
// in either case no handler runs any more and nothing is held.
func (p *puller) run(ctx context.Context) error {
	all := p.running + p.ahead
	p.room, p.queue, p.held = make(chan struct{}, all), make(chan *held, all), map[uint64]*held{}
	p.give(all)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	var alive, pulling sync.WaitGroup
	alive.Go(func() { p.keepAlive(over) })
	var err error
	pulling.Go(func() {
		defer close(p.queue)
		err = p.pull(ctx)
		cancel(err)
		p.allBack()
	})
	p.work(ctx, cancel)
	pulling.Wait()
	close(over)
	alive.Wait()
	if flush := p.c.flush(); flush != nil {
		p.c.cfg.Log.Warn("what was given back may come again only after its ack wait", "group", p.group, "error", flush)
	}
	if f := (*failure)(nil); errors.As(context.Cause(ctx), &f) {
		return f.err
	}
	return err
}

// failure is what a handler found out that ends the whole call.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }

// pull fetches what there is room for until ctx ends or the group is gone.
func (p *puller) pull(ctx context.Context) error {
	var bad trouble
	for {
		n := p.take(ctx)
		if n == 0 {
			return nil
		}
		batch, err := p.cons.Fetch(n, jetstream.FetchMaxWait(pullWait))
		if err == nil {
			for m := range batch.Messages() {
				n--
				p.fetched(ctx, m)
			}
			err = batch.Error()
		}
		p.give(n)
		if err = p.judge(ctx, &bad, err); err != nil {
			return err
		}
	}
}

// take waits until it is worth asking for messages and returns for how many; 0
// when ctx has ended.
func (p *puller) take(ctx context.Context) (n int) {
	for least := max(1, p.ahead/2); n < least; n++ {
		select {
		case <-p.room:
		case <-ctx.Done():
			p.give(n)
			return 0
		}
	}
	for {
		select {
		case <-p.room:
			n++
			continue
		default:
		}
		if ctx.Err() != nil {
			p.give(n)
			return 0
		}
		return n
	}
}

func (p *puller) give(n int) {
	for range n {
		p.room <- struct{}{}
	}
}

// fetched takes in a delivery. One of a message whose handler still runs here,
// because the server heard nothing of it for too long, is not handled twice at a
// time: what becomes of the first counts for it.
func (p *puller) fetched(ctx context.Context, m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil { // not from a stream; nothing can be answered
		p.c.cfg.Log.Warn("something else came in the place of a message", "group", p.group, "error", err)
		p.give(1)
		return
	}
	if p.saw != nil {
		p.saw(meta)
	}
	h := &held{msg: m, last: m, seq: meta.Sequence.Stream, time: meta.Timestamp, nth: int(min(meta.NumDelivered, 1<<31-1))}
	p.mu.Lock()
	if old := p.held[h.seq]; old != nil {
		old.last = m
		p.mu.Unlock()
		p.give(1)
		return
	}
	p.held[h.seq] = h
	p.mu.Unlock()
	if ctx.Err() != nil {
		p.giveBack(h)
		return
	}
	p.queue <- h
}

// trouble is since when, and how often in a row, nothing could be fetched.
type trouble struct {
	tries int
	gone  time.Time // zero: the group is there, as far as is known
}

// judge decides what an error of a fetch means; it waits where trying again may help.
func (p *puller) judge(ctx context.Context, t *trouble, err error) error {
	if err == nil || ctx.Err() != nil {
		if t.tries > 0 && err == nil {
			*t = trouble{}
		}
		return nil
	}
	if t.tries++; t.tries == 1 && !errors.Is(err, jetstream.ErrConsumerLeadershipChanged) {
		p.c.cfg.Log.Info("nothing can be fetched; trying again", "stream", p.stream, "group", p.group, "error", err)
	}
	if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, nats.ErrNoResponders) {
		_, err := p.cons.Info(ctx)
		switch {
		case !errors.Is(err, jetstream.ErrConsumerNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound):
			t.gone = time.Time{}
		case t.gone.IsZero():
			t.gone = time.Now()
		case time.Since(t.gone) >= goneAfter:
			return fmt.Errorf("%w: consumer %s of stream %s: %w; call again to make it anew, then it begins at From", ErrGroupRemoved, p.group, p.stream, err)
		}
	}
	sleep(ctx, min(retryMin<<min(t.tries, 8), retryMax))
	return nil
}

// work runs handlers until the queue is closed and none runs any more.
func (p *puller) work(ctx context.Context, fail context.CancelCauseFunc) {
	slots := make(chan struct{}, p.running)
	var handlers sync.WaitGroup
	for h := range p.queue {
		select {
		case slots <- struct{}{}:
			if ctx.Err() == nil {
				handlers.Go(func() {
					defer func() { <-slots }()
					err := p.handle(ctx, h)
					if f := (*failure)(nil); errors.As(err, &f) {
						fail(f)
						p.giveBack(h)
						return
					}
					p.settle(ctx, h, err)
				})
				continue
			}
			<-slots
		case <-ctx.Done():
		}
		p.giveBack(h)
	}
	handlers.Wait()
}
