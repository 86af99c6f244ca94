package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestMessageJSON(t *testing.T) {
	for _, payload := range []string{"", "text ü\n", "<a & b>", "\xff\x00", "a\x00b", `{"a":1}`} {
		m := Message{Subject: "edge.d.s", Seq: 7, Time: time.Unix(1, 0).UTC(), Headers: map[string][]string{"A": {"b"}}, Payload: []byte(payload)}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if isText := strings.Contains(string(data), `"payload":`); isText == (strings.Contains(payload, "\x00")) {
			t.Errorf("%q is written as %s", payload, data)
		}
		if payload == "<a & b>" {
			var line bytes.Buffer
			enc := json.NewEncoder(&line)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(m); err != nil || !strings.Contains(line.String(), payload) {
				t.Errorf("%q becomes %s (%v)", payload, &line, err)
			}
		}
		var got Message
		if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%q comes back as %+v (%v)", payload, got, err)
		}
	}
}

func client(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(strings.TrimPrefix(s.URL, "http://") + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, addr := range []string{"", "://", "ftp://h", "http://", "a b"} {
		if _, err := New(addr); err == nil {
			t.Errorf("address %q is accepted", addr)
		}
	}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"status":503,"title":"Service Unavailable","detail":"wait","code":"starting"}`)
	})
	var p *Problem
	if _, err := c.Status(t.Context()); !errors.As(err, &p) || p.Code != "starting" || p.Status != 503 {
		t.Errorf("a problem: %v", err)
	}
	c = client(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) })
	if _, err := c.Device(t.Context(), "d/1"); !errors.As(err, &p) || p.Code != "unknown" || p.Status != http.StatusBadGateway {
		t.Errorf("a proxy's answer: %v", err)
	}
	c = client(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") })
	if _, err := c.Devices(t.Context(), DeviceQuery{}); err == nil || !strings.Contains(err.Error(), "not what a Fieldpost hub sends") {
		t.Errorf("something else answers: %v", err)
	}
	c, err := New("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("nobody answers: %v", err)
	}
}

func TestTailEnds(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.RawQuery; got != "filter=a.%3E&from=first" {
			t.Errorf("query %s", got)
		}
		io.WriteString(w, `{"subject":"a.b","seq":1,"payload":"x"}`+"\n"+`{"subject":"a.c","seq":2,"payload_b64":"/wA="}`+"\n")
	})
	q := TailQuery{Filter: "a.>", From: "first"}
	var got []string
	err := c.Tail(t.Context(), q, func(m Message) error { got = append(got, m.Subject+string(m.Payload)); return nil })
	if !errors.Is(err, io.EOF) || strings.Join(got, " ") != "a.bx a.c\xff\x00" {
		t.Errorf("%q %v", got, err)
	}
	if err := c.Tail(t.Context(), q, func(Message) error { return io.ErrClosedPipe }); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("error of the callback: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Tail(ctx, q, func(Message) error { cancel(); return nil }); err != nil {
		t.Errorf("cancelled: %v", err)
	}
	if err := c.Tail(ctx, q, nil); err != nil {
		t.Errorf("cancelled before: %v", err)
	}
}
