package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// counts are what the hooks were told.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(k string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[k] += n
}

func (c *counts) get(k string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[k]
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprint(c.n)
}

func (c *counts) hooks() Hooks {
	return Hooks{
		Block:    func(result string, n int) { c.add(result, n) },
		Messages: func(n uint64) { c.add("messages", int(n)) },
		Acked:    func(time.Duration) { c.add("acked", 1) },
		Rejected: func(reason string) { c.add("rejected "+reason, 1) },
		Closed:   func(device string, e wire.Epoch) { c.add("closed "+device+" "+e.String(), 1) },
	}
}

// fakeRegistry remembers.
type fakeRegistry struct{ counts }

func (r *fakeRegistry) Opened(device string, o *wire.Open, _ wire.SessionID) (token, notice string) {
	r.add("opened "+device+" "+o.Process, 1)
	return "token-1", "clone_or_restored_copy"
}
func (r *fakeRegistry) Confirmed(device, token string) { r.add("confirmed "+device+" "+token, 1) }
func (r *fakeRegistry) Ended(device string, _ wire.SessionID, bye bool) {
	r.add(fmt.Sprintf("ended %s %v", device, bye), 1)
}

func TestSession(t *testing.T) {
	url := startNATS(t)
	st, reg, c := newFakeStore(), &fakeRegistry{}, &counts{}
	in := start(t, Config{Conn: connect(t, url), Store: st, Registry: reg, Hooks: c.hooks()})
	f := flow(1, wire.Normal)
	cl := dial(t, connect(t, url), "cam-1", wire.FlowHeld{Flow: f, Base: 1, First: 1, Last: 30})
	switch r := cl.reply; {
	case r.HubID != "hub1", r.Instance != in.Instance(), r.Token != "token-1", r.Notice != "clone_or_restored_copy",
		r.Window != 32<<20, r.MaxPayload != 1<<20-headroom, r.Time == 0:
		t.Errorf("reply %+v", r)
	}
	enc := wire.NewEncoder(wire.Fast)
	cl.send(wire.FrameBlock, block(t, enc, f, 1, 10, 100))
	cl.send(wire.FrameBlock, void(t, f, 11, 20))
	cl.acked(f, 20)
	cl.send(wire.FrameBlock, void(t, f, 1, 5)) // received before
	cl.send(wire.FrameConfirm, []byte("token-1"))
	cl.send(wire.FrameDrained, f.Epoch[:])
	cl.send(wire.FrameBye, nil)

	waitFor(t, func() bool { return reg.get("ended cam-1 true") == 1 })
	for _, want := range []string{"opened cam-1 p-cam-1", "confirmed cam-1 token-1"} {
		if reg.get(want) != 1 {
			t.Errorf("registry was not told: %s; but %v", want, reg.n)
		}
	}
	for k, n := range map[string]int{"stored": 1, "void": 1, "duplicate": 1, "messages": 10, "acked": 2, "closed cam-1 " + f.Epoch.String(): 1} {
		if c.get(k) != n {
			t.Errorf("%s counted %d times, want %d", k, c.get(k), n)
		}
	}
	msgs := st.stored()
	if len(msgs) != 2 {
		t.Fatalf("%d messages in the ledger, want 2", len(msgs))
	}
	for i, want := range []map[string]string{{hdrReceived: "1-10"}, {hdrReceived: "1-20", hdrVoid: "purge"}} {
		got := map[string]string{}
		for k, v := range msgs[i].Header {
			if k != store.GuardSubject {
				got[k] = v[0]
			}
		}
		if !maps.Equal(got, want) || msgs[i].Subject != wire.BlockSubject("cam-1", f) {
			t.Errorf("message %d: %s %v, want %v", i, msgs[i].Subject, got, want)
		}
	}
	if h, err := wire.ParseHeader(msgs[0].Data); err != nil || h.Count != 10 {
		t.Errorf("the block is not stored verbatim: %+v, %v", h, err)
	}
}

// A device must not make the hub write to another's inbox, nor to a service.
func TestReplyOutsideInbox(t *testing.T) {
	url := startNATS(t)
	c := &counts{}
	start(t, Config{Conn: connect(t, url), Store: newFakeStore(), Hooks: c.hooks()})
	nc := connect(t, url)
	spy, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{"_INBOX_cam-2.x", "_INBOX_cam-1", "_INBOX_cam-10.x", "fp.blocks.cam-1.x", "_INBOX_cam-1x.y"}
	for _, reply := range bad {
		if err := nc.PublishRequest(wire.OpenSubject("cam-1"), reply, []byte(`{"protocol":1,"process":"p","order":"fifo"}`)); err != nil {
			t.Fatal(err)
		}
	}
	nc.Publish(wire.OpenSubject("cam-1"), nil) // without a reply
	nc.Publish("fp.open.not~a~device", nil)
	waitFor(t, func() bool { return c.get("rejected bad_reply") == len(bad)+1 && c.get("rejected bad_device") == 1 })
	dial(t, nc, "cam-1") // it still answers, and what it wrote before is here
	for {
		m, err := spy.NextMsg(10 * time.Millisecond)
		if err != nil {
			break
		}
		if slices.Contains(bad, m.Subject) {
			t.Errorf("the hub wrote to %s", m.Subject)
		}
	}
}

// Every labelled step fails once or more: sessions end or wait, the ledger
// stays exact.
func TestFaults(t *testing.T) {
	for _, point := range Points() {
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			t.Parallel() // most of it waits for an agent to notice silence
			url := startNATS(t)
			st := newFakeStore()
			var mu sync.Mutex
			hit := 0
			fault := func(p string) error {
				mu.Lock()
				defer mu.Unlock()
				if p != point {
					return nil
				}
				if hit++; hit%3 == 1 {
					return errors.New("injected")
				}
				return nil
			}
			start(t, Config{Conn: connect(t, url), Store: st, Fault: fault, Limits: uplink.ReceiverConfig{OpenTimeout: time.Second}})
			runUplink(t, url, "cam", map[wire.Flow]uint64{flow(1, wire.Normal): 400, flow(2, wire.Bulk): 100})
			checkLedger(t, st.stored(), map[wire.Flow]uint64{flow(1, wire.Normal): 400, flow(2, wire.Bulk): 100})
			mu.Lock()
			defer mu.Unlock()
			if hit == 0 && point != "end:send" {
				t.Error("never came by")
			}
		})
	}
}

func TestLedgerFailures(t *testing.T) {
	for name, fail := range map[string]func(n int) error{
		"full":    func(n int) error { return sometimes(n, store.ErrFull) },
		"guard":   func(n int) error { return sometimes(n, store.ErrGuard) },
		"unknown": func(n int) error { return sometimes(n, store.ErrUnknownOutcome) },
	} {
		t.Run(name, func(t *testing.T) {
			url := startNATS(t)
			st, c := newFakeStore(), &counts{}
			st.fail = fail
			start(t, Config{Conn: connect(t, url), Store: st, Hooks: c.hooks()})
			want := map[wire.Flow]uint64{flow(1, wire.Normal): 500}
			runUplink(t, url, "cam", want)
			checkLedger(t, st.stored(), want)
			if c.get("failed") == 0 {
				t.Error("nothing was counted as failed")
			}
		})
	}
}

func sometimes(n int, err error) error {
	if n%4 == 1 {
		return fmt.Errorf("injected: %w", err)
	}
	return nil
}

// A hub that stops stores and acks what is on its way, then ends the sessions.
func TestStop(t *testing.T) {
	url := startNATS(t)
	st := newFakeStore()
	st.pause = make(chan struct{})
	in := start(t, Config{Conn: connect(t, url), Store: st})
	f := flow(1, wire.Normal)
	cl := dial(t, connect(t, url), "cam")
	cl.send(wire.FrameBlock, void(t, f, 1, 10))
	cl.send(wire.FramePing, nil)
	cl.next()
	in.cancel()
	waitFor(t, func() bool { return cl.nc.Flush() == nil && in.cfg.Conn.NumSubscriptions() == 1 }) // no more opens
	close(st.pause)
	cl.acked(f, 10)
	if end := cl.ended(); end.Code != wire.CodeStopping {
		t.Errorf("ended with %v", end)
	}
	in.stop(t)
	if n := in.cfg.Conn.NumSubscriptions(); n != 0 {
		t.Errorf("%d subscriptions are left", n)
	}
}

// Run may be cancelled at any moment of its work.
func TestStopRace(t *testing.T) {
	url := startNATS(t)
	for i := range 20 {
		st := newFakeStore()
		in := start(t, Config{Conn: connect(t, url), Store: st})
		cl := dial(t, connect(t, url), "cam")
		f := flow(1, wire.Normal)
		for n := range uint64(50) {
			cl.send(wire.FrameBlock, void(t, f, n+1, n+1))
			if n == uint64(i) {
				go in.cancel()
			}
		}
		if end := cl.ended(); end.Code != wire.CodeStopping && end.Code != wire.CodeIdle {
			t.Errorf("ended with %v", end)
		}
		in.stop(t)
	}
}

func TestConnectionClosed(t *testing.T) {
	nc := connect(t, startNATS(t))
	in, err := New(Config{Conn: nc, Store: newFakeStore(), HubID: "h"})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- in.Run(context.Background()) }()
	<-in.Started()
	nc.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("Run returned no error")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("Run does not return")
	}
}

func TestConfig(t *testing.T) {
	nc := connect(t, startNATS(t))
	for name, cfg := range map[string]Config{
		"no connection": {Store: newFakeStore(), HubID: "h"},
		"no store":      {Conn: nc, HubID: "h"},
		"no hub id":     {Conn: nc, Store: newFakeStore()},
		"instance":      {Conn: nc, Store: newFakeStore(), HubID: "h", Instance: "a.b"},
		"payload":       {Conn: nc, Store: newFakeStore(), HubID: "h", MaxPayload: 4096},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Many devices share batches: a block costs far less than a batch.
func TestManyDevicesShareBatches(t *testing.T) {
	url := startNATS(t)
	st := newFakeStore()
	st.pause = make(chan struct{})
	start(t, Config{Conn: connect(t, url), Store: st})
	nc := connect(t, url)
	f := flow(1, wire.Normal)
	var clients []*client
	for i := range 200 {
		clients = append(clients, dial(t, nc, fmt.Sprintf("d%d", i), wire.FlowHeld{Flow: f, Base: 1, First: 1, Last: 1}))
	}
	for _, c := range clients {
		c.send(wire.FrameBlock, void(t, f, 1, 1))
		c.send(wire.FramePing, nil)
	}
	for _, c := range clients {
		c.next()
	}
	close(st.pause)
	for _, c := range clients {
		c.acked(f, 1)
	}
	if len(st.stored()) != 200 || len(st.batches) > 20 {
		t.Errorf("%d blocks in %d batches", len(st.stored()), len(st.batches))
	}
}

// What the ledger says is not guessed at.
func TestReceivedSet(t *testing.T) {
	for _, h := range []nats.Header{nil, {hdrReceived: {""}}, {hdrReceived: {"5-1"}}, {hdrReceived: {"1-2", "1-3"}}, {"fieldpost-received": {"1-2"}}} {
		if set, err := receivedSet(store.Stored{Header: h}); err == nil {
			t.Errorf("%v gives %s", h, set)
		}
	}
	if set, err := receivedSet(store.Stored{Header: nats.Header{hdrReceived: {"1-2,4-5"}}}); err != nil || set.String() != "1-2,4-5" {
		t.Errorf("%s, %v", set, err)
	}
}
