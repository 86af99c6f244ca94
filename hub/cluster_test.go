package hub

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// external is a NATS server that is not the hub's own.
func external(t *testing.T) string { return externalAt(t, -1) }

func externalAt(t *testing.T, port int) string {
	t.Helper()
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxStore: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	return srv.ClientURL()
}

// clusterConfig is one hub instance on an external server.
func clusterConfig(t *testing.T, url string) Config {
	cfg := testConfig(t.TempDir())
	cfg.NATS = NATS{URLs: []string{url}, MaxStore: Size{Bytes: 256 << 20}}
	return cfg
}

func TestSharesOfAClusterNeedASize(t *testing.T) {
	cfg := clusterConfig(t, external(t))
	cfg.NATS.MaxStore = Size{}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nats.max_store: ") {
		t.Errorf("shares of nothing: %v", err)
	}
}

// TestLeavesAServerThatTakesNoWrites: a NATS server that is cut off from its peers
// goes on to take clients, which wait for answers for ever. Here one server has two
// addresses, and writes fail at the first.
func TestLeavesAServerThatTakesNoWrites(t *testing.T) {
	first := external(t)
	second := strings.Replace(first, "127.0.0.1", "localhost", 1)
	cfg := clusterConfig(t, first)
	cfg.NATS.URLs = append(cfg.NATS.URLs, second)
	var r atomic.Pointer[running]
	var cut atomic.Value
	cfg.Fault = func(point string) error {
		if r := r.Load(); point == "probe:write" && r != nil && r.open.Load().conn.ConnectedUrl() == cut.Load() {
			return errors.New("no answer")
		}
		return nil
	}
	run := start(t, cfg, func(h *Hub) { h.probeEvery = 100 * time.Millisecond })
	was := run.open.Load().conn.ConnectedUrl() // either: clients choose at random
	cut.Store(was)
	r.Store(run)
	conns := []*nats.Conn{run.open.Load().conn, run.open.Load().frames}
	eventually(t, "every connection is at the other one", func() bool {
		for _, nc := range conns {
			if now := nc.ConnectedUrl(); now == "" || now == was {
				return false
			}
		}
		return true
	})
	d := newDevice(run, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
}

// Two instances share one cluster: a device goes from one to the other, and
// both know it.
func TestTwoInstances(t *testing.T) {
	url := external(t)
	a, b := start(t, clusterConfig(t, url)), start(t, clusterConfig(t, url))
	sa, err := a.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sb, err := b.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sa.HubID != sb.HubID || sa.Instance == sb.Instance || a.Addrs().NATS != url {
		t.Errorf("instances: %+v and %+v at %s", sa, sb, a.Addrs().NATS)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	d := newDeviceAt(t, nc, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one", "two"))
	d.acked()
	d.beat(60)
	for _, r := range []*running{a, b} {
		eventually(t, "every instance shows the device", func() bool {
			got, err := r.admin().Device(t.Context(), "press-7")
			return err == nil && got.Online && got.Instance == d.reply.Instance && got.Backlog["normal"].Messages == 12
		})
	}
	serving, other := a, b
	if d.reply.Instance == b.instance {
		serving, other = b, a
	}
	serving.stop()
	if code := d.ended(); code != wire.CodeStopping {
		t.Errorf("session ended with %s", code)
	}
	d.open()
	if d.reply.Instance != other.instance || d.reply.Notice != "" {
		t.Errorf("the other instance: %+v", d.reply)
	}
	d.send(wire.FrameBlock, d.block("three"))
	d.acked()
	if got := edge(t, nc, "press-7", 3); strings.Join(got, " ") != "one two three" {
		t.Errorf("EDGE holds %q", got)
	}
	page, err := other.admin().Devices(t.Context(), admin.DeviceQuery{Filter: "state=online"})
	if err != nil || page.Total != 1 || page.Devices[0].Instance != other.instance {
		t.Errorf("devices: %+v %v", page, err)
	}
}
