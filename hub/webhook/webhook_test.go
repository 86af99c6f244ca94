package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// world is a stream EDGE and an endpoint.
type world struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream

	mu      sync.Mutex
	answer  func(*http.Request, Body) int // nil: 200; guarded by mu
	got     []string                      // payloads that were answered 2xx; guarded by mu
	headers []http.Header                 // of all requests; guarded by mu
	bodies  [][]byte                      // of all requests; guarded by mu
	sent    map[string]int                // by result; guarded by mu
	url     string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	w := &world{t: t, sent: map[string]int{}}
	if w.nc, err = nats.Connect(s.ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	for stream, subject := range map[string]string{"EDGE": "edge.>", "RETRY": "retry.*"} {
		if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	end := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(end.Close)
	w.url = end.URL + "/hook?token=sesame"
	return w
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var body Body
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil {
		w.t.Errorf("request: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.headers, w.bodies = append(w.headers, r.Header), append(w.bodies, data)
	code := http.StatusOK
	if w.answer != nil {
		code = w.answer(r, body)
	}
	if code < 300 {
		for _, m := range body.Messages {
			w.got = append(w.got, string(m.Payload))
		}
	}
	if code == http.StatusFound {
		rw.Header().Set("Location", "/elsewhere")
	}
	rw.WriteHeader(code)
	fmt.Fprintf(rw, "said %d\x1b[31m", code)
}

func (w *world) publish(payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		m := &nats.Msg{Subject: "edge.press-7.a", Data: []byte(p), Header: nats.Header{"Fieldpost-Seq": {"1"}, "Nats-Msg-Id": {p[:min(len(p), 20)]}}}
		if _, err := w.js.PublishMsg(w.t.Context(), m); err != nil {
			w.t.Fatal(err)
		}
	}
}

// run starts a hook until the test ends.
func (w *world) run(h Hook) *Runner {
	w.t.Helper()
	h.Name, h.Stream, h.URL = "billing", "EDGE", w.url
	r, err := New(Config{
		JetStream: w.js, Hooks: []Hook{h.WithDefaults()}, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		OnSent: func(_, result string, n int) { w.mu.Lock(); w.sent[result] += n; w.mu.Unlock() },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	return r
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		is := ok()
		w.mu.Unlock()
		if is {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("never: %s (got %q, sent %v)", what, w.got, w.sent)
		}
	}
}

// drained waits until the first n messages of the stream are settled.
func (w *world) drained(n uint64) {
	w.t.Helper()
	w.eventually("everything is settled", func() bool {
		c, err := w.js.Consumer(context.Background(), "EDGE", "webhook-billing")
		return err == nil && c.CachedInfo().AckFloor.Stream >= n && c.CachedInfo().NumAckPending == 0
	})
}

func TestDeliversInOrderAndSigned(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(t.TempDir(), "secret")
	key := []byte("0123456789abcdef")
	if err := os.WriteFile(secret, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprint("m", i))
	}
	w.publish(want...)
	w.run(Hook{Batch: 10, SecretFile: secret})
	w.drained(25)
	if got := strings.Join(w.got, " "); got != strings.Join(want, " ") {
		t.Errorf("got %s", got)
	}
	if len(w.bodies) != 3 {
		t.Errorf("%d requests for 25 messages in batches of 10", len(w.bodies))
	}
	for i, h := range w.headers {
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), w.bodies[i])
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); h.Get("webhook-signature") != want {
			t.Errorf("request %d: signature %q, want %q", i, h.Get("webhook-signature"), want)
		}
	}
	if id := w.headers[1].Get("webhook-id"); id != "EDGE.11-20" {
		t.Errorf("id %q", id)
	}
	var body Body
	if err := json.Unmarshal(w.bodies[0], &body); err != nil || body.Webhook != "billing" || body.Stream != "EDGE" ||
		body.Messages[0].Subject != "edge.press-7.a" || body.Messages[0].Headers["Fieldpost-Seq"] == nil || body.Messages[0].Headers["Nats-Msg-Id"] != nil {
		t.Errorf("body %s, %v", w.bodies[0], err)
	}
}

// TestRefusedMessageIsTerminated: one bad message neither stops the others nor
// is it lost from sight.
func TestRefusedMessageIsTerminated(t *testing.T) {
	w := newWorld(t)
	terms, err := w.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.EDGE.webhook-billing")
	if err != nil {
		t.Fatal(err)
	}
	w.answer = func(_ *http.Request, b Body) int {
		for _, m := range b.Messages {
			if string(m.Payload) == "bad" {
				return http.StatusUnprocessableEntity
			}
		}
		return http.StatusNoContent
	}
	w.publish("one", "bad", "two")
	w.run(Hook{})
	w.drained(3)
	if got := strings.Join(w.got, " "); got != "one two" {
		t.Errorf("got %s", got)
	}
	m, err := terms.NextMsg(20 * time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var advisory struct {
		Seq    uint64 `json:"stream_seq"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal(m.Data, &advisory); err != nil || advisory.Seq != 2 || advisory.Reason != "webhook billing: 422 Unprocessable Entity said 422 [31m" {
		t.Errorf("advisory %+v, %v", advisory, err)
	}
	if w.sent["delivered"] != 2 || w.sent["refused"] != 1 {
		t.Errorf("counted %v", w.sent)
	}
}

// TestOutageIsWaitedFor: whatever is the other side's fault loses nothing and
// keeps the order.
func TestOutageIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	codes := []int{http.StatusInternalServerError, http.StatusFound, http.StatusUnauthorized}
	w.answer = func(r *http.Request, _ Body) int {
		if r.URL.Path != "/hook" {
			t.Errorf("messages went to %s", r.URL)
		}
		if len(codes) == 0 {
			return http.StatusOK
		}
		code := codes[0]
		codes = codes[1:]
		return code
	}
	w.publish("one", "two", "three")
	r := w.run(Hook{Wait: 20 * time.Millisecond})
	w.eventually("the status says why", func() bool {
		err := r.Status()[0]
		return err != nil && strings.HasPrefix(err.Error(), "500 Internal Server Error said 500")
	})
	w.drained(3)
	w.eventually("the trouble is over", func() bool { return r.Status()[0] == nil })
	if got := strings.Join(w.got, " "); got != "one two three" {
		t.Errorf("got %s", got)
	}
}

// TestRetriesComeAsTheyWere: a letter of DEAD that is retried is posted like the
// message that it was.
func TestRetriesComeAsTheyWere(t *testing.T) {
	w := newWorld(t)
	w.run(Hook{Wait: 20 * time.Millisecond})
	for _, consumer := range []string{"webhook-other", "webhook-billing"} {
		m := &nats.Msg{Subject: "retry." + consumer, Data: []byte(consumer), Header: nats.Header{
			"Fieldpost-Subject": {"edge.press-7.a"}, "Fieldpost-Stream": {"EDGE"}, "Fieldpost-Stream-Seq": {"41"}, "Fieldpost-Retry": {"1"},
		}}
		if _, err := w.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("it is posted", func() bool { return strings.Join(w.got, " ") == "webhook-billing" })
	var body Body
	if err := json.Unmarshal(w.bodies[0], &body); err != nil {
		t.Fatal(err)
	}
	if m := body.Messages[0]; m.Subject != "edge.press-7.a" || m.Seq != 41 || m.Headers["Fieldpost-Retry"][0] != "1" || w.headers[0].Get("webhook-id") != "RETRY.2-2" {
		t.Errorf("got %+v with id %s", m, w.headers[0].Get("webhook-id"))
	}
}

// TestNobodyListens: the status names the trouble, not what is secret in the URL.
func TestNobodyListens(t *testing.T) {
	w := newWorld(t)
	w.url = "http://127.0.0.1:1/hook?token=sesame"
	w.publish("one")
	r := w.run(Hook{Wait: 20 * time.Millisecond})
	w.eventually("the status says why", func() bool { return r.Status()[0] != nil })
	if text := r.Status()[0].Error(); !strings.Contains(text, "refused") || strings.Contains(text, "sesame") {
		t.Errorf("status: %s", text)
	}
	if place := (Hook{URL: "https://user:pw@x:1/y?token=z"}).Place(); place != "https://x:1" {
		t.Errorf("place %s", place)
	}
}

// TestStreamComesLater: a webhook waits for its stream.
func TestStreamComesLater(t *testing.T) {
	w := newWorld(t)
	if err := w.js.DeleteStream(t.Context(), "EDGE"); err != nil {
		t.Fatal(err)
	}
	r := w.run(Hook{Wait: 20 * time.Millisecond})
	w.eventually("the status says why", func() bool { return r.Status()[0] != nil && strings.Contains(r.Status()[0].Error(), "EDGE") })
	if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"edge.>"}}); err != nil {
		t.Fatal(err)
	}
	w.eventually("the trouble is over, also without a message", func() bool { return r.Status()[0] == nil })
	w.publish("one")
	w.eventually("it is delivered", func() bool { return strings.Join(w.got, " ") == "one" })
}

// TestLargeMessagesAreAllPosted: what does not fit into one request goes with the
// next, and its deliveries are not used up meanwhile.
func TestLargeMessagesAreAllPosted(t *testing.T) {
	w := newWorld(t)
	var want []string
	for i := range 15 {
		want = append(want, fmt.Sprint("m", i)+strings.Repeat(".", 400<<10))
	}
	w.publish(want...)
	w.run(Hook{MaxDeliver: 1, Timeout: 3 * time.Minute})
	w.drained(15)
	if strings.Join(w.got, " ") != strings.Join(want, " ") {
		t.Errorf("%d of 15 were posted, or not in order", len(w.got))
	}
	for i, b := range w.bodies {
		if len(b) > maxBody+1<<20 {
			t.Errorf("request %d has %d bytes", i, len(b))
		}
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"": "empty", "whsec_%%": "base64", "plain": ""} {
		file := filepath.Join(dir, "secret")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := New(Config{Hooks: []Hook{{Name: "a", SecretFile: file}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := New(Config{Hooks: []Hook{{Name: "a", SecretFile: filepath.Join(dir, "none")}}}); err == nil {
		t.Error("a secret that is not there is taken")
	}
}
