package agent

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// desiredHub is a hub on a NATS server that opens sessions and speaks of desired
// settings. It acks nothing.
type desiredHub struct {
	t   testing.TB
	url string
	nc  *nats.Conn

	mu      sync.Mutex
	want    *wire.Desired
	mute    string // class of link over which it cannot be reached
	opens   []string
	reports []wire.DesiredReport
}

func newDesiredHub(t testing.TB) *desiredHub {
	t.Helper()
	s, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	h := &desiredHub{t: t, url: s.ClientURL()}
	if h.nc, err = nats.Connect(h.url, nats.NoReconnect()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.nc.Close)
	for subject, fn := range map[string]nats.MsgHandler{"fp.open.*": h.open, "fp.up.*": h.up, "fp.in.>": func(*nats.Msg) {}} {
		if _, err := h.nc.Subscribe(subject, fn); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *desiredHub) open(m *nats.Msg) {
	o, err := wire.ParseOpen(m.Data)
	if err != nil {
		h.t.Errorf("open: %v", err)
		return
	}
	h.mu.Lock()
	h.opens = append(h.opens, o.Class)
	muted := o.Class == h.mute
	h.mu.Unlock()
	if muted {
		return
	}
	id := wire.NewEpoch()
	h.answer(m, wire.OpenReply{Protocol: wire.Protocol, Session: &id, Instance: "i1", HubID: "hub1", MaxPayload: 512 << 10, Window: 1 << 20, Time: 1})
}

func (h *desiredHub) up(m *nats.Msg) {
	if m.Reply == "" {
		return // a heartbeat
	}
	r, err := wire.ParseCommandRequest(m.Data)
	if err != nil || r.Desired == nil {
		h.t.Errorf("request %s: %v", m.Data, err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, *r.Desired)
	reply := wire.CommandReply{Stream: "s", Time: 1}
	if h.want != nil && h.want.Version != r.Desired.Version {
		reply.Desired = h.want
	}
	h.answer(m, reply)
}

func (h *desiredHub) answer(m *nats.Msg, v any) {
	data, err := json.Marshal(v)
	if err == nil {
		err = m.Respond(data)
	}
	if err != nil {
		h.t.Error(err)
	}
}

func (h *desiredHub) set(version, document string) {
	h.t.Helper()
	h.mu.Lock()
	h.want = &wire.Desired{Version: version, Document: json.RawMessage(document)}
	h.mu.Unlock()
	if err := h.nc.Publish(wire.WakeSubject("dev1"), nil); err != nil {
		h.t.Error(err)
	}
}

// last is what the device has reported at last.
func (h *desiredHub) last() wire.DesiredReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.reports) == 0 {
		return wire.DesiredReport{}
	}
	return h.reports[len(h.reports)-1]
}

func (h *desiredHub) numOpens() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.opens)
}

// becomes waits until the device has reported a state of a version.
func (h *desiredHub) becomes(version string, state wire.DesiredState) wire.DesiredReport {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("%s is %s", version, state), func() bool {
		r := h.last()
		return r.Version == version && r.State == state
	})
	return h.last()
}

// withHub runs an agent on a real spool and a real link.
func withHub(t testing.TB, h *desiredHub, change func(*Config)) *world {
	t.Helper()
	w := prepare(t, func(c *Config) {
		c.Hub.URLs = []string{h.url}
		if change != nil {
			change(c)
		}
		withOverlay(c)
	})
	w.store.Close()
	w.a.openStore, w.a.newUplink = w.a.openSpool, w.a.newNATSUplink
	w.run()
	w.eventually("the hub has heard of it", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.reports) > 0 })
	return w
}
