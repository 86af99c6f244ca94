package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	queueGroup = "fieldpost-hub"
	burst      = 512 // events between two ticks, at most
	// What waits between NATS and the receiver is bounded: beyond it NATS drops
	// frames, and their sessions find a gap.
	pendingFrames     = 65_536
	pendingFrameBytes = 128 << 20
	pendingOpens      = 16_384
	pendingOpenBytes  = 32 << 20
)

// Ingest is one hub instance's intake.
type Ingest struct {
	cfg  Config
	send func(subject string, data []byte) error // not kept after the call

	events  chan event
	started chan struct{}  // closed when sessions can be opened
	stopped chan struct{}  // closed when nobody takes events any more
	work    sync.WaitGroup // batches and reads under way

	// Owned by Run.
	core     *uplink.Receiver
	now      time.Time
	replies  map[uint64]string // reply subjects of open requests
	asking   map[uint64]*local // open requests of this process
	locals   map[wire.SessionID]*local
	requests uint64
	reads    []uplink.DoRead // waiting for a place
	reading  int
	buf      []byte
	overrun  int
	report   report
}

// event is one event for the receiver and what the driver remembers of it.
type event struct {
	in    uplink.RecvEvent
	reply string               // of a RecvOpen
	local *local               // of a RecvOpen of this process; else nil
	done  []uplink.LedgerBlock // of a RecvDone
	err   error                // of a RecvDone, for the log
}

// New checks cfg.
func New(cfg Config) (*Ingest, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return newIngest(cfg, cfg.Conn.Publish), nil
}

func newIngest(cfg Config, send func(string, []byte) error) *Ingest {
	return &Ingest{
		cfg: cfg, send: send,
		events: make(chan event, burst), started: make(chan struct{}), stopped: make(chan struct{}),
		core:    uplink.NewReceiver(cfg.Limits),
		replies: map[uint64]string{}, asking: map[uint64]*local{}, locals: map[wire.SessionID]*local{},
		report: report{log: cfg.Log, hooks: cfg.Hooks},
	}
}

// Instance is the name that sessions are told.
func (in *Ingest) Instance() string { return in.cfg.Instance }

// Started is closed when sessions can be opened.
func (in *Ingest) Started() <-chan struct{} { return in.started }

// Run takes blocks in until ctx ends (nil) or the connection is closed. It
// returns when nothing of it runs any more; it can be called once.
func (in *Ingest) Run(ctx context.Context) error {
	closed := in.cfg.Conn.StatusChanged(nats.CLOSED)
	defer in.cfg.Conn.RemoveStatusListener(closed)
	// Batches outlive ctx for a moment, so that what is stored is acked.
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer in.work.Wait()
	defer stopWork()
	defer close(in.stopped)

	frames, opens, err := in.subscribe()
	if err != nil {
		return err
	}
	defer frames.Unsubscribe()
	close(in.started)
	in.cfg.Log.Info("taking blocks in", "instance", in.cfg.Instance)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-closed:
			return errors.New("ingest: the connection was closed")
		case <-ctx.Done():
			opens.Unsubscribe()
			in.stop(work)
			in.cfg.Log.Info("stopped taking blocks in", "instance", in.cfg.Instance)
			return nil
		case ev := <-in.events:
			in.turn(work, &ev)
		case <-timer.C:
			in.turn(work, nil)
			in.checkOverrun(frames)
		}
		timer.Reset(time.Until(in.core.Next()))
	}
}

func (in *Ingest) subscribe() (frames, opens *nats.Subscription, err error) {
	fail := func(err error) (*nats.Subscription, *nats.Subscription, error) {
		if frames != nil {
			frames.Unsubscribe()
		}
		return nil, nil, fmt.Errorf("ingest: subscribe: %w", err)
	}
	nc := in.cfg.Conn
	frames, err = nc.Subscribe(wire.FrameSubject(in.cfg.Instance, "*"), in.onFrame)
	if err == nil {
		err = frames.SetPendingLimits(pendingFrames, pendingFrameBytes)
	}
	if err == nil {
		err = nc.Flush() // an open must not be answered before frames are heard
	}
	if err != nil {
		return fail(err)
	}
	opens, err = nc.QueueSubscribe(wire.OpenSubject("*"), queueGroup, in.onOpen)
	if err == nil {
		err = opens.SetPendingLimits(pendingOpens, pendingOpenBytes)
	}
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		return fail(err)
	}
	return frames, opens, nil
}

// onFrame runs in a goroutine of NATS.
func (in *Ingest) onFrame(m *nats.Msg) {
	in.put(event{in: uplink.RecvFrame{Device: lastToken(m.Subject), Data: m.Data}})
}

// onOpen runs in a goroutine of NATS. The device is what the subject says, which
// its credentials allow; the reply must lie in its inbox, or it could make the
// hub write to another's.
func (in *Ingest) onOpen(m *nats.Msg) {
	device := lastToken(m.Subject)
	bad := ""
	switch {
	case wire.CheckDevice(device) != nil:
		bad = "bad_device"
	case !strings.HasPrefix(m.Reply, wire.InboxPrefix(device)+".") || strings.ContainsAny(m.Reply, "*> \t\r\n"):
		bad = "bad_reply"
	}
	if bad != "" {
		in.put(event{in: uplink.RecvTick{}, reply: bad})
		return
	}
	ev := uplink.RecvOpen{Device: device, Data: m.Data}
	rand.Read(ev.Session[:]) // never fails (crypto/rand, Go 1.24)
	in.put(event{in: ev, reply: m.Reply})
}

func lastToken(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// put hands an event to Run, waiting for a place.
func (in *Ingest) put(ev event) {
	select {
	case in.events <- ev:
	case <-in.stopped:
	}
}

// turn hands over ev, if any, and what else is at hand, then a tick.
func (in *Ingest) turn(work context.Context, ev *event) {
	in.now = time.Now()
	if ev != nil {
		in.handle(work, *ev)
	}
	for range burst {
		select {
		case ev := <-in.events:
			in.handle(work, ev)
			continue
		default:
		}
		break
	}
	in.handle(work, event{in: uplink.RecvTick{}})
}

// handle steps the receiver and does what it asks for.
func (in *Ingest) handle(work context.Context, ev event) {
	switch e := ev.in.(type) {
	case uplink.RecvTick:
		if ev.reply != "" { // a message that was not looked at
			in.report.reject(ev.reply)
			return
		}
	case uplink.RecvOpen:
		in.requests++
		e.Request = in.requests
		if ev.local != nil {
			in.asking[e.Request] = ev.local
		} else {
			in.replies[e.Request] = ev.reply
		}
		ev.in = e
	case uplink.RecvRead:
		in.reading--
		in.startReads(work)
		in.report.read(in.now, ev.err)
	case uplink.RecvDone:
		in.report.batch(in.now, e.Outcome, ev.done, ev.err)
	}
	for _, a := range in.core.Step(in.now, ev.in) {
		in.act(work, a)
	}
}

// checkOverrun counts frames that NATS dropped because they came too fast.
func (in *Ingest) checkOverrun(frames *nats.Subscription) {
	if n, err := frames.Dropped(); err == nil && n > in.overrun {
		for range n - in.overrun {
			in.report.reject("overrun")
		}
		in.overrun = n
	}
}

// stop lets what is on its way be stored and acked, then ends all sessions.
func (in *Ingest) stop(work context.Context) {
	in.now = time.Now()
	in.handle(work, event{in: uplink.RecvStop{}})
	limit := time.NewTimer(in.cfg.StopTimeout)
	defer limit.Stop()
	for late := false; !late && !in.core.Idle(); {
		in.turn(work, nil)
		timer := time.NewTimer(time.Until(in.core.Next()))
		select {
		case ev := <-in.events:
			in.turn(work, &ev)
		case <-timer.C:
		case <-limit.C:
			late = true
		}
		timer.Stop()
	}
	in.turn(work, nil)
	in.handle(work, event{in: uplink.RecvStop{Now: true}})
	in.cfg.Conn.FlushTimeout(time.Second) // best effort: the sessions find out anyway
}
