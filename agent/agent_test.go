package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/agent/frame"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// world is an agent that runs on a fake store.
type world struct {
	t     testing.TB
	a     *Agent
	store *fakeStore
	real  *spool.Spool // in the place of store
	up    *fakeUplink
	path  string
	stop  func() // ends Run's ctx
	done  chan error
	http  *http.Client
	log   *syncBuffer
}

// start runs an agent until the test ends; it is ready when start returns.
func start(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := prepare(t, change)
	w.run()
	w.eventually("ready", func() bool { return w.a.gate.now() == ready })
	return w
}

func prepare(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := &world{t: t, store: newFakeStore(), up: &fakeUplink{}, done: make(chan error, 1), log: &syncBuffer{}}
	dir, err := os.MkdirTemp("", "fp") // t.TempDir is too long for a socket on some systems
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w.path = filepath.Join(dir, "a.sock")
	cfg := Config{
		Device: "dev1", DataDir: dir, Version: "1.2.3",
		HeaderTimeout: 10 * time.Second, BodyTimeout: 10 * time.Second, StopTimeout: 20 * time.Second,
		Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	cfg.Socket.Path = w.path
	if change != nil {
		change(&cfg)
	}
	if w.a, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	w.a.openStore = func() (store, error) { return w.store, nil }
	w.a.newUplink = func(store) (uplinks, error) { return w.up, nil }
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", w.path)
	}}
	w.http = &http.Client{Transport: tr}
	t.Cleanup(tr.CloseIdleConnections)
	return w
}

func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.done <- w.a.Run(ctx)
	}()
	w.t.Cleanup(func() {
		cancel()
		w.http.CloseIdleConnections()
		<-ended
	})
	w.eventually("the socket answers", func() bool {
		c, err := net.Dial("unix", w.path)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (w *world) eventually(what string, ok func() bool) { eventually(w.t, what, ok) }

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("never: %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// reply is an HTTP answer.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) problem(t testing.TB) problemJSON {
	t.Helper()
	var p problemJSON
	if err := json.Unmarshal([]byte(r.body), &p); err != nil || r.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("not a problem: %d %q %q", r.status, r.header.Get("Content-Type"), r.body)
	}
	if p.Status != r.status || p.Title == "" || p.Detail == "" {
		t.Fatalf("status %d with %+v", r.status, p)
	}
	return p
}

func (w *world) do(method, path string, body string, headers ...string) reply {
	w.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://agent"+path, rd)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

// raw writes text to a new connection and returns everything that comes back
// until the agent closes, or a whole response has come.
func (w *world) raw(text string, closeWrite bool) reply {
	w.t.Helper()
	c, err := net.Dial("unix", w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	if closeWrite {
		c.(*net.UnixConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatalf("no answer to %.60q: %v", text, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(b)}
}

func (w *world) dial() *client.Client {
	w.t.Helper()
	c, err := client.Dial(context.Background(), w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// nothingStored fails if any lane holds a message.
func (w *world) nothingStored() {
	w.t.Helper()
	for l := range wire.Lane(wire.NumLanes) {
		if n := len(w.store.stored(l)); n > 0 {
			w.t.Errorf("%d messages stored in %s", n, l)
		}
	}
}

func TestStopsCleanly(t *testing.T) {
	before := runtime.NumGoroutine()
	w := start(t, nil)
	for i := range 20 {
		if r := w.do("POST", "/v1/publish/a.b", fmt.Sprint(i)); r.status != 200 {
			t.Fatal(r)
		}
	}
	c := w.dial()
	if _, err := c.Publish(context.Background(), client.Message{Subject: "a"}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(w.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if !w.store.closed {
		t.Error("the store is not closed")
	}
	<-c.Closed()
	c.Close()
	w.http.CloseIdleConnections()
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestStartingAnswers(t *testing.T) {
	w := prepare(t, nil)
	opened := make(chan struct{})
	w.a.openStore = func() (store, error) { <-opened; return w.store, nil }
	w.run()
	if r := w.do("POST", "/v1/publish/a", "x"); r.status != 503 || r.problem(t).Code != "starting" || r.header.Get("Retry-After") == "" {
		t.Errorf("publish: %+v", r)
	}
	if r := w.do("GET", "/readyz", ""); r.status != 503 || r.problem(t).Code != "starting" {
		t.Errorf("readyz: %+v", r)
	}
	if r := w.do("GET", "/healthz", ""); r.status != 200 || !strings.Contains(r.body, "starting") {
		t.Errorf("healthz: %+v", r)
	}
	if r := w.do("GET", "/metrics", ""); r.status != 200 {
		t.Errorf("metrics: %+v", r)
	}
	if _, err := w.dial().Publish(context.Background(), client.Message{Subject: "a"}); !errors.Is(err, &client.Error{Code: "starting"}) {
		t.Errorf("client: %v", err)
	}
	close(opened)
	w.eventually("ready", func() bool { return w.do("GET", "/readyz", "").status == 200 })
	if r := w.do("POST", "/v1/publish/a", "x"); r.status != 200 {
		t.Errorf("publish: %+v", r)
	}
}

func TestStoreCannotBeOpened(t *testing.T) {
	w := prepare(t, nil)
	w.a.openStore = func() (store, error) { return nil, errors.New("no such disk") }
	if err := w.a.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "no such disk") {
		t.Errorf("Run: %v", err)
	}
	if _, err := os.Lstat(w.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	w.store.Close()
}

// What is accepted when the agent is told to stop is stored and answered; what
// comes later is refused.
func TestStopFinishesWhatWasAccepted(t *testing.T) {
	w := start(t, nil)
	hold := make(chan struct{})
	w.store.set(func() { w.store.hold = hold })
	answers := make(chan reply, 1)
	go func() { answers <- w.do("POST", "/v1/publish/a", "x") }()
	c := w.dial()
	p := c.PublishAsync(client.Message{Subject: "b"})
	w.eventually("both are with the store", func() bool {
		w.a.gate.mu.Lock()
		defer w.a.gate.mu.Unlock()
		return w.a.gate.busy == 2
	})
	w.stop()
	w.eventually("stopping", func() bool { return w.a.gate.now() == stopping })
	if r := w.do("POST", "/v1/publish/a", "late"); r.status != 503 || r.problem(t).Code != "stopping" || r.header.Get("Retry-After") == "" {
		t.Errorf("a late publish: %+v", r)
	}
	if _, err := w.dial().Publish(context.Background(), client.Message{Subject: "late"}); !errors.Is(err, &client.Error{Code: "stopping"}) {
		t.Errorf("a late publish by the client: %v", err)
	}
	close(hold)
	if r := <-answers; r.status != 200 {
		t.Errorf("accepted, then: %+v", r)
	}
	if _, err := p.Wait(context.Background()); err != nil {
		t.Errorf("accepted, then: %v", err)
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	if n := len(w.store.stored(wire.Normal)); n != 2 {
		t.Errorf("%d messages stored, want 2", n)
	}
}

// A program that is slow to read its answers gets them all the same.
func TestStopSendsTheAnswers(t *testing.T) {
	w := start(t, nil)
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 2400 // more answers than the socket holds, fewer than make the agent wait
	text := []byte(frame.Preface)
	for range n {
		text = frame.AppendPublish(text, &frame.Publish{Subject: "a..b"})
	}
	if _, err := c.Write(text); err != nil {
		t.Fatal(err)
	}
	w.eventually("all are refused", func() bool {
		return strings.Contains(w.do("GET", "/metrics", "").body, fmt.Sprintf(`{code="bad_subject"} %d`, n))
	})
	w.stop()
	w.eventually("the spool is closed", func() bool {
		var closed bool
		w.store.set(func() { closed = w.store.closed })
		return closed
	})
	got, err := io.ReadAll(c)
	if err != nil {
		t.Error(err)
	}
	refused, told := 0, ""
	for rest := got; len(rest) > 0; {
		typ, body, after, need, err := frame.Next(rest, 1<<20)
		if err != nil || need > 0 {
			t.Fatalf("after %d answers: need %d, %v", refused, need, err)
		}
		rest = after
		if typ == frame.TypeError {
			e, err := frame.ParseError(body)
			if err != nil {
				t.Fatal(err)
			}
			refused += int(e.Count)
			told = e.Code
		}
	}
	if refused != n || told != "stopping" {
		t.Errorf("%d of %d were answered, at last %q", refused, n, told)
	}
}

// A store that never answers does not keep the agent from stopping.
func TestStopIsBounded(t *testing.T) {
	w := start(t, func(c *Config) { c.StopTimeout = 50 * time.Millisecond })
	hold := make(chan struct{})
	w.store.set(func() { w.store.hold = hold })
	for range 2 {
		go w.http.Post("http://agent/v1/publish/a", "", strings.NewReader("x"))
	}
	w.eventually("they are with the store", func() bool {
		w.a.gate.mu.Lock()
		defer w.a.gate.mu.Unlock()
		return w.a.gate.busy == 2
	})
	w.stop()
	w.eventually("the agent gives up waiting", func() bool { return strings.Contains(w.log.String(), "not answered yet") })
	close(hold) // or Close of the fake would wait for it
	if err := <-w.done; err != nil && !errors.Is(err, errClosedEarly) {
		t.Error(err)
	}
}

func TestUplinkThatEndsEndsRun(t *testing.T) {
	w := prepare(t, nil)
	w.a.newUplink = func(store) (uplinks, error) { return brokenUplink{w.up}, nil }
	if err := w.a.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("Run: %v", err)
	}
}

type brokenUplink struct{ *fakeUplink }

func (brokenUplink) Run(context.Context) error { return errors.New("torn") }

// syncBuffer collects logs.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
