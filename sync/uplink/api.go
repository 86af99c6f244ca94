package uplink

import (
	"context"
	"log/slog"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Source is the spool as the uplink sees it.
type Source interface {
	// Flows lists what is still held, in sending order: lanes by urgency, in each
	// lane older epochs first.
	Flows() []wire.FlowHeld
	// Read returns the encoded block that holds the lowest sequence ≥ from that is
	// held. The error is io.EOF, or wraps it, if there is none.
	Read(f wire.Flow, from uint64) ([]byte, error)
	// Received tells that the hub has these sequences durably.
	Received(f wire.Flow, set wire.Ranges) error
	// Updates receives a value after commits.
	Updates() <-chan struct{}
}

// Pins are the two durable facts of the session.
type Pins interface {
	HubID() string
	SetHubID(id string) error
	Token() string
	SetToken(t string) error
}

// Metered is the class of a link that is paid for by the byte.
const Metered = "metered"

// Config configures an uplink. Device, Source, Pins and Dialer are required.
type Config struct {
	Device  string
	Version string            // of the agent, for people
	Process string            // random per agent process; "": drawn by New
	Labels  map[string]string // shown in the hub's registry

	Source Source
	Pins   Pins
	Dialer link.Dialer

	// Epoch is the epoch that new messages get, zero before the first; it does not
	// change while Run runs. Every other epoch is reported as drained once the hub
	// has all of it. nil: none ever is.
	Epoch func() wire.Epoch
	// Class is the class of link that is up: Metered, else unmetered. nil: unmetered.
	Class func() string
	// Heartbeat is the agent's state, with the text of what is wrong if something
	// is; version, process, labels, class and interval
	// are filled in here. nil: an empty one.
	Heartbeat func() wire.Heartbeat

	Window     int    // bytes in flight; 0: 32 MiB
	FreshFirst bool   // what is accepted after a session has opened goes ahead of the backlog
	FreshShare int    // percent of a lane's bytes that are its while there is a backlog; 0: 50
	Tuning            // to begin with
	Policy     Policy // what the link may be used for; nil: everything. Kick or Tune after it has changed
	Hooks      Hooks

	// Attached shares the connection with whoever else talks to the hub: it is
	// called when a session is up, with a context that ends when it is down, and is
	// waited for before it is called again and before Run returns. nil: nobody does.
	Attached func(ctx context.Context, c link.Conn)

	Log  *slog.Logger     // nil: discard
	Now  func() time.Time // nil: time.Now
	Rand func() float64   // [0,1), for the jitter; nil: math/rand/v2
}

// Tuning is what can be changed while sessions go on.
type Tuning struct {
	Flush    time.Duration // how long small messages wait for company; urgent ones never
	MaxRate  int64         // bytes a second to which Policy holds, if any: frames are sized by it too
	MaxFrame int           // bytes of a frame; 0: as the link carries
}

// Hooks feed metrics. Each may be nil; they are called from one goroutine and
// must not block. Bytes are those of the messages, without NATS, TLS and TCP.
type Hooks struct {
	Sent        func(bytes int)
	Received    func(bytes int)
	Redelivered func(blocks int)      // sent before, in an earlier session
	Rewound     func(messages uint64) // lost by the hub, and here no longer held
	Transition  func(up bool)
	RTT         func(time.Duration) // from a frame, ping or open request to its answer
}

// fill makes every hook callable.
func (h *Hooks) fill() {
	def := func(f *func(int)) {
		if *f == nil {
			*f = func(int) {}
		}
	}
	def(&h.Sent)
	def(&h.Received)
	def(&h.Redelivered)
	if h.Rewound == nil {
		h.Rewound = func(uint64) {}
	}
	if h.Transition == nil {
		h.Transition = func(bool) {}
	}
	if h.RTT == nil {
		h.RTT = func(time.Duration) {}
	}
}

// Status is a snapshot for people.
type Status struct {
	Up        bool
	Hub       string // address, and instance when known
	Since     time.Time
	RTT       time.Duration
	LastError string // why it is down, or what holds up a lane; empty if all is well

	History []Transition // the last ten, newest first; never changed in place
}

// Transition is one change of the link.
type Transition struct {
	At     time.Time
	Up     bool
	Hub    string // that answered, or that is lost
	Reason string // why it is down, or what kept it down before
}
