package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// BatchConfig says what a group reads of the ledger, BLOCKS.
type BatchConfig struct {
	Group string // A-Z a-z 0-9 _ -
	// Filter is on the publisher's subjects: sensors.>. Empty is everything. A
	// block in which nothing matches is not decompressed.
	Filter      string
	Devices     []string      // by name; none: all
	AckWait     time.Duration // as in ConsumerConfig; 0: 30 s
	MaxDeliver  int           // of a block; as in ConsumerConfig; 0: 10
	MaxInFlight int           // blocks handled at a time; at least 8 wait behind them, each at most as large as max_payload. 0: 2
	From        From          // of a new group; one that exists goes on where it is
	Backoff     []time.Duration

	// OnBroken, if set, is told of every block that cannot be decoded; it is
	// terminated, and logged as an error. It must be safe for concurrent use.
	OnBroken func(Broken)
	// OnLost, if set, is told of blocks that left the ledger before the group had
	// read them. It must be safe for concurrent use.
	OnLost func(Lost)
}

// Broken is a block that cannot be decoded.
type Broken struct {
	Subject   string // fp.blocks.<device>.<epoch>.<lane>
	StreamSeq uint64
	Err       error
}

// Lost is a range of the ledger that was purged before the group had read it. It
// is what is known, and no exact count of messages: a sequence of the ledger may
// be a block, a piece of one, a void or a mark, of any device and with any
// subjects. What went while no process of the group ran is told from a note that
// is a minute old at most, so that after a crash some of it may have been read;
// while it runs, a purge that overtakes the group is found only if one process
// reads all devices alone.
type Lost struct{ First, Last uint64 }

func (cfg *BatchConfig) fill() (*group, error) {
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = 2
	}
	same := ConsumerConfig{
		Group: cfg.Group, Filter: cfg.Filter, AckWait: cfg.AckWait, MaxDeliver: cfg.MaxDeliver, MaxInFlight: cfg.MaxInFlight, Backoff: cfg.Backoff,
	}
	if err := same.fill(); err != nil {
		return nil, err
	}
	cfg.Filter, cfg.AckWait, cfg.MaxDeliver, cfg.Backoff = same.Filter, same.AckWait, same.MaxDeliver, same.Backoff
	g := &group{stream: blocksStream, name: cfg.Group, from: cfg.From, ackWait: cfg.AckWait, maxDeliver: cfg.MaxDeliver}
	if len(cfg.Devices) > maxFilters {
		return nil, fmt.Errorf("hub/client: Devices names %d; the limit is %d: leave it empty and choose in the handler", len(cfg.Devices), maxFilters)
	}
	for _, d := range cfg.Devices {
		if err := wire.CheckDevice(d); err != nil {
			return nil, fmt.Errorf("hub/client: Devices: %w", err)
		}
		g.filters = append(g.filters, "fp.blocks."+d+".*.*")
	}
	slices.Sort(g.filters)
	g.filters = slices.Compact(g.filters)
	return g, nil
}

// Batch is a block of the ledger: messages of one device, epoch and lane that
// arrived together. It is valid until its handler returns.
type Batch struct {
	Device      string
	Epoch, Lane string
	First, Last uint64 // sequences that the block covers
	Backfill    bool   // newer messages of the lane came before it
	StreamSeq   uint64 // in BLOCKS, of its last piece
	Stored      time.Time
	Deliveries  int // of this block to the group, from 1

	block *wire.Block
	match map[string]bool // by subject; nil: everything matches
}

// Messages iterates over the messages that match, in the device's order; those
// that were removed on the device are left out (dead.gap.<device> tells). The
// message that it yields, with all that it points to, is valid until the next.
func (b *Batch) Messages() iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		m := new(Message)
		for i := range b.block.Messages {
			in := &b.block.Messages[i]
			if in.Blank != 0 || b.match != nil && !b.match[in.Subject] {
				continue
			}
			*m = Message{
				Device: b.Device, Subject: in.Subject, Payload: in.Payload, Header: header(in.Headers), ID: in.ID,
				Epoch: b.Epoch, Lane: b.Lane, Seq: b.First + uint64(i), Time: time.UnixMilli(in.Time).UTC(),
				Unsynced: in.Unsynced, Backfill: b.Backfill,
				Stream: blocksStream, StreamSeq: b.StreamSeq, Stored: b.Stored, Deliveries: b.Deliveries,
			}
			if !yield(m) {
				return
			}
		}
	}
}

func header(pairs []wire.Pair) nats.Header {
	if len(pairs) == 0 {
		return nil
	}
	h := make(nats.Header, len(pairs))
	for _, p := range pairs {
		h[p.Key] = append(h[p.Key], p.Value)
	}
	return h
}

// BatchHandler handles a block. What it returns decides about the whole block,
// as with Handler.
type BatchHandler func(ctx context.Context, b *Batch) error

// ConsumeBatch hands the blocks of the ledger to handler, as Consume does with
// messages. It costs a fraction of that, needs no route that is unpacked, and a
// block leaves the ledger blocks.retain after it came, read or not: OnLost tells
// what is known of that. A block that a newer hub has written ends it with an
// error that wraps wire.ErrVersion.
func (c *Client) ConsumeBatch(ctx context.Context, cfg BatchConfig, handler BatchHandler) error {
	if handler == nil {
		return errors.New("hub/client: ConsumeBatch without a handler")
	}
	g, err := cfg.fill()
	if err != nil {
		return err
	}
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	stream, cons, err := c.open(ctx, g)
	if err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return err
	}
	r := &reader{c: c, cfg: cfg, handler: handler, get: c.source(blocksStream)}
	r.fence.get = r.get
	r.loss.stream, r.loss.cons, r.loss.every, r.loss.tell = stream, cons, len(g.filters) == 0, r.lost
	if err := c.ask(ctx, r.loss.start); err != nil {
		if ctx.Err() != nil {
			return ended(ctx)
		}
		return err
	}
	noting, over := context.WithCancel(ctx)
	var notes sync.WaitGroup
	notes.Go(func() { r.note(noting) })
	err = (&puller{
		c: c, cons: cons, group: cfg.Group, stream: blocksStream, ackWait: cfg.AckWait, last: cfg.MaxDeliver,
		backoff: cfg.Backoff, running: cfg.MaxInFlight, ahead: max(8, cfg.MaxInFlight), handle: r.handle, saw: r.saw,
	}).run(ctx)
	over()
	notes.Wait()
	if err == nil {
		err = ended(ctx)
	}
	return err
}

// reader is one call of ConsumeBatch.
type reader struct {
	c       *Client
	cfg     BatchConfig
	handler BatchHandler
	get     source
	fence   fence
	dec     decoders
	loss    losses
}

// saw is told of every message in the order in which they come.
func (r *reader) saw(meta *jetstream.MsgMetadata) {
	r.fence.saw(meta.Sequence.Stream)
	r.loss.saw(meta)
}

// note keeps the note of how far the group has come, until ctx ends. Without it
// less is known of losses, and nothing else is amiss.
func (r *reader) note(ctx context.Context) {
	for {
		err := r.loss.run(ctx)
		if err != nil {
			r.c.cfg.Log.Debug("how far the group has come is not noted; trying again", "group", r.cfg.Group, "error", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

func (r *reader) lost(l Lost) {
	r.c.cfg.Log.Error("blocks left the ledger before this group read them; make it faster, or blocks.retain longer",
		"group", r.cfg.Group, "first", l.First, "last", l.Last)
	if r.cfg.OnLost != nil {
		r.cfg.OnLost(l)
	}
}

// handle handles one message of the ledger.
func (r *reader) handle(ctx context.Context, h *held) error {
	msg := h.msg
	hdr := msg.Headers()
	if hdr[hdrMark] != nil || hdr[hdrVoid] != nil {
		return nil
	}
	if err := r.fence.pass(ctx, h.seq); err != nil {
		return fmt.Errorf("%w: %w", errLater, err)
	}
	data, ok, err := wholeBlock(ctx, r.get, h.seq, msg.Subject(), hdr, msg.Data())
	if err == nil && !ok {
		return nil
	}
	if err == nil {
		err = r.block(ctx, h, data)
		var bad *undecodable
		if !errors.As(err, &bad) {
			return err
		}
		err = bad.err
	} else if !errors.Is(err, errParts) {
		return fmt.Errorf("%w: %w", errLater, err)
	}
	if errors.Is(err, wire.ErrVersion) {
		return &failure{fmt.Errorf("hub/client: block %d of %s was written by a newer Fieldpost; upgrade this program: %w", h.seq, msg.Subject(), err)}
	}
	r.c.cfg.Log.Error("a block cannot be decoded; it is terminated", "group", r.cfg.Group, "block", h.seq, "subject", msg.Subject(), "error", err)
	if r.cfg.OnBroken != nil {
		r.cfg.OnBroken(Broken{Subject: msg.Subject(), StreamSeq: h.seq, Err: err})
	}
	return fmt.Errorf("%w: %w", ErrTerminate, err)
}

// undecodable is an error of a block, not of its handler.
type undecodable struct{ err error }

func (u *undecodable) Error() string { return u.err.Error() }

// block hands one block to the handler if anything of it matches.
func (r *reader) block(ctx context.Context, h *held, data []byte) error {
	head, err := wire.ParseHeader(data)
	if err != nil {
		return &undecodable{err}
	}
	device, err := flowOf(h.msg.Subject(), &head)
	if err != nil {
		return &undecodable{err}
	}
	match, any := r.match(head.Subjects)
	if head.Kind != wire.KindMessages || !any {
		return nil
	}
	dec := r.dec.get()
	defer r.dec.put(dec)
	b, err := dec.wire.DecodeTo(&dec.mem, data)
	if err != nil {
		return &undecodable{err}
	}
	return r.handler(ctx, &Batch{
		Device: device, Epoch: b.Epoch.String(), Lane: b.Lane.String(), First: b.First, Last: b.Last(),
		Backfill: h.msg.Headers()[hdrBackfill] != nil, StreamSeq: h.seq, Stored: h.time, Deliveries: h.nth,
		block: b, match: match,
	})
}

// match tells which subjects of a dictionary the filter takes; nil if all are.
func (r *reader) match(subjects []string) (match map[string]bool, any bool) {
	if r.cfg.Filter == "" {
		return nil, len(subjects) > 0
	}
	n := 0
	match = make(map[string]bool, len(subjects))
	for _, s := range subjects {
		if wire.MatchFilter(r.cfg.Filter, s) {
			match[s] = true
			n++
		}
	}
	if n == len(subjects) {
		match = nil
	}
	return match, n > 0
}
