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

	mu    sync.Mutex
	class string  // of the link; guarded by mu
	up    uplinks // nil until the spool is open; guarded by mu

	policy   *policy.Policy // of the link; set before the gate opens
	commands *command.Store // the same

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
		cfg: cfg, device: device, started: time.Now(), log: cfg.Log, class: cfg.Link.Class,
		bodies:   newBudget(cfg.Socket.MaxInflight),
		lines:    newBudget(2 * wire.MaxCount),
		frames:   newFrameBudgets(cfg.Socket),
		stopping: make(chan struct{}),
		readers:  make(chan struct{}, maxSpoolReaders),
	}
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
	a.policy, a.commands = a.newPolicy(), a.openCommands(st)
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
	upDone := make(chan error, 1)
	go func() { upDone <- up.Run(upCtx) }()
	a.mu.Lock()
	a.up = up
	a.mu.Unlock()
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

// linkClass is the class of link that is up.
func (a *Agent) linkClass() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.class
}

// setLinkClass holds until restart.
func (a *Agent) setLinkClass(class string) {
	a.mu.Lock()
	changed := a.class != class
	a.class = class
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
