package hub

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Pages of other sites change nothing, whatever their browsers can be made to send.
func TestForeignPages(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	for _, c := range []struct {
		name, host, origin, site string
		want                     bool
	}{
		{"a program", "127.0.0.1:8420", "", "", false},
		{"a program, by name", "hub.example:8420", "", "", false},
		{"typed into a browser", "127.0.0.1:8420", "", "none", false},
		{"its own page", "127.0.0.1:8420", "http://127.0.0.1:8420", "same-origin", false},
		{"its own page, IPv6", "[::1]:8420", "http://[::1]:8420", "", false},
		{"its own page, localhost", "localhost:8420", "http://localhost:8420", "", false},
		{"another site", "127.0.0.1:8420", "", "cross-site", true},
		{"another port", "127.0.0.1:8420", "http://127.0.0.1:3000", "same-site", true},
		{"an old browser", "127.0.0.1:8420", "https://evil.example", "", true},
		{"a sandboxed page", "127.0.0.1:8420", "null", "", true},
		{"a name that points here", "evil.example:8420", "http://evil.example:8420", "", true},
	} {
		for _, to := range []string{
			"POST /v1/ack", "POST /v1/import", "POST /v1/dead/retry", "POST /v1/dead/purge", "POST /v1/routes/EDGE/backfill", "DELETE /v1/devices/d",
		} {
			method, path, _ := strings.Cut(to, " ")
			req := httptest.NewRequest(method, path, strings.NewReader("?"))
			req.Host = c.host
			req.Header.Set("Content-Type", "application/json")
			for key, v := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
				if v != "" {
					req.Header.Set(key, v)
				}
			}
			w := httptest.NewRecorder()
			r.routes().ServeHTTP(w, req)
			if got := w.Code == http.StatusForbidden; got != c.want {
				t.Errorf("%s, %s: %d %s", c.name, to, w.Code, w.Body)
			}
		}
	}
}
