package testenv

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// storedWithin waits until EDGE has n messages.
func (w *World) storedWithin(limit time.Duration, n uint64) {
	w.TB.Helper()
	Eventually(w.TB, limit, "EDGE has them", func() error { return w.edgeHolds(n) })
}

// TestNamesComeLater: an agent that boots where no name resolves says so, and
// delivers once its hub's name does; when the name moves to another address, the
// next attempt goes there.
func TestNamesComeLater(t *testing.T) {
	short(t)
	if _, err := verb("unshare", "-rm", "true"); err != nil {
		t.Skip("no mount namespace can be made here: ", err)
	}
	w := NewWorld(t, "")
	hosts, resolv := w.write("hosts", ""), w.write("resolv.conf", "nameserver 127.0.0.9\noptions timeout:1 attempts:1\n") // nobody is there
	a := w.PrepareAgent("press-7", "press-7", "")
	_, port, err := net.SplitHostPort(a.Link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	moved, err := NewProxyAt("127.0.0.2:"+port, w.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moved.Close)
	w.configure(a, "nats://127.0.0.1:", "nats://hub.test:")
	script := fmt.Sprintf("mount --bind %s /etc/hosts && mount --bind %s /etc/resolv.conf && exec \"$@\"", hosts, resolv)
	a.args = append([]string{"unshare", "-rm", "sh", "-c", script, "sh"}, a.args...)
	a.Start()
	w.WaitAgent(a)
	w.publishNoise(a, "nameless", wire.Normal, 5, 400)
	Eventually(t, 30*time.Second, "a reason", func() error {
		s, err := a.Status()
		if err == nil && (s.Link.Up || !strings.Contains(s.Link.LastError, "hub.test")) {
			err = fmt.Errorf("%+v", s.Link)
		}
		return err
	})
	w.write("hosts", "127.0.0.1 hub.test\n")
	w.storedWithin(30*time.Second, 5)
	if n := len(moved.Opened()); n != 0 {
		t.Fatalf("%d connections to the address of later", n)
	}
	w.write("hosts", "127.0.0.2 hub.test\n")
	a.Link.Cut(true)
	w.publishNoise(a, "moved", wire.Normal, 5, 400)
	w.storedWithin(30*time.Second, 10)
	if n := len(moved.Opened()); n == 0 {
		t.Fatal("no connection to the new address")
	}
	if c := w.Settle(20 * time.Second); c.Stored != 10 {
		t.Fatalf("%v", c)
	}
}

// TestSeveralHubs: of two ways to the hub the agent takes the one that is left,
// and the first again when the other goes, ten times.
func TestSeveralHubs(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.PrepareAgent("press-7", "press-7", "")
	other, err := NewProxy(w.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	w.configure(a, "urls: [", fmt.Sprintf("urls: [\"nats://%s\", ", other.Addr()))
	ways := []*Proxy{a.Link, other}
	a.Start()
	w.WaitAgent(a)
	ways[1].Cut(true)
	for i := range 10 {
		open, shut := ways[i%2], ways[1-i%2]
		open.Cut(false)
		before := len(open.Opened())
		if shut.Cut(true); i%3 == 2 { // it takes connections, and says nothing
			shut.Cut(false)
			shut.Hole(Up, true)
			shut.Hole(Down, true)
		}
		w.publishNoise(a, fmt.Sprint("way", i), wire.Normal, 5, 400)
		w.storedWithin(20*time.Second, uint64(5*(i+1)))
		if i > 0 && len(open.Opened()) == before {
			t.Fatalf("turn %d: it came over a way that is shut", i)
		}
		shut.Cut(true)
		shut.Hole(Up, false)
		shut.Hole(Down, false)
	}
	if c := w.Settle(20 * time.Second); c.Stored != 50 {
		t.Fatalf("%v", c)
	}
}

// TestOneBadName: a name that does not resolve does not keep the agent from an
// address that answers.
func TestOneBadName(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.PrepareAgent("press-7", "press-7", "")
	w.configure(a, `urls: [`, `urls: ["nats://hub.invalid:4222", `)
	a.Start()
	w.WaitAgent(a)
	w.publishNoise(a, "first", wire.Normal, 5, 400)
	if c := w.Settle(40 * time.Second); c.Stored != 5 {
		t.Fatalf("%v", c)
	}
}

// TestStartsWithoutNetwork: without any interface the agent takes messages and
// says why they stay; started where there is a network, it delivers them.
func TestStartsWithoutNetwork(t *testing.T) {
	short(t)
	if _, err := verb("unshare", "-rn", "true"); err != nil {
		t.Skip("no network namespace can be made here: ", err)
	}
	w := NewWorld(t, "")
	a := w.PrepareAgent("press-7", "press-7", "")
	args := a.args
	a.args = append([]string{"unshare", "-rn"}, args...)
	a.Start()
	w.WaitAgent(a)
	w.publishNoise(a, "alone", wire.Normal, 20, 400)
	Eventually(t, 20*time.Second, "a reason", func() error {
		s, err := a.Status()
		if err == nil && (s.Link.Up || s.Link.LastError == "") {
			err = fmt.Errorf("%+v", s.Link)
		}
		return err
	})
	a.Kill()
	a.args = args
	a.Start()
	w.WaitAgent(a)
	if c := w.Settle(40 * time.Second); c.Stored != 20 {
		t.Fatalf("%v", c)
	}
}
