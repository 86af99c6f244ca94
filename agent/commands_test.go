package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// commanded is an agent and what a hub would say to it.
type commanded struct {
	*world
	seq uint64
}

func (w *commanded) command(id, subject, payload string) {
	w.t.Helper()
	w.seq++
	s := w.a.commands
	asked := s.Ask(0)
	r := &wire.CommandReply{Stream: "s", Next: w.seq, Commands: []wire.Command{{
		ID: id, Seq: w.seq, Subject: subject, Payload: []byte(payload), Sent: 1, TTL: 3_600_000, AckWait: 30_000, MaxDeliver: 3,
	}}}
	if all, err := s.Take(asked, r); err != nil || !all {
		w.t.Fatalf("take: %v %v", all, err)
	}
}

// report is what the hub would be told of a command.
func (w *commanded) report(id string) wire.CommandReport {
	for _, r := range w.a.commands.Ask(0).Reports {
		if r.ID == id {
			return r
		}
	}
	return wire.CommandReport{}
}

func TestCommandsOverHTTP(t *testing.T) {
	w := &commanded{world: start(t, nil)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lines := func(query, accept string) *bufio.Scanner {
		req, err := http.NewRequestWithContext(ctx, "GET", "http://agent/v1/commands"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := w.http.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("subscribe: %v %v", resp, err)
		}
		return bufio.NewScanner(resp.Body)
	}
	w.command("a", "set.speed", `{"rpm":3}`)
	w.command("b", "set.raw", "\xff\x00")
	w.command("c", "other", "")
	in := lines("?filter=set.*&max=2", "")
	for _, want := range []string{`"id":"a","subject":"set.speed","payload":"{\"rpm\":3}","deliveries":1,`, `"id":"b","subject":"set.raw","payload_b64":"/wA=",`} {
		if !in.Scan() || !strings.Contains(in.Text(), want) {
			t.Errorf("got %s, want %s", in.Text(), want)
		}
	}
	events := lines("", "text/event-stream")
	for _, want := range []string{"id: c", `data: {"id":"c",`} {
		if !events.Scan() || !strings.HasPrefix(events.Text(), want) {
			t.Errorf("got %s, want %s", events.Text(), want)
		}
	}
	var st struct {
		Commands struct{ Pending, Leased, Reports int } `json:"commands"`
	}
	if r := w.do("GET", "/v1/status", ""); json.Unmarshal([]byte(r.body), &st) != nil || st.Commands.Pending != 3 || st.Commands.Leased != 3 {
		t.Errorf("status %+v", st)
	}
	long := strings.Repeat("r", wire.MaxCommandResult+1)
	for _, x := range []struct {
		path, body string
		code       int
	}{
		{"a/ack", long, 413}, {"a/ack", "done", 204}, {"a/ack", "again", 204}, {"a/term", "", 409}, {"a/nak", "", 409},
		{"b/term", "cannot", 204}, {"b/term", "", 204}, {"b/ack", "", 409},
		{"c/nak", "busy", 204}, {"c/nak", "busy", 204}, {"c/eat", "", 404}, {"zz/ack", "", 404},
	} {
		if r := w.do("POST", "/v1/commands/"+x.path, x.body); r.status != x.code {
			t.Errorf("%s: %d %s, want %d", x.path, r.status, r.body, x.code)
		}
	}
	if r := w.report("a"); r.State != wire.CommandAcked || string(r.Result) != "done" {
		t.Errorf("%+v", r)
	}
	if r := w.report("b"); r.State != wire.CommandFailed || r.Reason != "cannot" {
		t.Errorf("%+v", r)
	}
	page := w.do("GET", "/metrics", "").body
	for _, want := range []string{`{to="acked"} 1`, `{to="failed"} 1`, `{to="returned"} 1`, `{to="leased"} 3`, `{to="delivered"} 3`} {
		if !strings.Contains(page, "fieldpost_agent_command_transitions_total"+want) {
			t.Errorf("no %s", want)
		}
	}
	for _, path := range []string{"?filter=a..b", "?max=0", "?max=65", "?max=x", "?what=1"} {
		if r := w.do("GET", "/v1/commands"+path, ""); r.status != 400 {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}

// Subscribe acks with the result, gives back after an error, terminates, and
// goes on with an agent that was restarted.
func TestClientSubscribe(t *testing.T) {
	w := &commanded{world: start(t, nil)}
	c := w.dial()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	done := make(chan error, 1)
	go func() {
		done <- c.SubscribeMany(ctx, "set.>", 3, func(_ context.Context, c client.Command) ([]byte, error) {
			mu.Lock()
			seen = append(seen, fmt.Sprintf("%s/%d", c.ID, c.Deliveries))
			mu.Unlock()
			switch string(c.Payload) {
			case "fail":
				if c.Deliveries == 1 {
					return nil, errors.New("not yet")
				}
			case "never":
				return nil, fmt.Errorf("%w: no such valve", client.ErrTerminate)
			}
			return []byte("did " + c.ID), nil
		})
	}()
	w.command("a", "set.a", "do")
	w.command("b", "set.b", "never")
	w.command("c", "set.c", "fail")
	w.eventually("all are settled", func() bool { return w.a.commands.Status().Pending == 0 })
	if r := w.report("a"); r.State != wire.CommandAcked || string(r.Result) != "did a" {
		t.Errorf("%+v", r)
	}
	if r := w.report("b"); r.State != wire.CommandFailed || !strings.Contains(r.Reason, "no such valve") {
		t.Errorf("%+v", r)
	}
	if r := w.report("c"); r.State != wire.CommandAcked || r.Deliveries != 2 {
		t.Errorf("%+v", r)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Subscribe does not end")
	}
	if err := c.Subscribe(t.Context(), "a..b", nil); !errors.Is(err, &client.Error{Code: "bad_subject"}) {
		t.Errorf("bad filter: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Subscribe(t.Context(), ">", nil) }()
	c.Close()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Subscribe does not end when the client is closed")
	}
}
