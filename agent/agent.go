package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldpost/fieldpost/agent/command"
	"github.com/fieldpost/fieldpost/agent/settings"
	"github.com/fieldpost/fieldpost/sync/policy"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	classUnmetered = "unmetered"
	classMetered   = uplink.Metered

	memoryFirst = "memory-first"
	freshFirst  = "fresh-first"
)

// Agent is one agent process.
type Agent struct {
	cfg     Config
	device  string
	started time.Time
	log     *slog.Logger
	gate    gate
	bodies  *budget // bytes of all bodies and frames
	lines   *budget // messages parsed from NDJSON and not yet answered
	frames  frameBudgets
	taps    taps
	readers chan struct{} // a place for each who looks into the spool
	metrics *agentMetrics

	stopping chan struct{} // closed when the agent begins to stop
	rewound  atomic.Uint64 // messages that a hub has lost, and we no longer hold

	tuned   atomic.Pointer[Settings] // in effect
	retuned chan struct{}            // capacity 1: wakes who waits for a daily budget

	mu     sync.Mutex
	chosen chosenClass // of the link; guarded by mu
	up     uplinks     // nil until the spool is open; guarded by mu

	policy   *policy.Policy  // of the link; set before the gate opens
	commands *command.Store  // the same
	desired  *settings.Store // the same
	exchange *settings.Exchange

	// What the agent is joined from; tests put others here.
	openStore func() (store, error)
	newUplink func(store) (uplinks, error)
}

// uplinks is the uplink as the agent uses it.
type uplinks interface {
	Run(ctx context.Context) error
	Status() uplink.Status
	Kick()
	Await()
	Expect()
	Changed()
	Tune(t uplink.Tuning)
	ResetHub() error
}

// New checks the configuration and finds the device id. Nothing is opened yet.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	device, err := cfg.device()
	if err != nil {
		return nil, err
	}
	a := &Agent{
		cfg: cfg, device: device, started: time.Now(), log: cfg.Log,
		bodies:   newBudget(cfg.Socket.MaxInflight),
		lines:    newBudget(2 * wire.MaxCount),
		frames:   newFrameBudgets(cfg.Socket),
		stopping: make(chan struct{}),
		readers:  make(chan struct{}, maxSpoolReaders),
		retuned:  make(chan struct{}, 1),
	}
	a.tuned.Store(cfg.settings())
	a.gate.idle = make(chan struct{})
	a.metrics = newMetrics(a)
	a.openStore, a.newUplink = a.openSpool, a.newNATSUplink
	return a, nil
}

// Device is the id under which the hub knows this agent.
func (a *Agent) Device() string { return a.device }

// Run serves until ctx ends, then finishes what was accepted and returns nil. It
// can be called once.
func (a *Agent) Run(ctx context.Context) (err error) {
	ln, err := listen(a.cfg.Socket, a.log)
	if err != nil {
		return err
	}
	srv := newServer(a, ln)
	srv.start()
	runErr := a.runStore(ctx)
	// The socket goes last: until the spool is closed it answers "stopping".
	stopCtx, cancel := context.WithTimeout(context.Background(), a.cfg.StopTimeout)
	defer cancel()
	srv.shutdown(stopCtx)
	a.log.Info("stopped", "device", a.device)
	return runErr
}

// runStore opens the spool, runs the uplink on it until ctx ends or something
// that cannot go on fails, and closes it when what was accepted is answered.
func (a *Agent) runStore(ctx context.Context) error {
	began := time.Now()
	st, err := a.openStore()
	if err != nil {
		a.stop()
		return err
	}
	a.commands = a.openCommands(st)
	a.openDesired()
	a.policy = a.newPolicy()
	up, err := a.newUplink(st)
	if err != nil {
		a.stop()
		return errors.Join(err, a.commands.Close(), st.Close())
	}
	upCtx, cancel := context.WithCancel(context.Background())
	defer cancel()
	usageCtx, keepNoMore := context.WithCancel(context.Background())
	var keeper sync.WaitGroup
	keeper.Go(func() { a.keepUsage(usageCtx) })
	keeper.Go(func() { a.commands.Run(usageCtx) })
	keeper.Go(func() { a.desired.Run(usageCtx) })
	keeper.Go(func() { a.exchange.Run(usageCtx) })
	a.mu.Lock()
	a.up = up
	a.mu.Unlock()
	upDone := make(chan error, 1)
	go func() { upDone <- up.Run(upCtx) }()
	a.gate.open(st)
	a.log.Info("ready", "device", a.device, "socket", a.cfg.Socket.Path, "after", time.Since(began).Round(time.Millisecond))

	var runErr error
	upEnded := false
	select {
	case <-ctx.Done():
	case err := <-upDone:
		upEnded = true
		runErr = fmt.Errorf("agent: the uplink ended: %w", err)
	}
	a.stop()
	patience := time.NewTimer(a.cfg.StopTimeout)
	defer patience.Stop()
	select {
	case <-a.gate.idle:
	case <-patience.C:
		a.log.Error("stopping although publishes are not answered yet: the spool does not get on", "waited", a.cfg.StopTimeout)
	}
	cancel()
	if !upEnded {
		if err := <-upDone; err != nil && !errors.Is(err, context.Canceled) {
			runErr = errors.Join(runErr, err)
		}
	}
	keepNoMore() // when the uplink has ended and before the folder is free: all that was sent is kept
	keeper.Wait()
	return errors.Join(runErr, a.commands.Close(), st.Close())
}

// stop refuses new work and tells everyone who waits to come to an end.
func (a *Agent) stop() {
	a.log.Info("stopping: finishing what was accepted")
	a.gate.stop()
	close(a.stopping)
}

// chosenClass is what a person has set. It holds until restart, and over the
// class that the settings had then: another one there is news that counts more.
type chosenClass struct{ class, over string }

// linkClass is the class of link that is up.
func (a *Agent) linkClass() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.classOver(a.tuned.Load().Link.Class)
}

// classOver is the class with settings that name one; mu is held.
func (a *Agent) classOver(class string) string {
	if a.chosen.class != "" && a.chosen.over == class {
		return a.chosen.class
	}
	return class
}

// setLinkClass holds until restart, or until the settings name another class.
func (a *Agent) setLinkClass(class string) {
	a.mu.Lock()
	over := a.tuned.Load().Link.Class
	changed := a.classOver(over) != class
	a.chosen = chosenClass{class, over}
	up := a.up
	a.mu.Unlock()
	if up != nil {
		up.Changed()
		up.Kick() // whoever tells the class has just seen a link come up
	}
	if changed {
		a.log.Info("link class set", "class", class)
	}
}

func (a *Agent) uplink() uplinks {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.up
}
