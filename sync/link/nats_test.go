package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startServer runs a NATS server on a free port of the loopback.
func startServer(t *testing.T, opts server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.NoLog, opts.NoSigs = "127.0.0.1", true, true
	if opts.Port == 0 {
		opts.Port = -1
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not start")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func newDialer(t *testing.T, cfg Config) *NATS {
	t.Helper()
	cfg.Device = "d1"
	d, err := NewNATS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func dial(t *testing.T, d *NATS) Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := d.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// hubClient is a plain client, as a hub would be.
func hubClient(t *testing.T, s *server.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// wait is until cond holds.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

func TestMessagesInOrder(t *testing.T) {
	s := startServer(t, server.Options{})
	hub := hubClient(t, s)
	hub.Subscribe("fp.open.d1", func(m *nats.Msg) {
		if !strings.HasPrefix(m.Reply, "_INBOX_d1.") {
			t.Errorf("the reply goes to %s", m.Reply)
		}
		m.Respond([]byte("yes"))
	})
	hub.Subscribe("fp.in.i1.d1", func(m *nats.Msg) { hub.Publish("_INBOX_d1.s1", m.Data) })
	hub.Flush()

	c := dial(t, newDialer(t, Config{URLs: []string{s.ClientURL()}}))
	if c.Server() != s.ClientURL() || c.MaxPayload() != 1<<20 {
		t.Errorf("server %s, max payload %d", c.Server(), c.MaxPayload())
	}
	var mu sync.Mutex
	var got []string
	if _, err := c.Subscribe("_INBOX_d1.*", func(subject string, data []byte) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, subject+" "+string(data))
	}); err != nil {
		t.Fatal(err)
	}
	if answer, err := c.Request(t.Context(), "fp.open.d1", []byte("open")); err != nil || string(answer) != "yes" {
		t.Fatalf("answer %q, %v", answer, err)
	}
	const n = 20_000
	for i := range n {
		if err := c.Publish(t.Context(), "fp.in.i1.d1", fmt.Appendf(nil, "%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	wait(t, "all answers", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == n })
	for i, g := range got {
		if want := fmt.Sprintf("_INBOX_d1.s1 %d", i); g != want {
			t.Fatalf("message %d is %q, want %q", i, g, want)
		}
	}
}

func TestNoHubListens(t *testing.T) {
	s := startServer(t, server.Options{})
	c := dial(t, newDialer(t, Config{URLs: []string{s.ClientURL()}}))
	_, err := c.Request(t.Context(), "fp.open.d1", nil)
	if !errors.Is(err, ErrNoHub) {
		t.Errorf("%v, want ErrNoHub", err)
	}
	if c.Err() != nil {
		t.Errorf("the connection has ended: %v", c.Err())
	}
}

func TestServerGoes(t *testing.T) {
	s := startServer(t, server.Options{})
	d := newDialer(t, Config{URLs: []string{s.ClientURL()}})
	c := dial(t, d)
	s.Shutdown()
	select {
	case <-c.Closed():
	case <-time.After(20 * time.Second):
		t.Fatal("not noticed")
	}
	if c.Err() == nil {
		t.Error("closed without an error")
	}
	if err := c.Publish(t.Context(), "x", nil); err == nil {
		t.Error("published to nowhere")
	}
	_, err := d.Dial(t.Context())
	if err == nil || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), s.ClientURL()) {
		t.Errorf("dial: %v", err)
	}
}

func TestCloseFlushesAndIsFinal(t *testing.T) {
	s := startServer(t, server.Options{})
	hub := hubClient(t, s)
	got := make(chan string, 10)
	hub.Subscribe("bye", func(m *nats.Msg) { got <- string(m.Data) })
	hub.Flush()
	c := dial(t, newDialer(t, Config{URLs: []string{s.ClientURL()}}))
	var mu sync.Mutex
	closed := false
	c.Subscribe("_INBOX_d1.*", func(string, []byte) {
		mu.Lock()
		defer mu.Unlock()
		if closed {
			t.Error("a callback after Close")
		}
	})
	c.Publish(t.Context(), "bye", []byte("bye"))
	for range 1000 {
		hub.Publish("_INBOX_d1.s1", []byte("x"))
	}
	hub.Flush()
	c.Close()
	mu.Lock()
	closed = true
	mu.Unlock()
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Error("what was published before Close did not arrive")
	}
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("Err is %v", c.Err())
	}
	c.Close() // again
}

func TestPermissionEndsTheConnection(t *testing.T) {
	s := startServer(t, server.Options{Users: []*server.User{{
		Username: "u", Password: "secret",
		Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"fp.open.d2"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_d2.>"}},
		},
	}}})
	addr := s.Addr().String()
	d := newDialer(t, Config{URLs: []string{"nats://u:secret@" + addr}})
	for name, do := range map[string]func(Conn){
		"publish":   func(c Conn) { c.Publish(t.Context(), "fp.in.i1.d1", []byte("x")) },
		"subscribe": func(c Conn) { c.Subscribe("_INBOX_d1.*", func(string, []byte) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, d)
			do(c)
			select {
			case <-c.Closed():
			case <-time.After(20 * time.Second):
				t.Fatal("not noticed")
			}
			if err := c.Err(); !errors.Is(err, ErrPermission) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want ErrPermission and no password", err)
			}
		})
	}
}

func TestCredentialsRefused(t *testing.T) {
	s := startServer(t, server.Options{Username: "u", Password: "right"})
	_, err := newDialer(t, Config{URLs: []string{"nats://u:wrong@" + s.Addr().String()}}).Dial(t.Context())
	if !errors.Is(err, ErrCredentials) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v, want ErrCredentials and no password", err)
	}
	_, err = newDialer(t, Config{URLs: []string{s.ClientURL()}, Creds: "/nonexistent/d1.creds"}).Dial(t.Context())
	if !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "/nonexistent/d1.creds") {
		t.Errorf("%v, want ErrCredentials and the path", err)
	}
}

func TestSlowConsumerEndsTheConnection(t *testing.T) {
	s := startServer(t, server.Options{})
	hub := hubClient(t, s)
	c := dial(t, newDialer(t, Config{URLs: []string{s.ClientURL()}}))
	stop := make(chan struct{})
	if _, err := c.Subscribe("_INBOX_d1.*", func(string, []byte) { <-stop }); err != nil {
		t.Fatal(err)
	}
	c.Request(t.Context(), "nobody", nil) // a round trip: the subscription stands
	for range maxPendingMsgs + 10 {
		hub.Publish("_INBOX_d1.s1", []byte("x"))
	}
	hub.Flush()
	select {
	case <-c.Closed():
	case <-time.After(20 * time.Second):
		t.Fatal("not noticed")
	}
	if !errors.Is(c.Err(), ErrSlowConsumer) {
		t.Errorf("%v, want ErrSlowConsumer", c.Err())
	}
	close(stop)
}

func TestClusterIsRemembered(t *testing.T) {
	cluster := func(name string, routes string) server.Options {
		return server.Options{ServerName: name, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: -1}, Routes: server.RoutesFromStr(routes)}
	}
	a := startServer(t, cluster("a", ""))
	b := startServer(t, cluster("b", "nats://"+a.ClusterAddr().String()))
	wait(t, "a cluster of two", func() bool { return a.NumRoutes() > 0 && b.NumRoutes() > 0 })
	d := newDialer(t, Config{URLs: []string{a.ClientURL()}})
	wait(t, "the other server", func() bool {
		c := dial(t, d)
		defer c.Close()
		return len(d.servers.order(time.Now())) == 2
	})
	a.Shutdown()
	if c := dial(t, d); !strings.HasSuffix(c.Server(), b.Addr().String()) {
		t.Errorf("connected to %s, want %s", c.Server(), b.Addr())
	}
}

// TestPublisherWaits: a peer that takes nothing holds the publisher back, and
// neither it nor Close waits longer than it is told to.
func TestPublisherWaits(t *testing.T) {
	s := startServer(t, server.Options{})
	proxy := newStopper(t, s.Addr().String())
	c := dial(t, newDialer(t, Config{URLs: []string{"nats://" + proxy.addr}}))
	proxy.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var err error
	sent := 0
	for data := make([]byte, 100<<10); err == nil && sent < 1000; sent++ {
		err = c.Publish(ctx, "x", data)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("after %d messages: %v, want a deadline", sent, err)
	}
	if c.Err() != nil {
		t.Fatalf("the connection has ended: %v", c.Err())
	}
	before := c.Progress()
	proxy.resume()
	if err := c.Publish(t.Context(), "x", []byte("y")); err != nil {
		t.Fatal(err)
	}
	wait(t, "progress", func() bool { return c.Progress().After(before) })

	proxy.stop()
	c.Publish(t.Context(), "x", make([]byte, 1<<20))
	done := make(chan struct{})
	go func() { c.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("Close waits for a peer that takes nothing")
	}
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, ca := selfSigned(t, dir)
	s := startServer(t, server.Options{TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}})
	addr := s.Addr().(*net.TCPAddr)
	u := fmt.Sprintf("tls://localhost:%d", addr.Port)
	hub, err := nats.Connect(u, nats.RootCAs(ca))
	if err != nil {
		t.Fatal(err)
	}
	defer hub.Close()
	got := make(chan struct{}, 1)
	hub.Subscribe("x", func(*nats.Msg) { got <- struct{}{} })
	hub.Flush()

	c := dial(t, newDialer(t, Config{URLs: []string{u}, CA: ca}))
	if err := c.Publish(t.Context(), "x", make([]byte, 200<<10)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing arrived")
	}
	_, err = newDialer(t, Config{URLs: []string{u}}).Dial(t.Context())
	if !errors.Is(err, ErrTLS) {
		t.Errorf("without the CA: %v, want ErrTLS", err)
	}
	plain := startServer(t, server.Options{})
	_, err = newDialer(t, Config{URLs: []string{plain.ClientURL()}, CA: ca}).Dial(t.Context())
	if !errors.Is(err, ErrTLS) {
		t.Errorf("a server without TLS though a CA is set: %v, want ErrTLS", err)
	}
}

func TestDialCanBeCancelled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := newDialer(t, Config{URLs: []string{"nats://" + l.Addr().String()}}).Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, want the deadline", err)
	}
	wait(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Device: "a.b", URLs: []string{"nats://x"}}, "device id"},
		{Config{Device: "d"}, "hub.urls"},
		{Config{Device: "d", URLs: []string{"http://x"}}, `hub url "http://x"`},
		{Config{Device: "d", URLs: []string{"nats:4222"}}, "hub url"},
	} {
		if _, err := NewNATS(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

// stopper is a proxy that can cease to take anything from the client.
type stopper struct {
	addr string
	mu   sync.Mutex
	gate chan struct{} // closed: go
}

func newStopper(t *testing.T, to string) *stopper {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stopper{addr: l.Addr().String(), gate: make(chan struct{})}
	close(p.gate)
	t.Cleanup(func() { p.resume(); l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() { copyUntil(in, out, func() {}) }()
			go func() { copyUntil(out, in, p.pass) }()
		}
	}()
	return p
}

func copyUntil(dst, src net.Conn, pass func()) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 16<<10)
	for {
		pass()
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *stopper) pass() {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	<-gate
}

func (p *stopper) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

func (p *stopper) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// selfSigned makes a certificate for localhost, which is its own authority.
func selfSigned(t *testing.T, dir string) (cert tls.Certificate, caFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile
}
