package hub

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestFailedServerStartsAnew: JetStream refuses every write once one has failed;
// with room on the disk the hub starts it anew, at the same address and with all
// that was acked.
func TestFailedServerStartsAnew(t *testing.T) {
	var failed atomic.Bool
	cfg := testConfig(t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "store:failed" && failed.CompareAndSwap(true, false) {
			return syscall.ENOSPC
		}
		return nil
	}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	first := d.block("one", "two")
	d.send(wire.FrameBlock, first)
	d.acked()

	addr := r.Addrs()
	failed.Store(true)
	eventually(t, "everything is opened anew", func() bool { return strings.Count(r.log.String(), "hub is up") == 2 })
	eventually(t, "it is ready", func() bool { code, _ := r.get("/readyz"); return code == http.StatusOK })
	if log := r.log.String(); !strings.Contains(log, "no space left on device") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	if got := r.Addrs(); got != addr {
		t.Errorf("it listens on %v, before on %v", got, addr)
	}

	again := newDevice(r, "press-7")
	again.flow, again.next, again.token = d.flow, d.next, d.token
	again.open()
	if len(again.reply.Received) != 1 || again.reply.Received[0].Ranges.String() != "1-2" {
		t.Errorf("received: %v", again.reply.Received)
	}
	again.send(wire.FrameBlock, first)
	again.send(wire.FrameBlock, again.block("three"))
	again.acked()
	if got := edge(t, r.connect(), "press-7", 3); strings.Join(got, " ") != "one two three" {
		t.Errorf("EDGE holds %q", got)
	}
}

// TestWaitsForTheCluster: the hub is started first, as after a power cut.
func TestWaitsForTheCluster(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	ln.Close()
	r := begin(t, clusterConfig(t, fmt.Sprintf("nats://127.0.0.1:%d", port)))
	eventually(t, "it listens", func() bool { return r.Addrs().HTTP != "" })
	eventually(t, "it says what it waits for", func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "no servers available")
	})
	externalAt(t, port)
	eventually(t, "it is ready", func() bool { code, _ := r.get("/readyz"); return code == http.StatusOK })
}
