package desired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var errDied = errors.New("the instance dies here")

// world is a real JetStream with instances of a hub and a registry of its own.
type world struct {
	t  testing.TB
	s  *store.Store
	nc *nats.Conn

	mu      sync.Mutex
	devices map[string]admin.Device // guarded by mu
	sorted  []string                // nil: devices have changed; guarded by mu
	hidden  map[string]int          // rejected; guarded by mu
	pending int                     // wakes after the one that was waited for
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, devices: map[string]admin.Device{}, hidden: map[string]int{}}
	dir, err := os.MkdirTemp("", "fieldpost-desired") // not TempDir: the server may still write after a shutdown
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.s, err = store.Open(t.Context(), store.Config{Dir: dir, Listen: "127.0.0.1:0", MaxStore: 256 << 20, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.s.Close() })
	w.ensure()
	if w.nc, err = w.s.Connect("devices"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	return w
}

func (w *world) ensure() {
	w.t.Helper()
	if err := w.s.EnsureStreams(w.t.Context(), store.Layout{BlocksMaxBytes: 1 << 20, DeadMaxBytes: 64 << 20, CommandsMaxBytes: 1 << 20}); err != nil {
		w.t.Fatal(err)
	}
}

// instance is one that knows what is set; more changes its configuration.
func (w *world) instance(more ...func(*Config)) *Desired {
	w.t.Helper()
	d, _ := w.start(more...)
	return d
}

// start is instance, with what stops it.
func (w *world) start(more ...func(*Config)) (d *Desired, stop func()) {
	w.t.Helper()
	cfg := Config{Store: w.s, Conn: w.nc, Devices: w, Rejected: func(reason string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.hidden[reason]++
	}}
	for _, fn := range more {
		fn(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Error(err)
			}
		})
	}
	w.t.Cleanup(stop)
	eventually(w.t, "the settings are read", func() bool { return d.ready() == nil })
	return d, stop
}

// device makes a device known, online and with labels such as "site=north kind=press".
func (w *world) device(name, labels string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := map[string]string{}
	for _, l := range strings.Fields(labels) {
		k, v, _ := strings.Cut(l, "=")
		m[k] = v
	}
	if _, ok := w.devices[name]; !ok {
		w.sorted = nil
	}
	w.devices[name] = admin.Device{Device: name, Online: true, Version: "1", Labels: m}
}

func (w *world) Device(name string) (admin.Device, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.devices[name]
	return d, ok
}

// Devices pages like the registry's, with or without a label as the filter.
func (w *world) Devices(after, filter string, limit int) (out admin.Devices) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sorted == nil {
		w.sorted = slices.Sorted(maps.Keys(w.devices))
	}
	k, v, pair := strings.Cut(filter, "=")
	i, found := slices.BinarySearch(w.sorted, after)
	if found {
		i++
	}
	for _, name := range w.sorted[i:] {
		d := w.devices[name]
		if has, ok := d.Labels[k]; pair && (!ok || has != v) {
			continue
		}
		if len(out.Devices) == limit {
			out.Next = out.Devices[limit-1].Device
			break
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

func target(s string) Target {
	if k, v, ok := strings.Cut(s, "="); ok {
		return Target{Key: k, Value: v}
	}
	return Target{Device: s}
}

// set replaces, and waits until the others know.
func (w *world) set(d *Desired, of, doc string, others ...*Desired) admin.DesiredDocument {
	w.t.Helper()
	return w.change(d, Change{Target: target(of), Document: []byte(doc), By: "tester"}, others...)
}

func (w *world) remove(d *Desired, of string, others ...*Desired) {
	w.t.Helper()
	w.change(d, Change{Target: target(of), Remove: true}, others...)
}

func (w *world) change(d *Desired, c Change, others ...*Desired) admin.DesiredDocument {
	w.t.Helper()
	out, err := d.Set(w.t.Context(), c)
	if err != nil {
		w.t.Fatalf("set %s: %v", c.Target, err)
	}
	for _, o := range others {
		eventually(w.t, "others know", func() bool { return o.upTo() >= out.Revision })
	}
	return out
}

// agent is a device that takes what it is given.
type agent struct {
	w    *world
	name string
	rep  wire.DesiredReport
	doc  string
}

func (w *world) agent(name string) *agent { return &agent{w: w, name: name} }

// ask returns whether another document came; it is in effect then.
func (a *agent) ask(d *Desired) bool {
	a.w.t.Helper()
	got, err := d.Answer(a.w.t.Context(), a.name, &a.rep)
	if err != nil {
		a.w.t.Fatal(err)
	}
	if got == nil {
		return false
	}
	if len(got.Version) > 64 || got.Version == a.rep.Version {
		a.w.t.Errorf("version %q after %q", got.Version, a.rep.Version)
	}
	a.rep, a.doc = wire.DesiredReport{Version: got.Version, State: wire.DesiredApplied}, string(got.Document)
	return true
}

func (a *agent) wants(d *Desired, doc string) {
	a.w.t.Helper()
	a.ask(d)
	if a.doc != doc {
		a.w.t.Errorf("%s has %s, want %s", a.name, a.doc, doc)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in a minute: %s", what)
		}
	}
}

func key(n int) string { return fmt.Sprintf("d%05d", n) }
