package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var errDied = errors.New("the instance dies here")

// world is a real JetStream with instances of a hub.
type world struct {
	t  testing.TB
	s  *store.Store
	nc *nats.Conn // of devices

	mu      sync.Mutex
	ahead   time.Duration             // of the clock; guarded by mu
	counts  map[wire.CommandState]int // guarded by mu
	dieAt   string                    // guarded by mu
	dieNth  int                       // guarded by mu
	died    bool                      // guarded by mu
	devices []admin.Device
}

const maxPending = 100

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, counts: map[wire.CommandState]int{}}
	dir, err := os.MkdirTemp("", "fieldpost-commands") // not TempDir: the server may still write after a shutdown
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
	err := w.s.EnsureStreams(w.t.Context(), store.Layout{BlocksMaxBytes: 1 << 20, DeadMaxBytes: 64 << 20, CommandsMaxBytes: 64 << 20, CommandsMaxPending: maxPending})
	if err != nil {
		w.t.Fatal(err)
	}
}

// instance is one that does not run: tests call what it would do.
func (w *world) instance() *Commands {
	w.t.Helper()
	letters, err := deadletter.New(deadletter.Config{Store: w.s, Streams: []string{"EDGE"}, Fault: w.fault})
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := New(Config{
		Store: w.s, Conn: w.nc, HubID: "hub", Devices: w, Letters: letters, Fault: w.fault, Sweep: 10 * time.Millisecond,
		Now: func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return time.Now().Add(w.ahead) },
		OnTransition: func(to wire.CommandState) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.counts[to]++
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// Devices is the registry: all of them on one page of two.
func (w *world) Devices(after, _ string, _ int) admin.Devices {
	var out admin.Devices
	for _, d := range w.devices {
		if d.Device <= after {
			continue
		}
		if len(out.Devices) == 2 {
			out.Next = out.Devices[1].Device
			break
		}
		out.Devices = append(out.Devices, d)
	}
	return out
}

// fault kills the instance at a point: nothing of it happens after that.
func (w *world) fault(point string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.died {
		return errDied
	}
	if point == w.dieAt {
		if w.dieNth--; w.dieNth == 0 {
			w.died = true
			return errDied
		}
	}
	return nil
}

// kill arranges a death; the next call revives.
func (w *world) kill(point string, nth int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dieAt, w.dieNth, w.died = point, nth, false
}

func (w *world) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

func (w *world) send(c *Commands, device, id string) admin.Command {
	w.t.Helper()
	out, err := c.Send(w.t.Context(), NewCommand{ID: id, Device: device, Subject: "valve.set", Payload: []byte("on " + id), TTL: time.Hour})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// state is what the leader has of a command; pending if only its message is there.
func (w *world) state(device, id string) wire.CommandState {
	w.t.Helper()
	r, err := w.instance().record(w.t.Context(), device, id)
	if errors.Is(err, store.ErrNotFound) {
		if _, err := w.instance().find(w.t.Context(), device, id); err == nil {
			return wire.CommandPending
		}
		return ""
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r.State
}

// left is how many messages a stream holds of a subject.
func (w *world) left(stream, subject string) (n int) {
	w.t.Helper()
	for seq := uint64(1); ; n++ {
		m, err := w.s.Next(w.t.Context(), stream, subject, seq)
		if errors.Is(err, store.ErrNotFound) {
			return n
		}
		if err != nil {
			w.t.Fatal(err)
		}
		seq = m.Seq + 1
	}
}

func (w *world) letters(device string) int { return w.left(store.Dead, "dead.COMMANDS.fp.cmd."+device) }

// device is a device with its memory.
type device struct {
	w       *world
	name    string
	stream  string
	after   uint64
	room    int
	have    map[string]wire.Command
	reports []wire.CommandReport
	cancel  []string
	got     []string // ids as they came, repetitions included
}

func (w *world) device(name string) *device {
	return &device{w: w, name: name, room: 8 << 20, have: map[string]wire.Command{}}
}

// ask asks an instance and does what an agent does with the answer.
func (d *device) ask(c *Commands) wire.CommandReply {
	d.w.t.Helper()
	data, err := json.Marshal(d.request())
	if err != nil {
		d.w.t.Fatal(err)
	}
	reply := c.answer(d.w.t.Context(), d.name, data)
	d.take(reply)
	return reply
}

func (d *device) request() wire.CommandRequest {
	n := min(len(d.reports), wire.MaxCommandReports)
	return wire.CommandRequest{HubID: "hub", Stream: d.stream, After: d.after, Room: d.room, Reports: d.reports[:n]}
}

func (d *device) take(reply wire.CommandReply) {
	d.w.t.Helper()
	if reply.Error != nil {
		return
	}
	data, err := json.Marshal(reply)
	if err != nil {
		d.w.t.Fatal(err)
	}
	if _, err := wire.ParseCommandReply(data); err != nil {
		d.w.t.Fatalf("the reply is not one: %v", err)
	}
	noted := map[string]bool{}
	for _, id := range reply.Noted {
		noted[id] = true
	}
	var rest []wire.CommandReport
	for _, p := range d.reports {
		if !noted[p.ID] {
			rest = append(rest, p)
		}
	}
	d.reports, d.cancel = rest, reply.Cancel
	for _, c := range reply.Commands {
		d.got = append(d.got, c.ID)
		if _, ok := d.have[c.ID]; !ok {
			d.have[c.ID] = c
			d.report(c.ID, wire.CommandDelivered)
		}
	}
	d.stream, d.after = reply.Stream, reply.Next
}

// report adds one, and takes back those of the same command: the last counts.
func (d *device) report(id string, s wire.CommandState) {
	var rest []wire.CommandReport
	for _, p := range d.reports {
		if p.ID != id {
			rest = append(rest, p)
		}
	}
	d.reports = append(rest, wire.CommandReport{ID: id, State: s, At: time.Now().UnixMilli(), Deliveries: 1, Reason: "why", Result: []byte("result")})
}

// until asks until nothing is left to be said.
func (d *device) until(c *Commands) {
	d.w.t.Helper()
	for range 50 {
		if r := d.ask(c); r.Error == nil && !r.More && len(d.reports) == 0 {
			return
		}
	}
	d.w.t.Fatalf("%s: never quiet: %+v", d.name, d.reports)
}

func sweep(t *testing.T, c *Commands) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.sweep(ctx); err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func ids(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}
