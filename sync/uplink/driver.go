package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Uplink runs one device's sessions with its hub.
type Uplink struct {
	cfg Config

	kick, changed, reset, wait, expect, tuned chan struct{} // capacity 1: wake Run

	mu     sync.Mutex
	status Status // guarded by mu; written by Run
	tuning Tuning // guarded by mu; read by Run
}

// New returns an uplink; Run does its work. It panics if a required part of cfg
// is missing.
func New(cfg Config) *Uplink {
	if cfg.Source == nil || cfg.Pins == nil || cfg.Dialer == nil || wire.CheckDevice(cfg.Device) != nil {
		panic("uplink: Config needs Device, Source, Pins and Dialer")
	}
	cfg.Process = cmp.Or(cfg.Process, wire.NewEpoch().String())
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Class == nil {
		cfg.Class = func() string { return "" }
	}
	if cfg.Heartbeat == nil {
		cfg.Heartbeat = func() wire.Heartbeat { return wire.Heartbeat{} }
	}
	cfg.Hooks.fill()
	return &Uplink{
		cfg:     cfg,
		kick:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		reset:   make(chan struct{}, 1),
		wait:    make(chan struct{}, 1),
		expect:  make(chan struct{}, 1),
		tuned:   make(chan struct{}, 1),
		tuning:  cfg.Tuning,
		status:  Status{Since: cfg.Now()},
	}
}

// Kick retries at once: the host's link has come up. What seems to be open is
// probed.
func (u *Uplink) Kick() { wake(u.kick) }

// Await tells that somebody waits until the hub has what is accepted by now: its
// answer is asked for.
func (u *Uplink) Await() { wake(u.wait) }

// Expect tells that somebody is going to wait for what is accepted next: its
// answer is not left to wait for others.
func (u *Uplink) Expect() { wake(u.expect) }

// Changed sends a heartbeat soon: the agent's state, or the class of its link,
// has changed.
func (u *Uplink) Changed() { wake(u.changed) }

// Tune changes what a session goes on with; Policy is asked again.
func (u *Uplink) Tune(t Tuning) {
	u.mu.Lock()
	u.tuning = t
	u.mu.Unlock()
	wake(u.tuned)
}

func (u *Uplink) tuningNow() Tuning {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tuning
}

// ResetHub forgets the pinned hub: the next one that answers is accepted.
func (u *Uplink) ResetHub() error {
	if err := u.cfg.Pins.SetHubID(""); err != nil {
		return fmt.Errorf("uplink: forget the hub: %w", err)
	}
	wake(u.reset)
	return nil
}

// Status is the current state, for people.
func (u *Uplink) Status() Status {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.status
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run is one call of Run. All of it is owned by that goroutine.
type run struct {
	*Uplink
	sender *Sender
	todo   []Event     // to be stepped before anything else
	conn   *connection // being dialled or up; nil: none
	up     bool        // of the last step
	epoch  wire.Epoch  // of the agent's run; zero before its first message
	quiet  quieter

	arrivals chan arrival // from conn's goroutines, and from those of former ones
	wg       sync.WaitGroup

	timer *time.Timer // for the sender's deadline
	beat  *time.Timer // for the next heartbeat

	fault   *wire.LastError // what last was wrong; nil: nothing yet
	told    bool            // the session's heartbeats told of it
	trouble string          // of the agent, at the last heartbeat

	attached attachment // to the present session
}

// Run sends until ctx ends, then says goodbye to the hub; it returns when
// nothing of it runs any more.
func (u *Uplink) Run(ctx context.Context) error {
	r := &run{
		Uplink: u,
		sender: NewSender(SenderConfig{
			Version: u.cfg.Version, Process: u.cfg.Process, Labels: u.cfg.Labels, Class: u.cfg.Class,
			HubID: u.cfg.Pins.HubID(), Token: u.cfg.Pins.Token(),
			Window: u.cfg.Window, Rand: u.cfg.Rand,
			FreshFirst: u.cfg.FreshFirst, FreshShare: u.cfg.FreshShare, Flush: u.cfg.Flush, Policy: u.cfg.Policy, MaxRate: u.cfg.MaxRate, MaxFrame: u.cfg.MaxFrame,
		}),
		arrivals: make(chan arrival, 64),
		timer:    time.NewTimer(0),
		beat:     time.NewTimer(time.Hour),
		quiet:    quieter{log: u.cfg.Log, now: u.cfg.Now, since: u.cfg.Now()},
	}
	defer r.timer.Stop()
	defer r.beat.Stop()
	r.step(r.list())
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case a := <-r.arrivals:
			r.arrived(a)
		case <-u.cfg.Source.Updates():
			r.step(r.list())
		case <-r.timer.C:
			r.ticked()
		case <-r.beat.C:
			r.heartbeat()
		case <-u.changed:
			r.heartbeat()
		case <-u.wait:
			r.step(Awaited{})
		case <-u.expect:
			r.step(Awaited{Next: true})
		case <-u.tuned:
			r.step(Tuned{u.tuningNow()})
		case <-u.kick:
			r.step(Kicked{})
		case <-u.reset:
			r.step(HubReset{})
		}
	}
	r.step(Stopped{})
	r.detach()
	r.wg.Wait()
	return nil
}

// list is what the spool holds. The epoch is asked for after the flows, so that
// none of those can become the current one later; once there is one it stays.
func (r *run) list() Spooled {
	ev := Spooled{Flows: r.cfg.Source.Flows()}
	if r.cfg.Epoch != nil {
		if r.epoch.IsZero() {
			r.epoch = r.cfg.Epoch()
		}
		ev.Current, ev.Known = r.epoch, true
	}
	return ev
}

// ticked looks at what has arrived first: a hub is not silent whose acks wait.
func (r *run) ticked() {
	for range len(r.arrivals) {
		r.arrived(<-r.arrivals)
	}
	if r.conn != nil && r.conn.link != nil {
		if at := r.conn.link.Progress(); !at.IsZero() {
			r.step(Progressed{at})
		}
	}
	r.step(Ticked{})
}

// arrived takes in an event of the present connection.
func (r *run) arrived(a arrival) {
	if a.conn != r.conn {
		return
	}
	if a.link != nil {
		a.conn.link = a.link
	}
	r.cfg.Hooks.Received(a.bytes)
	if _, gone := a.event.(Unlinked); gone {
		r.conn = nil
	}
	r.step(a.event)
}

// step feeds the sender and does what it asks for, until nothing is left.
func (r *run) step(ev Event) {
	r.todo = append(r.todo, ev)
	for len(r.todo) > 0 {
		ev, r.todo = r.todo[0], r.todo[1:]
		for _, a := range r.sender.Step(r.cfg.Now(), ev) {
			r.do(a)
		}
	}
	r.report()
	if d := r.sender.Deadline(); !d.IsZero() {
		r.timer.Reset(max(d.Sub(r.cfg.Now()), 0))
	}
}

func (r *run) do(a Action) {
	switch a := a.(type) {
	case Dial:
		r.conn = r.dial()
	case Hangup:
		r.conn.hangup()
		r.conn = nil
	case List:
		r.todo = append(r.todo, r.list())
	case SendOpen:
		r.open(a.Open)
	case SendFrame:
		r.send(message{wire.FrameSubject(a.Instance, r.cfg.Device), wire.AppendFrame(nil, a.Frame), len(a.Frame.Body)})
		if a.Frame.Type == wire.FrameBye {
			r.conn.finish()
		}
	case Load:
		data, err := r.cfg.Source.Read(a.Flow, a.From)
		r.todo = append(r.todo, Loaded{a.Flow, a.From, data, err})
	case MarkReceived:
		if err := r.cfg.Source.Received(a.Flow, a.Set); err != nil {
			r.quiet.say("the spool could not take an ack; it is told again", err)
		}
	case PinHub:
		r.pin(a.ID)
	case SaveToken:
		if err := r.cfg.Pins.SetToken(a.Token); err != nil {
			r.quiet.say("the session token is not durable", err)
			return
		}
		r.todo = append(r.todo, TokenSaved(a))
	case Notice:
		r.cfg.Log.Warn("the hub says", "notice", a.Text)
	case Redelivered:
		r.cfg.Hooks.Redelivered(1)
	case Rewound:
		r.cfg.Hooks.Rewound(a.Messages)
		r.quiet.say("the hub has lost messages that it had acked and that are no longer held here", errors.New("hub_rewound"))
	case Sampled:
		r.cfg.Hooks.RTT(a.RTT)
	}
}

func (r *run) pin(id string) {
	if err := r.cfg.Pins.SetHubID(id); err != nil {
		r.quiet.say("the hub's id is not durable", err)
		return
	}
	r.cfg.Log.Info("this is the hub from now on", "hub_id", id)
}

// send hands a message to the connection.
func (r *run) send(m message) {
	r.cfg.Hooks.Sent(len(m.data))
	r.conn.send(m)
}

// report publishes the status and tells of transitions.
func (r *run) report() {
	up, problem := r.sender.Up(), r.sender.Problem()
	st := Status{Up: up, Since: r.status.Since, RTT: r.sender.RTT()}
	if up {
		st.Hub = r.conn.link.Server() + " (" + r.sender.Instance() + ")"
	}
	if problem != nil {
		st.LastError = problem.Error()
	}
	if st.LastError != r.status.LastError {
		r.wrong(st.LastError)
	}
	st.History = r.status.History
	if up != r.up {
		st.Since = r.cfg.Now()
		st.History = remembered(r.status, st)
	}
	r.mu.Lock()
	r.status = st
	r.mu.Unlock()
	r.quiet.link(st)
	if up != r.up {
		r.up = up
		r.cfg.Hooks.Transition(up)
		r.detach()
		if up {
			r.told = false
			r.heartbeat()
			r.attach()
		}
	}
}

// maxHistory is how many transitions are kept.
const maxHistory = 10

// remembered is the history with the transition from was to st.
func remembered(was, st Status) []Transition {
	t := Transition{At: st.Since, Up: st.Up, Hub: st.Hub, Reason: st.LastError}
	if st.Up {
		t.Reason = was.LastError
	} else {
		t.Hub = was.Hub
	}
	return append([]Transition{t}, was.History[:min(len(was.History), maxHistory-1)]...)
}
