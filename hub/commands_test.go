package hub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// commander is a device that asks for commands by hand.
type commander struct {
	t    *testing.T
	nc   *nats.Conn
	name string
	req  wire.CommandRequest
}

func newCommander(r *running, name string) *commander {
	r.t.Helper()
	nc, err := nats.Connect("nats://"+r.Addrs().NATS, nats.CustomInboxPrefix(wire.InboxPrefix(name)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	st, err := r.admin().Status(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return &commander{t: r.t, nc: nc, name: name, req: wire.CommandRequest{HubID: st.HubID, Room: 1 << 20}}
}

func (d *commander) ask() *wire.CommandReply {
	d.t.Helper()
	data, err := json.Marshal(d.req)
	if err != nil {
		d.t.Fatal(err)
	}
	var reply *wire.CommandReply
	eventually(d.t, "an answer", func() bool {
		m, err := d.nc.Request(wire.UpSubject(d.name), data, 20*time.Second)
		if errors.Is(err, nats.ErrNoResponders) {
			return false
		}
		if err != nil {
			d.t.Fatal(err)
		}
		if reply, err = wire.ParseCommandReply(m.Data); err != nil {
			d.t.Fatal(err)
		}
		return reply.Error == nil
	})
	d.req.Stream, d.req.After, d.req.Reports = reply.Stream, reply.Next, nil
	return reply
}

func (d *commander) report(id string, s wire.CommandState) {
	d.t.Helper()
	d.req.Reports = append(d.req.Reports, wire.CommandReport{ID: id, State: s, At: time.Now().UnixMilli(), Deliveries: 2, Result: []byte("open\n")})
	if r := d.ask(); len(r.Noted) != 1 || r.Noted[0] != id {
		d.t.Fatalf("noted: %v", r.Noted)
	}
}

// TestReadyHubAnswersDevices: a request right after the start is not lost.
func TestReadyHubAnswersDevices(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "commands:listen" {
			time.Sleep(300 * time.Millisecond) // as long as all others need, and longer
		}
		return nil
	}
	r := start(t, cfg)
	d := newCommander(r, "press-7")
	data, err := json.Marshal(d.req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.nc.Request(wire.UpSubject(d.name), data, 5*time.Second); err != nil {
		t.Errorf("the hub is ready, and a device that asks hears nothing: %v", err)
	}
}

// The whole way over HTTP, and over a restart of the hub.
func TestCommandOverHTTP(t *testing.T) {
	dir := t.TempDir()
	r := start(t, testConfig(dir))
	a := r.admin()
	sent, err := a.Send(t.Context(), "press-7", admin.NewCommand{Subject: "valve.set", JSON: json.RawMessage(`{"open":true}`), TTL: "1h"}, 0)
	if err != nil || sent.State != wire.CommandPending || sent.ID == "" {
		t.Fatalf("sent: %+v, %v", sent, err)
	}
	if got, err := a.Command(t.Context(), sent.ID); err != nil || string(got.Payload) != `{"open":true}` {
		t.Errorf("shown: %+v, %v", got, err)
	}
	if got, err := a.Send(t.Context(), "press-7", admin.NewCommand{Subject: "valve.set", ID: "waits"}, 10*time.Millisecond); err != nil || got.State != wire.CommandPending {
		t.Errorf("waited for: %+v, %v", got, err)
	}
	d := newCommander(r, "press-7")
	if got := d.ask().Commands; len(got) != 2 || got[0].ID != sent.ID || string(got[0].Payload) != `{"open":true}` {
		t.Fatalf("handed out: %+v", got)
	}
	r.stop()
	r = start(t, testConfig(dir))
	a = r.admin()
	again := newCommander(r, "press-7")
	again.req.Stream, again.req.After = d.req.Stream, d.req.After
	if got := again.ask(); len(got.Commands) != 0 || got.Stream != d.req.Stream {
		t.Errorf("after the restart: %+v", got)
	}
	again.report(sent.ID, wire.CommandDelivered)
	done := make(chan error, 1)
	go func() {
		got, err := a.Send(t.Context(), "press-7", admin.NewCommand{Subject: "valve.set", JSON: json.RawMessage(`{"open":true}`), ID: sent.ID}, time.Minute)
		if err == nil && (got.State != wire.CommandAcked || string(got.Result) != "open\n" || got.Deliveries != 2) {
			err = fmt.Errorf("%+v", got)
		}
		done <- err
	}()
	again.report(sent.ID, wire.CommandAcked)
	if err := <-done; err != nil {
		t.Errorf("waited for: %v", err)
	}
	if got, err := a.CancelCommand(t.Context(), "waits"); err != nil || !got.Cancelling {
		t.Errorf("cancelled: %+v, %v", got, err)
	}
	if got := again.ask().Cancel; len(got) != 1 || got[0] != "waits" {
		t.Errorf("to give up: %v", got)
	}
	again.report("waits", wire.CommandFailed)
	page, err := a.Commands(t.Context(), admin.CommandQuery{Device: "press-7", State: "failed"})
	if err != nil || len(page.Commands) != 1 || page.Commands[0].ID != "waits" {
		t.Errorf("list: %+v, %v", page, err)
	}
	l := letters(t, a, 1)[0]
	if l.Stream != "COMMANDS" || l.Subject != "fp.cmd.press-7" || l.Reason != "failed" || l.Deliveries != 2 || !strings.Contains(l.Refusal, "fieldpost-hub send") {
		t.Errorf("letter: %+v", l)
	}
	if _, body := r.get("/metrics"); !strings.Contains(body, `fieldpost_hub_command_transitions_total{to="acked"} 1`) || !strings.Contains(body, `fieldpost_hub_command_transitions_total{to="expired"} 0`) ||
		!strings.Contains(body, `fieldpost_hub_dead_total{reason="failed"} 1`) || !strings.Contains(body, `fieldpost_hub_stream_bytes{stream="COMMANDS"}`) {
		t.Errorf("metrics: %s", body)
	}
	// Requests are no heartbeats.
	if _, err := a.Device(t.Context(), "press-7"); err == nil {
		t.Error("a request for commands has made a device known")
	}
}

func TestCommandGroupByLabels(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a, nc := r.admin(), r.connect()
	for name, site := range map[string]string{"n1": "north", "n2": "north", "s1": "south"} {
		data, err := json.Marshal(wire.Heartbeat{Process: "p", Every: 60, Labels: map[string]string{"site": site}})
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(wire.UpSubject(name), data); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are known", func() bool {
		page, err := a.Devices(t.Context(), admin.DeviceQuery{})
		return err == nil && page.Total == 3
	})
	n := admin.NewCommand{ID: "g1", Subject: "update.now", Labels: map[string]string{"site": "north"}}
	for range 2 {
		if g, err := a.SendGroup(t.Context(), n); err != nil || g.Devices != 2 || g.States[wire.CommandPending] != 2 || !g.Complete {
			t.Fatalf("group: %+v, %v", g, err)
		}
	}
	d := newCommander(r, "n1")
	got := d.ask().Commands
	if len(got) != 1 || got[0].Subject != "update.now" {
		t.Fatalf("handed out: %+v", got)
	}
	d.report(got[0].ID, wire.CommandAcked)
	if g, err := a.CommandGroup(t.Context(), "g1"); err != nil || g.States[wire.CommandAcked] != 1 || g.States[wire.CommandPending] != 1 {
		t.Errorf("group: %+v, %v", g, err)
	}
	if page, err := a.Commands(t.Context(), admin.CommandQuery{Group: "g1"}); err != nil || len(page.Commands) != 2 {
		t.Errorf("list: %+v, %v", page, err)
	}
}

func TestCommandRefusals(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Commands.MaxPending = 2
	r := start(t, cfg)
	base := "http://" + r.Addrs().HTTP
	do := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if method == http.MethodPost {
			req.Header.Set("Content-Type", "application/json")
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var p admin.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		return resp.StatusCode, p.Code
	}
	const one = "/v1/devices/d/commands"
	big, err := json.Marshal(admin.NewCommand{Subject: "x", PayloadB64: bytes.Repeat([]byte("x"), wire.MaxCommand+1)})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", one, `{"subject":"x","extra":1}`, 400, "bad_request"},
		{"POST", one, `{"subject":"a..b"}`, 400, "bad_request"},
		{"POST", one, `{}`, 400, "bad_request"},
		{"POST", one, `{"subject":"x","ttl":"1ms"}`, 400, "bad_request"},
		{"POST", one, `{"subject":"x","id":"a.b"}`, 400, "bad_request"},
		{"POST", one, `{"subject":"x","payload":"a","json":1}`, 400, "bad_request"},
		{"POST", one, `{"subject":"x","labels":{"a":"b"}}`, 400, "bad_request"},
		{"POST", "/v1/commands", `{"subject":"x"}`, 400, "bad_request"},
		{"POST", "/v1/devices/a.b/commands", `{"subject":"x"}`, 400, "bad_request"},
		{"POST", one + "?wait=1h", `{"subject":"x"}`, 400, "bad_request"},
		{"POST", one, string(big), 413, "too_large"},
		{"POST", one, `{"subject":"x","payload":"` + strings.Repeat("x", maxCommandBody) + `"}`, 413, "too_large"},
		{"POST", one, `{"subject":"x","id":"c1"}`, 201, ""},
		{"POST", "/v1/devices/other/commands", `{"subject":"x","id":"c1"}`, 409, "id_taken"},
		{"POST", one, `{"subject":"x","id":"c1","payload":"y"}`, 409, "id_taken"},
		{"POST", one, `{"subject":"y","id":"c1"}`, 409, "id_taken"},
		{"POST", one, `{"subject":"x","payload":"a"}`, 201, ""},
		{"POST", one, `{"subject":"x"}`, 429, "max_pending"},
		{"POST", one, `{"subject":"x","id":"c1"}`, 201, ""},
		{"GET", "/v1/commands?state=lost", "", 400, "bad_request"},
		{"GET", "/v1/commands?limit=0", "", 400, "bad_limit"},
		{"GET", "/v1/commands?after=x", "", 400, "bad_request"},
		{"GET", "/v1/commands?device=*", "", 400, "bad_request"},
		{"GET", "/v1/commands/unknown", "", 404, "not_found"},
		{"GET", "/v1/commands/*", "", 400, "bad_request"},
		{"GET", "/v1/commands/groups/unknown", "", 404, "not_found"},
		{"DELETE", "/v1/commands/unknown", "", 404, "not_found"},
		{"DELETE", "/v1/commands/c1", "", 200, ""},
	} {
		if status, code := do(c.method, c.path, c.body); status != c.status || code != c.code {
			t.Errorf("%d: %s %s %.40s: %d %s, want %d %s", i, c.method, c.path, c.body, status, code, c.status, c.code)
		}
	}
	for _, c := range []struct{ method, path string }{{"POST", one}, {"POST", "/v1/commands"}, {"DELETE", "/v1/commands/c1"}} {
		if status, code := do(c.method, c.path, `{"subject":"x"}`, "Sec-Fetch-Site", "cross-site"); status != 403 || code != "forbidden" {
			t.Errorf("%s %s from another site's page: %d %s", c.method, c.path, status, code)
		}
	}
}

func TestCommandsWithoutRoom(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Commands.MaxBytes = Size{Bytes: 3 << 20} // a third of it is that of COMMANDS
	r := start(t, cfg)
	a := r.admin()
	var p *admin.Problem
	for i := range 10 {
		_, err := a.Send(t.Context(), fmt.Sprintf("d%d", i), admin.NewCommand{Subject: "x", PayloadB64: make([]byte, 200<<10)}, 0)
		if errors.As(err, &p) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if p == nil || p.Status != 507 || p.Code != "full" || !strings.Contains(p.Detail, "commands.max_bytes") {
		t.Fatalf("without room: %+v", p)
	}
	eventually(t, "a note says so", func() bool {
		st, err := a.Status(t.Context())
		return err == nil && st.Ready && strings.Contains(strings.Join(st.Notes, " "), "COMMANDS is full")
	})
}
