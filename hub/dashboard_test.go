package hub

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// The hub has the page at its address, and answers everything else as before.
func TestDashboardIsServed(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	base := "http://" + r.Addrs().HTTP
	for _, c := range []struct {
		method, path, kind string
		status             int
	}{
		{"GET", "/", "text/html; charset=utf-8", 200},
		{"HEAD", "/", "text/html; charset=utf-8", 200},
		{"GET", "/assets/app.js", "text/javascript; charset=utf-8", 200},
		{"POST", "/", "application/problem+json", 405},
		{"GET", "/assets/", "application/problem+json", 404},
		{"GET", "/devices", "application/problem+json", 404},
		{"GET", "/v1/nothing", "application/problem+json", 404},
		{"GET", "/v1/devices?sort=labels", "application/problem+json", 400},
		{"GET", "/v1/devices?sort=name", "application/json", 200},
		{"GET", "/v1/devices?sort=oldest", "application/json", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, base+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.kind {
			t.Errorf("%s %s: %s, %s", c.method, c.path, resp.Status, resp.Header.Get("Content-Type"))
		}
		if page := strings.HasPrefix(c.kind, "text/"); page != (resp.Header.Get("Content-Security-Policy") != "") {
			t.Errorf("%s %s: policy %q", c.method, c.path, resp.Header.Get("Content-Security-Policy"))
		}
	}
}

// What waits at all devices together is in the status.
func TestStatusHasTheBacklog(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	p := r.open.Load()
	p.registry.Heartbeat("press-7", []byte(`{"version":"1","process":"p","every":30,"backlog":{"normal":{"messages":40},"bulk":{"messages":2}}}`))
	eventually(t, "the backlog", func() bool {
		var s admin.Status
		s, err := r.admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Devices.Backlog == 42
	})
}
