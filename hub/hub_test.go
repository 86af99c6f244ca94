package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
)

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

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// testConfig listens on free ports and takes little space.
func testConfig(dir string) Config {
	return Config{
		DataDir: dir,
		NATS:    NATS{Listen: "127.0.0.1:0", MaxStore: Size{Bytes: 256 << 20}},
		HTTP:    HTTP{Listen: "127.0.0.1:0"},
		Version: "1.2.3",
	}
}

// running is a hub under test.
type running struct {
	*Hub
	t    *testing.T
	log  *lockedBuffer
	done chan error // what Run returned
	stop func()
}

// start runs a hub, after it was changed, and waits until it is ready.
func start(t *testing.T, cfg Config, change ...func(*Hub)) *running {
	t.Helper()
	r := begin(t, cfg, change...)
	select {
	case <-r.Ready():
	case err := <-r.done:
		r.done <- nil // for stop
		t.Fatalf("Run: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("not ready")
	}
	return r
}

// begin is start that does not wait for the hub to be ready.
func begin(t *testing.T, cfg Config, change ...func(*Hub)) *running {
	t.Helper()
	log := &lockedBuffer{}
	cfg.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range change {
		fn(h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Hub: h, t: t, log: log, done: make(chan error, 1)}
	go func() { r.done <- h.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-r.done:
			if err != nil {
				t.Errorf("Run: %v\n%s", err, log)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("Run does not end\n%s", stacks())
		}
	})
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			t.Log(log)
		}
	})
	return r
}

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func (r *running) connect() *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect("nats://" + r.Addrs().NATS)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// inside connects with the hub's own rights, to write into its streams.
func (r *running) inside() *nats.Conn {
	r.t.Helper()
	nc, err := r.open.Load().store.Connect("test")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

func (r *running) admin() *admin.Client {
	r.t.Helper()
	c, err := admin.New(r.Addrs().HTTP)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// get returns status and body of a page.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Get("http://" + r.Addrs().HTTP + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestStartStopRestart(t *testing.T) {
	dir := t.TempDir()
	var id string
	for i := range 3 {
		r := start(t, testConfig(dir))
		if code, body := r.get("/healthz"); code != 200 || body != "ok\n" {
			t.Fatalf("healthz: %d %s", code, body)
		}
		if code, body := r.get("/readyz"); code != 200 {
			t.Fatalf("readyz: %d %s", code, body)
		}
		st, err := r.admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && st.HubID != id {
			t.Errorf("hub id %s became %s", id, st.HubID)
		}
		id = st.HubID
		if !st.Ready || id == "" || st.Version != "1.2.3" || st.Instance == "" || len(st.Streams) != 6 || st.Streams[0].MaxBytes != 256<<20*30/100 ||
			len(st.Routes) != 1 || st.Routes[0].Stream != "EDGE" || st.Reasons == nil {
			t.Errorf("status: %+v", st)
		}
		r.stop()
		if strings.Contains(r.log.String(), "level=ERROR") || strings.Contains(r.log.String(), "level=WARN") {
			t.Errorf("a quiet life is logged as trouble:\n%s", r.log)
		}
	}
}

func TestRunIsForOnce(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	if err := r.Run(t.Context()); err == nil {
		t.Error("a second Run is accepted")
	}
}

func TestTwoHubsOneDataDir(t *testing.T) {
	dir := t.TempDir()
	start(t, testConfig(dir))
	h, err := New(testConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another hub is running on "+dir) {
		t.Errorf("second hub: %v", err)
	}
}

func TestTakenPort(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	cfg := testConfig(t.TempDir())
	cfg.HTTP.Listen = r.Addrs().HTTP
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "http.listen") {
		t.Errorf("taken HTTP port: %v", err)
	}
	cfg = testConfig(t.TempDir())
	cfg.NATS.Listen = r.Addrs().NATS
	if h, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), r.Addrs().NATS) && !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("taken NATS port: %v", err)
	}
}

func TestMaxStoreIsRemembered(t *testing.T) {
	cfg := testConfig(t.TempDir())
	blocks := func(size Size) int64 {
		t.Helper()
		cfg.NATS.MaxStore = size
		r := start(t, cfg)
		defer r.stop()
		st, err := r.admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Streams[0].MaxBytes
	}
	first := blocks(Size{})
	if first <= 0 {
		t.Fatalf("BLOCKS takes %d bytes", first)
	}
	path := filepath.Join(cfg.DataDir, "max_store")
	if text, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(text)) == "" {
		t.Fatalf("auto is not remembered: %q %v", text, err)
	}
	// A cut, the same by auto, and growth; each start must be able to change the streams.
	for _, tt := range []struct {
		size Size
		want int64
	}{{Size{Bytes: 1_000_000_000}, 300_000_000}, {Size{}, 300_000_000}, {Size{Bytes: 2_000_000_000}, 600_000_000}, {Size{Bytes: 200_000_000}, 60_000_000}, {Size{Bytes: 200_000_000}, 60_000_000}} {
		if n := blocks(tt.size); n != tt.want {
			t.Errorf("max_store %s: BLOCKS takes %d bytes, want %d", tt.size, n, tt.want)
		}
	}
	if err := os.WriteFile(path, []byte("much"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("unreadable max_store: %v", err)
	}
}

func TestRunRacesCancel(t *testing.T) {
	before := runtime.NumGoroutine()
	files := openFiles(t)
	for i := range 12 {
		h, err := New(testConfig(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- h.Run(ctx) }()
		switch i % 4 {
		case 0: // at once
		case 3:
			select {
			case <-h.Ready():
			case err := <-done:
				t.Fatalf("Run: %v", err)
			}
		default: // somewhere on the way
			eventually(t, "HTTP listens", func() bool { return h.Addrs().HTTP != "" })
			for range i * 50 {
				runtime.Gosched()
			}
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("run %d: %v", i, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("Run does not end\n%s", stacks())
		}
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= before+2 })
	eventually(t, "all files are closed", func() bool { return openFiles(t) <= files+2 })
}

// openFiles counts descriptors where that is possible.
func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(names)
}

func TestReadinessNamesTheReason(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Blocks.MaxBytes = Size{Bytes: 4 << 20}
	r := start(t, cfg)
	nc := r.inside()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if _, err := js.Publish(fmt.Sprintf("fp.blocks.d.%016x.normal", i), make([]byte, 256<<10)); err != nil {
			break
		}
	}
	eventually(t, "readyz says that BLOCKS is full", func() bool {
		code, body := r.get("/readyz")
		return code == 503 && strings.Contains(body, "stream BLOCKS is full")
	})
	if err := js.PurgeStream("BLOCKS"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ready again", func() bool { code, _ := r.get("/readyz"); return code == 200 })
	if err := js.DeleteStream("BLOCKS"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "readyz misses BLOCKS", func() bool {
		code, body := r.get("/readyz")
		return code == 503 && strings.Contains(body, "BLOCKS")
	})
	if code, _ := r.get("/healthz"); code != 200 {
		t.Errorf("healthz %d", code)
	}
}

func TestFailingPartIsStartedAgain(t *testing.T) {
	h, err := New(testConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var order []string
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	up := make(chan struct{})
	runs := 0
	stages := []stage{
		{name: "first", run: func(ctx context.Context) error { <-ctx.Done(); note("first"); return nil }},
		{name: "flaky", again: true, run: func(ctx context.Context) error {
			if runs++; runs == 1 {
				return io.ErrUnexpectedEOF
			}
			close(up)
			<-ctx.Done()
			note("flaky")
			return nil
		}},
		{name: "last", run: func(ctx context.Context) error { <-ctx.Done(); note("last"); return nil }},
	}
	done := make(chan error, 1)
	go func() { done <- h.workers.run(ctx, stages, nil) }()
	eventually(t, "the reason is named", func() bool {
		r := h.workers.reasons()
		return len(r) == 1 && strings.Contains(r[0], "flaky: unexpected EOF")
	})
	<-up
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	if got := strings.Join(order, " "); got != "first flaky last" {
		t.Errorf("stopped in the order %s", got)
	}

	failing := []stage{stages[0], {name: "vital", run: func(context.Context) error { return io.ErrClosedPipe }}}
	if err := h.workers.run(t.Context(), failing, nil); err == nil || err.Error() != "hub: vital: "+io.ErrClosedPipe.Error() {
		t.Errorf("a vital part failed: %v", err)
	}
}

func TestProblems(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	for path, want := range map[string]string{
		"/nothing":                     "not_found",
		"/v1/devices/unheard":          "not_found",
		"/v1/devices?limit=0":          "bad_limit",
		"/v1/devices?limit=many":       "bad_limit",
		"/v1/tail?filter=a..b":         "bad_request",
		"/v1/tail?filter=other.>":      "bad_request",
		"/v1/tail?filter=edge":         "bad_request",
		"/v1/tail?from=yesterday":      "bad_request",
		"/v1/tail?from=0":              "bad_request",
		"/v1/tail?stream=BLOCKS":       "bad_request",
		"/v1/tail?filter=%3E.x":        "bad_request",
		"/v1/devices?limit=1000000000": "bad_limit",
	} {
		code, body := r.get(path)
		var p admin.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Code != want || p.Status != code || p.Detail == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	resp, err := http.Post("http://"+r.Addrs().HTTP+"/v1/status", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 405 || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("POST: %d", resp.StatusCode)
	}
	req, err := http.NewRequest("GET", "http://"+r.Addrs().HTTP+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Large", strings.Repeat("x", 4*maxHeader))
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 431 {
		t.Errorf("huge header: %d", resp.StatusCode)
	}
	if _, err := r.admin().Device(t.Context(), "unheard"); err == nil || err.(*admin.Problem).Code != "not_found" {
		t.Errorf("client: %v", err)
	}
}
