package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/commands"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/desired"
	"github.com/fieldpost/fieldpost/hub/ingest"
	"github.com/fieldpost/fieldpost/hub/registry"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/hub/webhook"
)

// Hub is one hub instance.
type Hub struct {
	cfg      Config // with defaults
	instance string // random, new with every process
	started  time.Time
	metrics  *hubMetrics
	workers  *workers
	tails    chan struct{} // a place for each client that follows
	groups   int           // maxGroups
	imports  chan struct{} // a place for each file that is imported
	deads    chan struct{} // a place for each request that goes through DEAD
	waits    chan struct{} // a place for each request that waits for a command
	traces   chan struct{} // a place for each message that is traced

	probeEvery time.Duration

	ran      atomic.Bool
	stopping atomic.Bool
	open     atomic.Pointer[parts] // nil before everything is open and after the stop
	ready    chan struct{}         // closed when sessions can be opened for the first time
	isReady  sync.Once             // closes ready
	addrs    atomic.Pointer[Addrs]
	listen   string // of the embedded server: with the port that it was given; owned by Run

	reopening atomic.Pointer[error] // why everything is opened anew, if it is
}

// Addrs is where the hub listens.
type Addrs struct {
	NATS string // host:port of the embedded server, or the cluster's URLs
	HTTP string // host:port
}

// New checks cfg. Nothing is opened before Run.
func New(cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	h := &Hub{
		cfg: cfg, instance: newInstance(), started: cfg.Now().UTC(), metrics: newMetrics(cfg),
		tails: make(chan struct{}, maxTails), groups: maxGroups, imports: make(chan struct{}, maxImports),
		deads: make(chan struct{}, maxDeads), waits: make(chan struct{}, maxWaits), traces: make(chan struct{}, maxTraces), ready: make(chan struct{}),
		probeEvery: probeEvery,
	}
	h.workers, h.listen = newWorkers(h), cfg.NATS.Listen
	return h, nil
}

// newInstance draws a name: short, as it travels with every frame of every
// device; two of a cluster's instances draw the same in one of a million pairs.
func newInstance() string {
	return strings.ToLower(rand.Text()[:4]) // base32: 20 random bits
}

// Ready is closed when the hub takes sessions.
func (h *Hub) Ready() <-chan struct{} { return h.ready }

// Addrs is complete once Ready is closed.
func (h *Hub) Addrs() Addrs {
	if a := h.addrs.Load(); a != nil {
		return *a
	}
	return Addrs{}
}

// Run serves until ctx ends (nil) or something fails that cannot be mended
// from inside. It can be called once.
func (h *Hub) Run(ctx context.Context) error {
	if h.ran.Swap(true) {
		return errors.New("hub: Run was called before; make a new Hub")
	}
	ln, err := listen(h.cfg.HTTP.Listen)
	if err != nil {
		return err
	}
	h.addrs.Store(&Addrs{HTTP: ln.Addr().String()})
	// HTTP answers first and last: whoever watches sees the start and the stop.
	serving, stopHTTP := context.WithCancel(context.WithoutCancel(ctx))
	ctx, fail := context.WithCancelCause(ctx)
	served := make(chan error, 1)
	go func() {
		err := h.serveHTTP(serving, ln)
		fail(err)
		served <- err
	}()
	err = h.keepOpen(ctx)
	h.cfg.Log.Info("hub stopped", "instance", h.instance)
	stopHTTP()
	if e := <-served; err == nil {
		err = e
	}
	return err
}

// work opens the parts, runs them and closes them. It reports whether they could
// be opened.
func (h *Hub) work(ctx context.Context) (opened bool, err error) {
	p, err := h.openParts(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return false, nil // stopped while starting; what that broke does not matter
		}
		return false, err
	}
	defer p.close()
	addr := natsAddr(p.store)
	h.addrs.Store(&Addrs{HTTP: h.Addrs().HTTP, NATS: addr})
	if p.store.Server() != nil {
		h.listen = addr // agents and back ends come back to where it was
	}
	h.open.Store(p)
	defer h.open.Store(nil)
	return true, h.workers.run(ctx, p.stages(), p.close)
}

// notReady says why the hub does not do all of its work; empty if it does.
func (h *Hub) notReady(ctx context.Context) []string {
	p := h.open.Load()
	switch {
	case h.stopping.Load():
		return []string{"the hub is stopping"}
	case p == nil && h.reopening.Load() != nil:
		return []string{"the hub's streams are not open: " + (*h.reopening.Load()).Error()}
	case p == nil:
		return []string{"the hub is starting"}
	}
	select {
	case <-p.ingest.Started():
	default:
		return []string{"the hub is starting"}
	}
	return append(p.monitor.reasons(ctx), h.workers.reasons()...)
}

// parts is what Run opens.
type parts struct {
	hub      *Hub
	store    *store.Store
	layout   store.Layout
	hubID    string
	conn     *nats.Conn // of the registry and the HTTP API
	js       jetstream.JetStream
	registry *registry.Registry
	unpack   *unpack.Unpacker
	webhooks *webhook.Runner
	dead     *deadletter.Letters
	commands *commands.Commands
	desired  *desired.Desired
	frames   *nats.Conn // of ingest
	ingest   *ingest.Ingest
	monitor  *monitor
}

func (h *Hub) openParts(ctx context.Context) (_ *parts, err error) {
	p := &parts{hub: h}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if err := p.openStore(ctx); err != nil {
		return nil, err
	}
	if p.conn, err = p.store.Connect("fieldpost-hub " + h.instance); err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(p.conn); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	devices, err := p.js.KeyValue(ctx, store.DevicesBucket)
	if err != nil {
		return nil, fmt.Errorf("hub: bucket %s: %w", store.DevicesBucket, err)
	}
	p.registry, err = registry.Open(ctx, registry.Config{
		Bucket: devices, Instance: h.instance, Interest: p.interest(),
		Rejected: func(reason string) { h.metrics.rejected(reason).Inc() },
		Log:      h.cfg.Log, Now: h.cfg.Now,
	})
	if err != nil {
		return nil, err
	}
	if err := p.openDesired(); err != nil {
		return nil, err
	}
	if err := p.hear(); err != nil {
		return nil, err
	}
	if err := p.openWork(ctx); err != nil {
		return nil, err
	}
	p.monitor = newMonitor(p)
	return p, nil
}

// openWork makes what moves blocks: unpack first, because ingest tells it of
// epochs that are closed.
func (p *parts) openWork(ctx context.Context) (err error) {
	cfg, m := p.hub.cfg, p.hub.metrics
	p.unpack, err = unpack.New(ctx, unpack.Config{
		Store: p.store, Routes: cfg.table(), Instance: p.hub.instance, Retain: cfg.Blocks.Retain,
		OnMessages: func(stream string, n int) { m.unpacked[stream].Add(n) },
		OnDead:     func(reason string) { m.dead(reason).Inc() },
		Fault:      cfg.Fault, Log: cfg.Log, Now: cfg.Now,
	})
	if err != nil {
		return err
	}
	p.webhooks, err = webhook.New(webhook.Config{
		JetStream: p.js, Hooks: cfg.Webhooks, Log: cfg.Log, Now: cfg.Now,
		OnSent: func(hook, result string, n int) { m.webhook(hook, result).Add(n) },
	})
	if err != nil {
		return err
	}
	if err := p.openDead(); err != nil {
		return err
	}
	if err := p.openCommands(); err != nil {
		return err
	}
	if p.frames, err = p.store.Connect("fieldpost-hub ingest " + p.hub.instance); err != nil {
		return err
	}
	p.ingest, err = ingest.New(ingest.Config{
		Conn: p.frames, Store: p.store, Registry: p.registry, HubID: p.hubID, Instance: p.hub.instance,
		Hooks: m.ingestHooks(p.unpack.CloseEpoch), Fault: cfg.Fault, Log: cfg.Log,
	})
	return err
}

func (p *parts) openStore(ctx context.Context) (err error) {
	cfg := p.hub.cfg
	total, limit := cfg.NATS.MaxStore.Bytes, int64(0)
	embedded := len(cfg.NATS.URLs) == 0
	if embedded {
		if err := os.MkdirAll(cfg.DataDir, 0o750); err != nil {
			return &KeyError{Key: "data_dir", Err: err}
		}
		if total, limit, err = p.hub.maxStore(); err != nil {
			return err
		}
	}
	p.store, err = store.Open(ctx, store.Config{
		Dir: cfg.DataDir, Listen: p.hub.listen, MaxStore: limit, AllowRemote: cfg.Auth.Mode == AuthOpen, Protect: routeSubjects(cfg.Routes),
		URLs: cfg.NATS.URLs, Creds: cfg.NATS.Creds, Replicas: cfg.NATS.Replicas, Fault: cfg.Fault, Log: cfg.Log,
	})
	if err != nil {
		return err
	}
	if err := p.store.CheckRestore(ctx); err != nil {
		return err
	}
	l, err := p.hub.layout(ctx, p.store, total)
	if err != nil {
		return err
	}
	if err := p.hub.checkChanges(ctx, p.store, l); err != nil {
		return err
	}
	if err := p.hub.releaseOrphans(ctx, p.store, l); err != nil {
		return err
	}
	if err := p.store.EnsureStreams(ctx, l); err != nil {
		return err
	}
	p.layout = l
	if embedded {
		if err := p.hub.settleMaxStore(total); err != nil {
			return err
		}
	}
	p.hubID, err = p.store.HubID(ctx)
	return err
}

// interest asks the embedded server whether somebody subscribes; nil if there
// is none.
func (p *parts) interest() func(subject string) bool {
	srv := p.store.Server()
	if srv == nil {
		return nil
	}
	return srv.GlobalAccount().SubscriptionInterest
}

// close releases what is open, last opened first. A second call does nothing.
func (p *parts) close() {
	for _, nc := range []*nats.Conn{p.frames, p.conn} {
		if nc != nil {
			nc.Close()
		}
	}
	if p.store != nil {
		p.store.Close() // always nil
	}
}

// stages lists the work in the order in which it stops.
func (p *parts) stages() []stage {
	return []stage{
		{name: "ingest", run: p.takeBlocks},
		{name: "unpack", run: p.unpack.Run, again: true},
		{name: "webhooks", run: p.webhooks.Run},
		{name: "commands", run: p.commands.Run, again: true},
		{name: "desired settings", run: p.desired.Run, again: true},
		{name: "dead letters", run: p.dead.Run, again: true},
		{name: "registry", run: p.registry.Run, again: true},
		{name: "monitor", run: p.monitor.run, again: true},
		{name: "store", run: p.watchStore},
	}
}

// takeBlocks runs ingest and says when the hub is ready.
func (p *parts) takeBlocks(ctx context.Context) error {
	h := p.hub
	over, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-p.ingest.Started():
			h.isReady.Do(func() { close(h.ready) })
			h.cfg.Log.Info("hub is up", "hub_id", p.hubID, "instance", h.instance, "nats", h.Addrs().NATS, "http", h.Addrs().HTTP, "version", h.cfg.Version)
		case <-over:
		}
	}()
	var err error
	select {
	case <-p.commands.Listening(): // a device asks right after its session has begun
		err = p.ingest.Run(ctx)
	case <-ctx.Done():
	}
	close(over)
	<-told
	return err
}

// hear feeds heartbeats to the registry as long as the connection lives. Every
// instance hears them all: each knows by itself who is online.
func (p *parts) hear() error {
	_, err := p.conn.Subscribe("fp.up.*", func(m *nats.Msg) {
		if m.Reply != "" {
			return // a request for commands
		}
		device := m.Subject[len("fp.up."):]
		p.desired.Around(device, func() { p.registry.Heartbeat(device, m.Data) })
	})
	if err == nil {
		err = p.conn.Flush() // agents send one right after the open
	}
	if err != nil {
		return fmt.Errorf("hub: heartbeats: %w", err)
	}
	return nil
}

// lag is how many blocks a route is behind the ledger; 0 for a packed one.
func (p *parts) lag(route int, ledger uint64) uint64 {
	r := &p.hub.cfg.Routes[route]
	if r.packed() {
		return 0
	}
	return p.unpack.Lag(r.Stream, ledger)
}

// natsAddr is what a person would write into hub.urls, without the scheme.
func natsAddr(s *store.Store) string {
	if u, err := url.Parse(s.ClientURL()); err == nil && s.Server() != nil {
		if host, port, err := net.SplitHostPort(u.Host); err == nil {
			return net.JoinHostPort(host, port)
		}
	}
	return s.ClientURL()
}

// routeSubjects is where only the hub may publish.
func routeSubjects(routes []Route) (out []string) {
	for _, r := range routes {
		if !r.packed() {
			out = append(out, r.Prefix+".>")
		}
	}
	return out
}
