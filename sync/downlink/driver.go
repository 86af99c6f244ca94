package downlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Store is the device's memory of commands as the downlink sees it.
type Store interface {
	// Ask is what to say to the hub, in at most limit bytes (0: any number); HubID
	// is filled in here.
	Ask(limit int) wire.CommandRequest
	// Take makes an answer durable. all is false when there was no room for some of
	// its commands; Updates tells when there is.
	Take(asked wire.CommandRequest, r *wire.CommandReply) (all bool, err error)
	// Updates receives a value when there is something to say.
	Updates() <-chan struct{}
}

// Config configures a downlink. Device, Store and HubID are required.
type Config struct {
	Device string
	Store  Store
	HubID  func() string // the pinned hub
	Class  func() string // of the link; nil: unmetered

	Log  *slog.Logger     // nil: discard
	Now  func() time.Time // nil: time.Now
	Rand func() float64   // [0,1), for the jitter; nil: math/rand/v2
}

// Downlink fetches one device's commands.
type Downlink struct {
	cfg    Config
	failed string // what the log was told last; owned by Run
}

// New returns a downlink; Run does its work. It panics if a required part of
// cfg is missing.
func New(cfg Config) *Downlink {
	if wire.CheckDevice(cfg.Device) != nil || cfg.Store == nil || cfg.HubID == nil {
		panic("downlink: Config needs Device, Store and HubID")
	}
	if cfg.Class == nil {
		cfg.Class = func() string { return "" }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	return &Downlink{cfg: cfg}
}

// Run fetches commands over conn until ctx ends, as long as a session; it can be
// called again for the next one.
func (d *Downlink) Run(ctx context.Context, conn link.Conn) {
	woken := make(chan struct{}, 1)
	unsubscribe, err := conn.Subscribe(wire.WakeSubject(d.cfg.Device), func(string, []byte) {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		d.say(ctx, err)
		return // the connection is gone: the next session tries again
	}
	defer unsubscribe()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	c := &core{metered: func() bool { return d.cfg.Class() == uplink.Metered }, rand: d.cfg.Rand}
	outcome := make(chan Event, 1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var ev Event = Woken{}
	for {
		for _, a := range c.Step(d.cfg.Now(), ev) {
			wg.Go(func() { outcome <- d.ask(ctx, conn, a.Timeout) })
		}
		if at := c.Deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(0, at.Sub(d.cfg.Now())))
		}
		select {
		case <-ctx.Done():
			return
		case <-woken:
			ev = Woken{}
		case <-d.cfg.Store.Updates():
			ev = Updated{}
		case ev = <-outcome:
		case <-timer.C:
			ev = Ticked{}
		}
	}
}

// ask is one request. Only one is under way at a time.
func (d *Downlink) ask(ctx context.Context, conn link.Conn, timeout time.Duration) Event {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req := d.cfg.Store.Ask(conn.MaxPayload())
	req.HubID = d.cfg.HubID()
	reply, err := request(ctx, conn, d.cfg.Device, req)
	if err != nil {
		d.say(ctx, err)
		return Failed{Timeout: errors.Is(ctx.Err(), context.DeadlineExceeded)}
	}
	all, err := d.cfg.Store.Take(req, reply)
	if err != nil {
		d.say(ctx, err)
		return Failed{}
	}
	d.say(ctx, nil)
	return Answered{More: reply.More && all && onward(req, reply)}
}

// onward reports whether an answer has led further: else asking again at once
// would get the same.
func onward(req wire.CommandRequest, r *wire.CommandReply) bool {
	return r.Next != req.After || r.Stream != req.Stream || len(r.Noted) > 0
}

func request(ctx context.Context, conn link.Conn, device string, req wire.CommandRequest) (*wire.CommandReply, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("downlink: %w", err)
	}
	answer, err := conn.Request(ctx, wire.UpSubject(device), data)
	if err != nil {
		return nil, err
	}
	reply, err := wire.ParseCommandReply(answer)
	if err != nil {
		return nil, err
	}
	if reply.Error != nil {
		return nil, reply.Error
	}
	return reply, nil
}

// say logs transitions: what is wrong, once, and that it is no longer. A hub
// that does not answer may be older than commands: that is nothing to warn of.
func (d *Downlink) say(ctx context.Context, err error) {
	text := ""
	switch {
	case err == nil:
	case errors.Is(err, link.ErrClosed), errors.Is(err, context.Canceled):
		return // the session has ended
	default:
		text = err.Error()
	}
	switch {
	case text == d.failed:
	case text == "":
		d.cfg.Log.Info("commands: the hub answers")
	case errors.Is(err, link.ErrNoHub), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		d.cfg.Log.Info("commands: the hub does not answer; it may be older than commands, and is asked again rarely", "error", text)
	default:
		d.cfg.Log.Warn("commands: cannot be fetched; this is tried again", "error", text)
	}
	d.failed = text
}
