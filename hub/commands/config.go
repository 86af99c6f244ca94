package commands

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Devices is the part of the registry that groups are made of.
type Devices interface {
	Devices(after, filter string, limit int) admin.Devices
}

// Letters is where what expired or failed goes.
type Letters interface {
	Command(context.Context, deadletter.LostCommand) error
}

// Desired says what is wanted of a device that asks, and takes in what it reports
// of that; nil: nothing else than it has.
type Desired interface {
	Answer(ctx context.Context, device string, rep *wire.DesiredReport) (*wire.Desired, error)
}

// Config configures Commands. Store, Conn, HubID, Devices and Letters are
// required; the rest has defaults.
type Config struct {
	Store   *store.Store // EnsureStreams has created every stream
	Conn    *nats.Conn   // on which devices ask
	HubID   string
	Devices Devices
	Letters Letters
	Desired Desired // nil: no desired settings

	TTL        time.Duration // of a command that says nothing else; 0: 24 h
	AckWait    time.Duration // of one delivery to a program; 0: 30 s
	MaxDeliver int           // deliveries to programs; 0: 10
	Sweep      time.Duration // between looks for what expired; 0: 5 s

	OnTransition func(to wire.CommandState) // after it is durable
	Rejected     func(reason string)        // of what devices ask and report

	// Fault is called at every labelled step (Points). A returned error takes the
	// place of the step's own. Tests only.
	Fault func(point string) error
	Log   *slog.Logger     // nil: discard
	Now   func() time.Time // nil: time.Now
}

// Points lists the labels that Config.Fault sees: before a command is stored,
// between that and its record, before and after records of reports, of an offer,
// of a final state, and before and after what follows from that.
func Points() []string {
	return []string{
		"commands:send", "commands:sent", "commands:report", "commands:reported", "commands:offer", "commands:offered",
		"commands:change", "commands:changed", "commands:letter", "commands:remove", "commands:removed",
		"commands:clean",
	}
}

// Errors that callers branch on, next to those of store.
var (
	ErrUnknown = errors.New("commands: no such command")
	ErrTaken   = errors.New("commands: the id is that of another device's command")
	ErrOther   = errors.New("commands: the device has had a command of that id with another subject or payload")
	ErrDiffers = errors.New("commands: the id is that of another group")
	ErrLoading = errors.New("commands: the list of devices is still being read")
)

const (
	// MaxTTL leaves a record the time that its command may need.
	MaxTTL = 30 * 24 * time.Hour
	// tries is how often others may get in the way.
	tries = 8
)

// Commands is one hub instance's part in commands. Its methods are safe for
// concurrent use.
type Commands struct {
	cfg Config

	mu     sync.Mutex
	info   store.Info         // of COMMANDS; guarded by mu
	infoAt time.Time          // guarded by mu
	asking map[string]*asking // guarded by mu
	err    error              // why the sweep does not get on; guarded by mu
	// What was written to the bucket since the sweep was woken, and after how much it
	// is woken (0: not known); both guarded by mu.
	written, wakeAfter int

	wake chan struct{} // capacity 1: of the sweep

	listening chan struct{} // closed when the first Run hears devices

	spans []span // owned by Run
	seen  uint64 // last sequence that the sweep has looked at; owned by Run
	of    string // incarnation that both are of; owned by Run

	cleaned uint64 // last sequence of the bucket that was gone through; owned by Run
}

// New checks cfg. Nothing runs before Run.
func New(cfg Config) (*Commands, error) {
	if cfg.Store == nil || cfg.Conn == nil || cfg.HubID == "" || cfg.Devices == nil || cfg.Letters == nil {
		return nil, errors.New("commands: Store, Conn, HubID, Devices or Letters is missing")
	}
	if cfg.TTL == 0 {
		cfg.TTL = 24 * time.Hour
	}
	if cfg.AckWait == 0 {
		cfg.AckWait = 30 * time.Second
	}
	if cfg.MaxDeliver == 0 {
		cfg.MaxDeliver = 10
	}
	if cfg.Sweep == 0 {
		cfg.Sweep = 5 * time.Second
	}
	if cfg.OnTransition == nil {
		cfg.OnTransition = func(wire.CommandState) {}
	}
	if cfg.Rejected == nil {
		cfg.Rejected = func(string) {}
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) error { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Commands{cfg: cfg, asking: map[string]*asking{}, listening: make(chan struct{}), wake: make(chan struct{}, 1)}, nil
}

// Listening is closed when devices are heard: what they ask before is lost, and
// they wait for an answer before they ask again.
func (c *Commands) Listening() <-chan struct{} { return c.listening }

// Err says why what expired is not settled; nil if it is.
func (c *Commands) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// infoFor is how old what is known of COMMANDS may be. If it is made anew
// meanwhile, devices learn that with their next request, and begin anew then.
const infoFor = 2 * time.Second

// stream is COMMANDS as it is, or was a moment ago.
func (c *Commands) stream(ctx context.Context, fresh bool) (store.Info, error) {
	c.mu.Lock()
	info, at := c.info, c.infoAt
	c.mu.Unlock()
	if !fresh && time.Since(at) < infoFor {
		return info, nil
	}
	info, err := c.cfg.Store.Info(ctx, store.Commands)
	if err != nil {
		return info, err
	}
	c.mu.Lock()
	c.info, c.infoAt = info, time.Now()
	c.mu.Unlock()
	return info, nil
}
