package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeStore is JetStream in memory: atomic batches with real guards.
type fakeStore struct {
	mu       sync.Mutex
	msgs     []store.Stored
	last     map[string]int // index into msgs, by subject
	batches  []int          // their sizes
	fail     func(n int) error
	pause    chan struct{} // not nil: batches wait until it is closed
	answered int
}

func newFakeStore() *fakeStore { return &fakeStore{last: map[string]int{}} }

func (s *fakeStore) PublishBatch(ctx context.Context, msgs []store.Msg) (uint64, error) {
	s.mu.Lock()
	pause := s.pause
	s.mu.Unlock()
	if pause != nil {
		select {
		case <-pause:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered++
	if s.fail != nil {
		if err := s.fail(s.answered); err != nil {
			return 0, err
		}
	}
	for _, m := range msgs {
		want := m.Header.Get(store.GuardSubject)
		if want == "" {
			continue
		}
		have := uint64(0)
		if i, ok := s.last[m.Subject]; ok {
			have = s.msgs[i].Seq
		}
		if want != fmt.Sprint(have) {
			return 0, store.ErrGuard
		}
	}
	for _, m := range msgs {
		s.last[m.Subject] = len(s.msgs)
		s.msgs = append(s.msgs, store.Stored{Subject: m.Subject, Header: m.Header, Data: m.Data, Seq: uint64(len(s.msgs) + 1)})
	}
	s.batches = append(s.batches, len(msgs))
	return uint64(len(s.msgs)), nil
}

func (s *fakeStore) Last(_ context.Context, _, subject string) (store.Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.last[subject]; ok {
		return s.msgs[i], nil
	}
	return store.Stored{}, store.ErrNotFound
}

func (s *fakeStore) stored() []store.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.msgs)
}

// startNATS starts a server without JetStream.
func startNATS(t testing.TB) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server does not start")
	}
	return srv.ClientURL()
}

func connect(t testing.TB, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// running is an Ingest and the way to stop it.
type running struct {
	*Ingest
	cancel context.CancelFunc
	done   chan error
}

// start runs an Ingest and waits until it answers.
func start(t testing.TB, cfg Config) *running {
	t.Helper()
	if cfg.HubID == "" {
		cfg.HubID = "hub1"
	}
	in, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Ingest: in, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- in.Run(ctx) }()
	t.Cleanup(func() { r.stop(t) })
	select {
	case <-in.Started():
	case <-time.After(30 * time.Second):
		t.Fatal("Run does not start")
	}
	return r
}

func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		r.done <- nil
	case <-time.After(30 * time.Second):
		t.Fatal("Run does not return")
	}
}

func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// client is one session, spoken by hand.
type client struct {
	t       testing.TB
	nc      *nats.Conn
	device  string
	reply   wire.OpenReply
	counter uint64
	sub     *nats.Subscription
}

func dial(t testing.TB, nc *nats.Conn, device string, flows ...wire.FlowHeld) *client {
	t.Helper()
	return dialAs(t, nc, device, "p-"+device, flows...)
}

func dialAs(t testing.TB, nc *nats.Conn, device, process string, flows ...wire.FlowHeld) *client {
	t.Helper()
	c := &client{t: t, nc: nc, device: device}
	c.reply = c.open(wire.Open{Protocol: wire.Protocol, Process: process, Order: "fifo", Flows: flows})
	if c.reply.Error != nil {
		t.Fatalf("open: %v", c.reply.Error)
	}
	sub, err := nc.SubscribeSync(wire.SessionSubject(device, wire.SessionID(*c.reply.Session)))
	if err != nil {
		t.Fatal(err)
	}
	sub.SetPendingLimits(-1, -1)
	c.sub = sub
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) open(o wire.Open) wire.OpenReply {
	c.t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	inbox := wire.InboxPrefix(c.device) + ".open"
	sub, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		c.t.Fatal(err)
	}
	defer sub.Unsubscribe()
	if err := c.nc.PublishRequest(wire.OpenSubject(c.device), inbox, data); err != nil {
		c.t.Fatal(err)
	}
	m, err := sub.NextMsg(20 * time.Second)
	if err != nil {
		c.t.Fatalf("open %s: %v", c.device, err)
	}
	r, err := wire.ParseOpenReply(m.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return *r
}

func (c *client) send(t wire.FrameType, body []byte) {
	c.t.Helper()
	c.counter++
	data := wire.AppendFrame(nil, wire.Frame{Type: t, Session: wire.SessionID(*c.reply.Session), Counter: c.counter, Body: body})
	if err := c.nc.Publish(wire.FrameSubject(c.reply.Instance, c.device), data); err != nil {
		c.t.Fatal(err)
	}
}

// next returns the next message of the hub.
func (c *client) next() (*wire.Ack, *wire.SessionError) {
	c.t.Helper()
	m, err := c.sub.NextMsg(20 * time.Second)
	if err != nil {
		c.t.Fatalf("%s: %v", c.device, err)
	}
	ack, end, err := wire.ParseReply(m.Data)
	if err != nil {
		c.t.Fatal(err)
	}
	return ack, end
}

// acked waits until the flow is received up to last.
func (c *client) acked(f wire.Flow, last uint64) {
	c.t.Helper()
	for {
		ack, end := c.next()
		if end != nil {
			c.t.Fatalf("%s: session ended: %v", c.device, end)
		}
		for _, r := range ack.Flows {
			if r.Flow == f && r.Ranges.Contains(wire.Range{First: 1, Last: last}) {
				return
			}
		}
	}
}

// ended waits for the end of the session.
func (c *client) ended() *wire.SessionError {
	c.t.Helper()
	for {
		if _, end := c.next(); end != nil {
			return end
		}
	}
}

func flow(n byte, l wire.Lane) wire.Flow { return wire.Flow{Epoch: wire.Epoch{n}, Lane: l} }

func void(t testing.TB, f wire.Flow, first, last uint64) []byte {
	t.Helper()
	b, err := wire.AppendVoid(nil, wire.Header{Flow: f, Base: 1, First: first, Count: last - first + 1, Reason: wire.ReasonPurge})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// block encodes messages of about size bytes.
func block(t testing.TB, e *wire.Encoder, f wire.Flow, first, last uint64, size int) []byte {
	t.Helper()
	b := wire.Block{Header: wire.Header{Kind: wire.KindMessages, Flow: f, Base: 1, First: first, Accepted: 1_800_000_000_000}}
	for seq := first; seq <= last; seq++ {
		b.Messages = append(b.Messages, wire.Message{Subject: "s.t", Payload: payload(f, seq, size), Time: 1_800_000_000_000 + int64(seq)})
	}
	out, err := e.Append(nil, &b)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// payload compresses to about half.
func payload(f wire.Flow, seq uint64, size int) []byte {
	out := fmt.Appendf(nil, "%s#%d ", f, seq)
	x := seq*2654435761 + uint64(f.Epoch[0]) + 1
	for len(out) < size {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out = fmt.Appendf(out, "%x", x)
	}
	return out[:max(size, 24)]
}
