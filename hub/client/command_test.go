package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// sender is a client of a hub that answers as told.
func sender(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	a, err := admin.New(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return &Client{admin: a, life: t.Context()}
}

// Whoever waits longer than one request does goes on with the same command.
func TestSendAndWait(t *testing.T) {
	asked := 0
	c := sender(t, func(w http.ResponseWriter, r *http.Request) {
		var n admin.NewCommand
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || r.URL.Path != "/v1/devices/press-7/commands" || r.URL.Query().Get("wait") == "" ||
			n.Subject != "valve.set" || string(n.PayloadB64) != "x" || n.TTL != "1h0m0s" {
			t.Errorf("%s: %+v, %v", r.URL, n, err)
		}
		asked++
		if asked == 1 {
			w.WriteHeader(http.StatusAccepted)
			w.Write([]byte(`{"id":"c1","state":"delivered"}`))
			return
		}
		if n.ID != "c1" {
			t.Errorf("asked again for %q", n.ID)
		}
		w.Write([]byte(`{"id":"c1","state":"acked","result_b64":"b2s="}`))
	})
	got, err := c.SendAndWait(t.Context(), Command{Device: "press-7", Subject: "valve.set", Payload: []byte("x"), TTL: time.Hour})
	if err != nil || got.State != wire.CommandAcked || string(got.Result) != "ok" || asked != 2 {
		t.Errorf("%+v, %v, asked %d times", got, err, asked)
	}
}

func TestSendIsAnsweredOrRefused(t *testing.T) {
	c := sender(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("wait") {
			t.Error("Send waits")
		}
		if r.URL.Path == "/v1/devices/full/commands" {
			w.WriteHeader(http.StatusTooManyRequests)
			w.Write([]byte(`{"title":"Too Many Requests","detail":"wait","code":"max_pending"}`))
			return
		}
		w.WriteHeader(http.StatusCreated)
		w.Write([]byte(`{"id":"c1","state":"pending"}`))
	})
	if got, err := c.Send(t.Context(), Command{Device: "press-7", Subject: "x"}); err != nil || got.ID != "c1" {
		t.Errorf("%+v, %v", got, err)
	}
	var p *admin.Problem
	if _, err := c.Send(t.Context(), Command{Device: "full", Subject: "x"}); !errors.As(err, &p) || p.Code != "max_pending" {
		t.Errorf("refused: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.SendAndWait(ctx, Command{Device: "press-7", Subject: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
