package webhook

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// raw answers every request with bytes that need not be HTTP.
func (w *world) raw(answer string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.url = "http://" + ln.Addr().String() + "/hook"
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r, err := http.ReadRequest(bufio.NewReader(c))
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				if err == nil {
					_, err = io.WriteString(c, answer)
				}
				if err != nil {
					w.t.Logf("the request was not answered: %v", err)
				}
			}()
		}
	}()
}

// TestHugeRefusal: what the other side says has bounds, also where it is no body,
// and the message becomes a letter all the same.
func TestHugeRefusal(t *testing.T) {
	w := newWorld(t)
	w.raw("HTTP/1.1 400 no\x1b[31m" + strings.Repeat("o", 2<<20) + "\r\nContent-Length: 0\r\n\r\n")
	terms, err := w.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.EDGE.webhook-billing")
	if err != nil {
		t.Fatal(err)
	}
	w.publish("bad")
	w.run(Hook{Wait: 20 * time.Millisecond})
	m, err := terms.NextMsg(30 * time.Second)
	if err != nil {
		t.Fatalf("it is not terminated: %v", err)
	}
	var advisory struct{ Reason string }
	if err := json.Unmarshal(m.Data, &advisory); err != nil || len(advisory.Reason) > 500 || !strings.HasPrefix(advisory.Reason, "webhook billing: 400 no [31mooo") {
		t.Errorf("reason has %d bytes: %.200q, %v", len(advisory.Reason), advisory.Reason, err)
	}
}

// TestGarbageForAnAnswer: the status and the log stay small.
func TestGarbageForAnAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"no status":     "HTTP/1.1 " + strings.Repeat("x\x07", 1<<20) + "\r\n\r\n",
		"header":        "HTTP/1.1 200 OK\r\n" + strings.Repeat("y", 1<<20) + "\r\n\r\n",
		"failed, huge":  "HTTP/1.1 503 " + strings.Repeat("z", 1<<20) + "\r\n\r\n",
		"closed early":  "HTTP/1.1 200 OK\r\nContent-Le",
		"switches":      "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"never a final": strings.Repeat("HTTP/1.1 103 Early\r\nLink: x\r\n\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.raw(answer)
			w.publish("one")
			r := w.run(Hook{Wait: 20 * time.Millisecond, Timeout: time.Second})
			w.eventually("the status says why", func() bool { return r.Status()[0] != nil })
			if text := r.Status()[0].Error(); text == "" || len(text) > 500 || strings.ContainsAny(text, "\x07\n") {
				t.Errorf("status has %d bytes: %.200q", len(text), text)
			}
		})
	}
}

// failOnce makes the first request that begins with a message fail.
func (w *world) failOnce() {
	failed := map[uint64]bool{}
	w.answer = func(_ *http.Request, b Body) int {
		if first := b.Messages[0].Seq; !failed[first] {
			failed[first] = true
			return http.StatusBadGateway
		}
		return http.StatusOK
	}
}

// TestHeldMessagesUseUpNothing: what waits behind a request that failed was not
// posted, and does not count as delivered.
func TestHeldMessagesUseUpNothing(t *testing.T) {
	w := newWorld(t)
	w.failOnce()
	var want []string
	for i := range 12 {
		want = append(want, string(rune('a'+i))+strings.Repeat(".", 500<<10))
	}
	w.publish(want...)
	w.run(Hook{MaxDeliver: 2, Wait: 20 * time.Millisecond, Timeout: 3 * time.Minute})
	w.drained(12)
	if strings.Join(w.got, " ") != strings.Join(want, " ") {
		t.Errorf("%d of 12 were posted, or not in order", len(w.got))
	}
	if w.sent["delivered"] != 12 || w.sent["failed"] > 12 {
		t.Errorf("counted %v", w.sent)
	}
}

// TestStreamIsMadeAnewBehindHeld: what is held is the old stream's.
func TestStreamIsMadeAnewBehindHeld(t *testing.T) {
	w := newWorld(t)
	down := true // guarded by mu
	w.answer = func(*http.Request, Body) int {
		if down {
			return http.StatusBadGateway
		}
		return http.StatusOK
	}
	for range 10 {
		w.publish("old" + strings.Repeat(".", 900<<10))
	}
	w.run(Hook{Wait: 20 * time.Millisecond})
	w.eventually("a request failed", func() bool { return w.sent["failed"] > 0 })
	if err := w.js.DeleteStream(t.Context(), "EDGE"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"edge.>"}}); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	down = false
	w.mu.Unlock()
	w.publish("new one", "new two")
	w.eventually("what is new is delivered", func() bool {
		return strings.HasSuffix(strings.Join(w.got, " "), "new one new two")
	})
	w.drained(2)
}
