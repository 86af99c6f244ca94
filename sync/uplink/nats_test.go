package uplink

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// natsHub puts a fakeHub behind a real NATS server.
type natsHub struct {
	*fakeHub
	t      testing.TB
	server *server.Server
	port   int
}

func (h *natsHub) start() {
	h.t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: h.port, NoLog: true, NoSigs: true})
	if err != nil {
		h.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		h.t.Fatal("the NATS server does not start")
	}
	h.server, h.port = s, portOf(s)
	nc, err := nats.Connect(s.ClientURL(), nats.NoReconnect())
	if err != nil {
		h.t.Fatal(err)
	}
	nc.Subscribe("fp.open.*", func(m *nats.Msg) {
		o, err := wire.ParseOpen(m.Data)
		if err != nil {
			h.t.Errorf("open: %v", err)
			return
		}
		data, _ := json.Marshal(h.open(o))
		m.Respond(data)
	})
	nc.Subscribe("fp.in.i1.*", func(m *nats.Msg) {
		id, ack, end := h.frame(m.Data)
		to := subjectOf(h.fakeHub, strings.TrimPrefix(m.Subject, "fp.in.i1."), id)
		switch {
		case ack != nil:
			nc.Publish(to, wire.AppendAck(nil, *ack))
		case end != nil:
			nc.Publish(to, wire.AppendEnd(nil, *end))
		}
	})
	nc.Flush()
	h.t.Cleanup(nc.Close)
}

func portOf(s *server.Server) int {
	_, port, _ := strings.Cut(s.Addr().String(), ":")
	return number(port)
}

func (h *natsHub) stop() { h.server.Shutdown(); h.server.WaitForShutdown() }

func startNATSHub(t testing.TB) *natsHub {
	h := &natsHub{fakeHub: newFakeHub(), t: t, port: -1}
	h.start()
	t.Cleanup(h.stop)
	return h
}

// natsUplink runs an uplink over a real link until the test ends.
func natsUplink(t *testing.T, h *natsHub, spool *fakeSpool) *Uplink {
	d, err := link.NewNATS(link.Config{URLs: []string{h.server.ClientURL()}, Device: "d1"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, u: New(Config{Device: "d1", Source: spool, Pins: spool, Dialer: d, Epoch: spool.current})}
	b.run()
	t.Cleanup(b.stop)
	return b.u
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestOverRealNATS(t *testing.T) {
	h, spool := startNATSHub(t), newFakeSpool()
	u := natsUplink(t, h, spool)
	var wg sync.WaitGroup
	for lane := range wire.Lane(wire.NumLanes) {
		wg.Go(func() {
			for range 300 {
				spool.append(lane, 5, 200)
			}
		})
	}
	for range 3 { // the hub's machine reboots while messages flow
		wait(t, "a session", func() bool { return u.Status().Up })
		h.stop()
		wait(t, "the loss of it", func() bool { return !u.Status().Up })
		h.start()
		u.Kick()
	}
	wg.Wait()
	wait(t, "all messages", spool.drained)
	if err := h.check(spool.flows); err != nil {
		t.Error(err)
	}
}

func TestServerWithoutHub(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	defer s.Shutdown()
	u := natsUplink(t, &natsHub{server: s}, newFakeSpool())
	wait(t, "an explanation", func() bool { return strings.Contains(u.Status().LastError, link.ErrNoHub.Error()) })
}

func BenchmarkUplinkOverNATS(b *testing.B) {
	h, spool := startNATSHub(b), newFakeSpool()
	for range b.N {
		spool.append(wire.Normal, 100, 200)
	}
	d, err := link.NewNATS(link.Config{URLs: []string{h.server.ClientURL()}, Device: "d1"})
	if err != nil {
		b.Fatal(err)
	}
	u := New(Config{Device: "d1", Source: spool, Pins: spool, Dialer: d})
	b.ResetTimer()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	wg.Go(func() { u.Run(ctx) })
	for !spool.drained() {
		time.Sleep(100 * time.Microsecond)
	}
	b.ReportMetric(float64(b.N*100)/b.Elapsed().Seconds(), "messages/s")
	b.StopTimer()
	cancel()
	wg.Wait()
}
