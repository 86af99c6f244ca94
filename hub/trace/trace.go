package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Config configures a Tracer. All but Limits and Now are required.
type Config struct {
	Store     *store.Store
	JetStream jetstream.JetStream // for looking through streams
	Unpack    *unpack.Unpacker
	Device    func(device string) (admin.Device, bool) // the registry
	Streams   []Stream                                 // of the routes, each once
	Limits    Limits
	Now       func() time.Time // nil: time.Now
}

// Stream is a route's stream and what its subjects begin with.
type Stream struct{ Name, Prefix string }

// Tracer answers. It is safe for concurrent use.
type Tracer struct{ cfg Config }

// New returns a Tracer.
func New(cfg Config) *Tracer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Limits = cfg.Limits.withDefaults()
	return &Tracer{cfg: cfg}
}

// asked is one answer in the making.
type asked struct {
	t *Tracer
	search
	flow wire.Flow
	out  admin.Trace
}

func (t *Tracer) ask(device string) *asked {
	return &asked{t: t, search: t.search(), out: admin.Trace{Device: device, State: admin.TraceUnknown, Steps: []admin.TraceStep{}}}
}

// Message tells where the message with that number is.
func (t *Tracer) Message(ctx context.Context, device string, f wire.Flow, seq uint64) (admin.Trace, error) {
	a := t.ask(device)
	err := a.message(ctx, f, seq)
	return a.answer(), err
}

func (a *asked) answer() admin.Trace {
	a.out.Searched = a.searched
	return a.out
}

func (a *asked) step(s admin.TraceStep) {
	s.Time = s.Time.UTC()
	a.out.Steps = append(a.out.Steps, s)
}

func (a *asked) message(ctx context.Context, f wire.Flow, seq uint64) error {
	a.flow = f
	a.out.Epoch, a.out.Lane, a.out.Seq = f.Epoch.String(), f.Lane.String(), seq
	r, err := a.t.cfg.Unpack.Received(ctx, a.out.Device, f, seq)
	switch {
	case err != nil:
		return err
	case !r.Has:
		a.notReceived(r)
		return nil
	case r.Block.Seq == 0:
		return a.gone(ctx)
	case r.Err != nil:
		return a.damaged(ctx, r)
	case r.Content.Kind == wire.KindVoid:
		return a.void(ctx, r)
	}
	b := r.Content
	m := &b.Messages[seq-b.First]
	text := fmt.Sprintf("received in block %d, with the messages %s of %s", r.Block.Seq, b.Range(), f)
	a.step(admin.TraceStep{Hop: "ledger", State: "received", Time: r.Block.Time, Stream: store.Blocks, Seq: r.Block.Seq, Block: r.Block.Seq, Text: text})
	if m.Blank != 0 {
		return a.gap(ctx, m.Blank, "its content was removed on the device before the block was sent")
	}
	a.out.Subject, a.out.ID = m.Subject, m.ID
	return a.places(ctx, r.Block, b, int(seq-b.First))
}

// notReceived says what the ledger has of the flow, and what the device says.
func (a *asked) notReceived(r unpack.Received) {
	d, heard := a.t.cfg.Device(a.out.Device)
	current := heard && d.Epoch == a.out.Epoch
	switch {
	case r.Known:
		a.out.State = admin.TraceNotReceived
		a.step(admin.TraceStep{Hop: "ledger", State: "not_received", Stream: store.Blocks, Text: fmt.Sprintf("of %s the ledger has received %s", a.flow, r.Set)})
	case current:
		a.out.State = admin.TraceNotReceived
		a.step(admin.TraceStep{Hop: "ledger", State: "not_received", Stream: store.Blocks, Text: fmt.Sprintf("the ledger has received nothing of %s", a.flow)})
	default:
		a.step(admin.TraceStep{Hop: "ledger", State: "unknown", Stream: store.Blocks, Text: fmt.Sprintf("the ledger knows nothing of %s: either nothing of it was ever received, "+
			"or the device reported the epoch drained more than 30 days ago, or the ledger was made anew since", a.flow)})
	}
	a.backlog(d, heard, current)
}

// backlog says what the device's last heartbeat tells of its spool: how much
// waits, never which messages.
func (a *asked) backlog(d admin.Device, heard, current bool) {
	s := admin.TraceStep{Hop: "device", State: "unknown"}
	l := d.Backlog[a.out.Lane]
	switch {
	case !heard:
		s.Text = fmt.Sprintf("the hub has never heard of device %s", a.out.Device)
	case d.Epoch == "":
		s.Time, s.Text = d.Seen, "the device has not said yet what its spool holds"
	case l.Messages == 0:
		s.Time, s.State = d.Seen, "not_spooled"
		s.Text = fmt.Sprintf("the device said at that time or before that nothing waits in lane %s: the message was accepted later, was removed, or never existed", a.out.Lane)
	default:
		s.Time, s.State = d.Seen, "may_be_spooled"
		s.Text = fmt.Sprintf("the device said at that time or before that %d messages wait in lane %s; whether this is one of them only the device knows (`fieldpost-agent spool list`)", l.Messages, a.out.Lane)
	}
	if heard && !d.Online {
		s.Text += "; it is offline now"
	}
	if heard && !current && d.Epoch != "" {
		s.Text += fmt.Sprintf("; its epoch is %s now, and an older epoch is sent first", d.Epoch)
	}
	a.step(s)
}

// void says that the sequence will never come, and why.
func (a *asked) void(ctx context.Context, r unpack.Received) error {
	b := r.Content
	text := fmt.Sprintf("the device has said, in block %d, that %s will not come", r.Block.Seq, b.Range())
	if r.Older {
		text += "; if the message had been received before, in a block that has left the ledger, that holds instead"
	}
	a.step(admin.TraceStep{Hop: "ledger", State: "gap", Time: r.Block.Time, Stream: store.Blocks, Seq: r.Block.Seq, Block: r.Block.Seq, Reason: b.Reason.String(), Text: text})
	if r.Older {
		if found, err := a.everywhere(ctx); err != nil || found {
			return err
		}
	}
	return a.gap(ctx, b.Reason, "")
}

// gap says that the sequence will not come: in text of the device, if there is
// any, and with the report in DEAD.
func (a *asked) gap(ctx context.Context, why wire.Reason, text string) error {
	a.out.State = admin.TraceGap
	if text != "" {
		a.step(admin.TraceStep{Hop: "device", State: "gap", Reason: why.String(), Text: text})
	}
	return a.gapReport(ctx)
}

// damaged says that the block cannot be decoded.
func (a *asked) damaged(ctx context.Context, r unpack.Received) error {
	a.out.State = admin.TraceDamaged
	s := admin.TraceStep{Hop: "ledger", State: "damaged", Time: r.Block.Time, Stream: store.Blocks, Seq: r.Block.Seq, Block: r.Block.Seq,
		Text: fmt.Sprintf("received in block %d, which cannot be decoded: %v", r.Block.Seq, r.Err)}
	if errors.Is(r.Err, wire.ErrVersion) {
		a.out.State, s.State = admin.TraceWaiting, "received"
		s.Text = fmt.Sprintf("received in block %d, which a newer Fieldpost has written: upgrade this hub, it waits until then", r.Block.Seq)
		a.step(s)
		return nil
	}
	a.step(s)
	return a.poisonLetter(ctx, r.Block)
}

// gone follows a message whose block has left the ledger.
func (a *asked) gone(ctx context.Context) error {
	a.step(admin.TraceStep{Hop: "ledger", State: "received", Stream: store.Blocks,
		Text: "received; its block has left the ledger since (blocks.retain), so its subject and route are not known from there"})
	found, err := a.everywhere(ctx)
	if err != nil || found {
		return err
	}
	if found, err = a.gapIn(ctx); err != nil || found {
		return err
	}
	if a.incomplete() {
		a.step(admin.TraceStep{Hop: "stream", State: "unknown", Text: "it is not in what was searched of the streams; older parts were not looked through"})
		return nil
	}
	a.out.State = admin.TraceRemoved
	a.step(admin.TraceStep{Hop: "stream", State: "removed", Text: "it is in none of the routes' streams: they have let it go (max_age, max_bytes, a purge), or no route unpacked it"})
	return nil
}
