package hub

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// hears makes a device known with labels.
func (d *commander) hears(r *running, labels map[string]string) {
	d.t.Helper()
	data, err := json.Marshal(wire.Heartbeat{Version: "0.1", Process: "p", Every: 60, Labels: labels, Backlog: map[string]wire.LaneBacklog{}})
	if err == nil {
		err = d.nc.Publish(wire.UpSubject(d.name), data)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, "the device is known with its labels", func() bool {
		got, err := r.admin().Device(d.t.Context(), d.name)
		return err == nil && got.Online && len(got.Labels) == len(labels)
	})
}

// has asks until the device has a document, which it reports as applied.
func (d *commander) has(doc string) {
	d.t.Helper()
	got := ""
	eventually(d.t, "the device has "+doc, func() bool {
		if r := d.ask(); r.Desired != nil {
			got = string(r.Desired.Document)
			d.req.Desired = &wire.DesiredReport{Version: r.Desired.Version, State: wire.DesiredApplied, At: time.Now().UnixMilli()}
		}
		return got == doc
	})
	if r := d.ask(); r.Desired != nil {
		d.t.Errorf("it came again: %s", r.Desired.Document)
	}
}

// codeOf is the code of an error.
func codeOf(err error) string {
	if p := new(admin.Problem); errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// The whole way over HTTP, and over a restart of the hub.
func TestDesiredOverHTTP(t *testing.T) {
	dir := t.TempDir()
	r := start(t, testConfig(dir))
	a := r.admin()
	d, old := newCommander(r, "press-7"), newCommander(r, "press-8")
	d.req.Desired = &wire.DesiredReport{}
	d.hears(r, map[string]string{"site": "north"})
	old.hears(r, map[string]string{"site": "north"})
	wakes, err := d.nc.SubscribeSync("fp.wake.press-7")
	if err == nil {
		err = d.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	press, north := admin.DesiredTarget{Device: "press-7"}, admin.DesiredTarget{Label: "site=north"}
	eventually(t, "the settings are read", func() bool { _, err := a.DesiredList(t.Context(), "", 0); return err == nil })
	first, err := a.SetDesired(t.Context(), north, admin.DesiredChange{Document: json.RawMessage(`{"a":1,"agent":{"log":{"level":"debug"}}}`)})
	if err != nil || first.Label != "site=north" || first.By != "local" || first.Revision == 0 {
		t.Fatalf("%+v %v", first, err)
	}
	if _, err := wakes.NextMsg(time.Minute); err != nil {
		t.Errorf("not woken: %v", err)
	}
	d.has(`{"a":1,"agent":{"log":{"level":"debug"}}}`)
	if got := old.ask(); got.Desired != nil {
		t.Errorf("an old agent gets %s", got.Desired.Document)
	}
	if _, err := a.SetDesired(t.Context(), press, admin.DesiredChange{Document: json.RawMessage(`{"agent":null,"b":2}`)}); err != nil {
		t.Fatal(err)
	}
	d.has(`{"a":1,"b":2}`)
	stale := first.Revision + 100
	for want, err := range map[string]error{
		"changed":     second(a.SetDesired(t.Context(), north, admin.DesiredChange{Document: json.RawMessage(`{}`), Revision: &stale})),
		"bad_request": second(a.SetDesired(t.Context(), north, admin.DesiredChange{Document: json.RawMessage(`{"agent":{"nothing":1}}`)})),
		"not_found":   second(a.SetDesired(t.Context(), admin.DesiredTarget{Device: "other"}, admin.DesiredChange{})),
		"too_large":   second(a.SetDesired(t.Context(), press, admin.DesiredChange{Document: json.RawMessage(`{"a":"` + strings.Repeat("x", wire.MaxDesired) + `"}`)})),
	} {
		if codeOf(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := a.SetDesired(t.Context(), north, admin.DesiredChange{Document: json.RawMessage(`{"a":null,"c":3}`), Merge: true, Revision: &first.Revision}); err != nil {
		t.Fatal(err)
	}
	d.has(`{"agent":{"log":{"level":"debug"}},"b":2,"c":3}`)
	r.stop()

	r = start(t, testConfig(dir))
	a = r.admin()
	again := newCommander(r, "press-7")
	again.req.Desired = d.req.Desired
	eventually(t, "the settings are read", func() bool { _, err := a.DesiredDevice(t.Context(), "press-7"); return err == nil })
	if got := again.ask(); got.Desired != nil {
		t.Errorf("after the restart: %s", got.Desired.Document)
	}
	got, err := a.DesiredDevice(t.Context(), "press-7")
	if err != nil || got.State != admin.DesiredApplied || len(got.Documents) != 2 || got.Report == nil || got.Version != again.req.Desired.Version {
		t.Errorf("%+v %v", got, err)
	}
	if l, err := a.DesiredLabel(t.Context(), "site=north"); err != nil || l.Devices != 2 || l.States[admin.DesiredApplied] != 1 || l.States[admin.DesiredNotYet] != 1 {
		t.Errorf("%+v %v", l, err)
	}
	if l, err := a.DesiredList(t.Context(), "", 1); err != nil || len(l.Documents) != 1 || l.Next == "" {
		t.Errorf("%+v %v", l, err)
	}
	again.hears(r, map[string]string{"line": "4", "x": "y"}) // it is somewhere else now
	again.has(`{"b":2}`)
	if _, err := a.SetDesired(t.Context(), press, admin.DesiredChange{}); err != nil {
		t.Error(err)
	}
	again.has(`{}`)
	audit := r.entries()
	for _, want := range []string{"local desired_set site=north: done", "local desired_set site=north: failed: ", "local desired_remove press-7: done"} {
		if !slices.ContainsFunc(audit, func(e string) bool { return strings.Contains(e, want) }) {
			t.Errorf("%q is not in the audit:\n%s", want, strings.Join(audit, "\n"))
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestDesiredRequestsThatAreRefused(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	eventually(t, "the settings are read", func() bool { status, _ := r.get("/v1/desired"); return status == 200 })
	do := func(method, path, body string, header ...string) int {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+r.Addrs().HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		want         int
		method, path string
		body         string
		header       []string
	}{
		{400, "PUT", "/v1/desired", `{}`, nil},
		{400, "PUT", "/v1/desired?label=site", `{}`, nil},
		{400, "PUT", "/v1/devices/a.b/desired", `{}`, nil},
		{400, "PUT", "/v1/devices/x/desired", `[]`, nil},
		{400, "PATCH", "/v1/devices/x/desired", `{"a":1,"a":2}`, nil},
		{400, "PUT", "/v1/devices/x/desired", `{}`, []string{"If-Match", "*"}},
		{412, "PUT", "/v1/devices/x/desired", `{}`, []string{"If-Match", `"7"`}},
		{413, "PUT", "/v1/devices/x/desired", strings.Repeat(" ", maxDesiredBody+1), nil},
		{415, "PUT", "/v1/devices/x/desired", `{}`, []string{"Content-Type", "text/plain"}},
		{403, "PUT", "/v1/devices/x/desired", `{}`, []string{"Origin", "http://evil.example"}},
		{403, "DELETE", "/v1/devices/x/desired", ``, []string{"Sec-Fetch-Site", "cross-site"}},
		{404, "DELETE", "/v1/devices/x/desired", ``, nil},
		{400, "GET", "/v1/desired?label=x", ``, nil},
		{400, "GET", "/v1/desired?limit=0", ``, nil},
		{200, "PUT", "/v1/desired?label=a%20b%3Dc%20d", `{}`, []string{"If-Match", "0"}},
		{200, "PATCH", "/v1/devices/x/desired", `{"a":null}`, []string{"Content-Type", "application/merge-patch+json"}},
		{200, "GET", "/v1/devices/x/desired", ``, nil},
	} {
		if got := do(c.method, c.path, c.body, c.header...); got != c.want {
			t.Errorf("%s %s %.40q %v: %d, want %d", c.method, c.path, c.body, c.header, got, c.want)
		}
	}
}

// Two instances share what is wanted: one writes, the other one hands out.
func TestDesiredOnTwoInstances(t *testing.T) {
	url := external(t)
	a, b := start(t, clusterConfig(t, url)), start(t, clusterConfig(t, url))
	nc, err := nats.Connect(url, nats.CustomInboxPrefix(wire.InboxPrefix("press-7")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	st, err := a.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := &commander{t: t, nc: nc, name: "press-7", req: wire.CommandRequest{HubID: st.HubID, Room: 1 << 20, Desired: &wire.DesiredReport{}}}
	d.hears(a, map[string]string{"site": "north"})
	d.hears(b, map[string]string{"site": "north"})
	set := func(r *running, doc string) {
		t.Helper()
		eventually(t, "it is set", func() bool {
			_, err := r.admin().SetDesired(t.Context(), admin.DesiredTarget{Label: "site=north"}, admin.DesiredChange{Document: json.RawMessage(doc)})
			return err == nil
		})
	}
	set(a, `{"a":1}`)
	d.has(`{"a":1}`)
	set(b, `{"b":1}`)
	d.has(`{"b":1}`)
	a.stop()
	set(b, `{"c":1}`)
	d.has(`{"c":1}`)
}
