package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// patience is for conditions that always come, on a machine that is busy.
const patience = 2 * time.Minute

// world is a NATS server with a hub's streams, filled by hand.
type world struct {
	t    testing.TB
	dir  string
	port int
	srv  *server.Server
	nc   *nats.Conn // of the test itself
	js   jetstream.JetStream
	log  *lockedBuffer
}

// newWorld starts a server. When the test is over no goroutine may be left.
func newWorld(t testing.TB) *world {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		eventually(t, "goroutines end", func() error {
			if n := runtime.NumGoroutine(); n > before {
				buf := make([]byte, 1<<20)
				return fmt.Errorf("%d, %d before:\n%s", n, before, buf[:runtime.Stack(buf, true)])
			}
			return nil
		})
	})
	dir, err := os.MkdirTemp("", "fieldpost-client") // not TempDir: the server may still write after a shutdown
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, dir: dir, port: -1, log: &lockedBuffer{}}
	w.start()
	t.Cleanup(w.stop)
	if w.nc, err = nats.Connect(w.url(), nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc, jetstream.WithDefaultTimeout(patience)); err != nil {
		t.Fatal(err)
	}
	w.stream("EDGE", "edge.>")
	w.stream("BLOCKS", "fp.blocks.*.*.*")
	return w
}

// start starts the server, on the port that it had. Somebody may hold that for a
// moment: a client that dials it, even.
func (w *world) start() {
	w.t.Helper()
	eventually(w.t, "the server is up", func() error {
		srv, err := server.NewServer(&server.Options{
			Host: "127.0.0.1", Port: w.port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: w.dir, SyncAlways: true,
			DisableJetStreamBanner: true,
		})
		if err != nil {
			return err
		}
		go srv.Start()
		if !srv.ReadyForConnections(10*time.Second) || !srv.JetStreamEnabled() {
			srv.Shutdown()
			srv.WaitForShutdown()
			return errors.New("it does not take connections")
		}
		w.srv, w.port = srv, srv.Addr().(*net.TCPAddr).Port
		return nil
	})
}

func (w *world) stop() {
	w.srv.Shutdown()
	w.srv.WaitForShutdown()
}

func (w *world) url() string { return "nats://127.0.0.1:" + strconv.Itoa(w.port) }

// stream makes a stream as a hub does.
func (w *world) stream(name string, subjects ...string) jetstream.Stream {
	w.t.Helper()
	s, err := w.js.CreateStream(w.t.Context(), jetstream.StreamConfig{
		Name: name, Subjects: subjects, AllowDirect: true, AllowAtomicPublish: true, Metadata: map[string]string{"fieldpost": "1"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// client connects another process.
func (w *world) client() *Client {
	w.t.Helper()
	c := connect(w.t, Config{URLs: []string{w.url()}, Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	w.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			w.t.Errorf("close: %v", err)
		}
	})
	return c
}

// connect has more patience than Connect: the machine may be busy.
func connect(t testing.TB, cfg Config) (c *Client) {
	t.Helper()
	eventually(t, "a client connects", func() (err error) {
		c, err = Connect(t.Context(), cfg)
		return err
	})
	return c
}

// put stores a message and returns its sequence.
func (w *world) put(subject string, h nats.Header, data []byte) uint64 {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ack, err := w.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: h, Data: data}, jetstream.WithRetryAttempts(100))
	if err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}

var testEpoch = wire.Epoch{1, 2, 3}

// head is what a hub writes beside a message.
func head(seq int, more ...string) nats.Header {
	h := nats.Header{
		"Fieldpost-Epoch": {testEpoch.String()}, "Fieldpost-Seq": {strconv.Itoa(seq)},
		"Fieldpost-Time": {"2026-01-02T03:04:05.678Z"}, "Fieldpost-Block": {"1/0"},
	}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = append(h[more[i]], more[i+1])
	}
	return h
}

// edge stores messages first to last in EDGE, with their number as payload.
func (w *world) edge(first, last int) {
	w.t.Helper()
	for i := first; i <= last; i++ {
		w.put("edge.press-7.sensors.temp", head(i), strconv.AppendInt(nil, int64(i), 10))
	}
}

// running is a call in a goroutine.
type running struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
}

// run starts a call that is ended, and must end well, at the latest with the test.
func (w *world) run(call func(context.Context) error) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: w.t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- call(ctx) }()
	w.t.Cleanup(cancel)
	return r
}

// stop ends the call and waits for it.
func (r *running) stop() error {
	r.cancel()
	return r.wait()
}

func (r *running) wait() error {
	select {
	case err := <-r.done:
		r.done <- err
		return err
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		r.t.Fatalf("the call does not end:\n%s", buf[:runtime.Stack(buf, true)])
		return nil
	}
}

// info is the consumer's state.
func (w *world) info(stream, group string) *jetstream.ConsumerInfo {
	w.t.Helper()
	c, err := w.js.Consumer(context.Background(), stream, group)
	if err != nil {
		w.t.Fatal(err)
	}
	return c.CachedInfo()
}

// settled waits until the group has acked everything.
func (w *world) settled(stream, group string) {
	w.t.Helper()
	eventually(w.t, "everything is acked", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the server may be away
		defer cancel()
		c, err := w.js.Consumer(ctx, stream, group)
		if err != nil {
			return err
		}
		if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
			return fmt.Errorf("%d to be delivered, %d to be acked", i.NumPending, i.NumAckPending)
		}
		return nil
	})
}

func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	err := errors.New("never tried")
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("%s: not within %s: %v", what, patience, err)
}

// receive takes from a channel what must come.
func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: nothing came within %s\n%s", what, patience, buf[:runtime.Stack(buf, true)])
		panic("unreachable")
	}
}

// lockedBuffer is a log that tests read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) has(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buf.String(), s)
}
