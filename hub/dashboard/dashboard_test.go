package dashboard

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// served is the dashboard as a hub has it, with somebody else behind it.
func served() http.Handler {
	h := New()
	mux := http.NewServeMux()
	for _, p := range h.Patterns() {
		mux.Handle(p, h)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "others", http.StatusNotFound) })
	return mux
}

func request(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	served().ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/assets/app.js": "text/javascript; charset=utf-8", "/assets/style.css": "text/css; charset=utf-8",
		"/assets/icon.svg": "image/svg+xml", "/assets/uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8", "/assets/uplot/LICENSE": "text/plain; charset=utf-8",
	} {
		w := request("GET", path)
		h := w.Header()
		if w.Code != 200 || w.Body.Len() == 0 || h.Get("Content-Type") != kind || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d, %d bytes, %v", path, w.Code, w.Body.Len(), h)
		}
		tag := h.Get("ETag")
		if again := request("GET", path, "If-None-Match", tag); len(tag) < 10 || again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s with ETag %s: %d", path, tag, again.Code)
		}
		if head := request("HEAD", path); head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") != h.Get("Content-Length") {
			t.Errorf("HEAD %s: %d, %v", path, head.Code, head.Header())
		}
	}
}

// Everything else is for others to answer: no folder is listed, no file is reached
// by another way, and a page that does not exist is not the first page.
func TestNothingElse(t *testing.T) {
	for _, path := range []string{"/assets/", "/assets", "/assets/uplot/", "/assets/index.html", "/index.html", "/devices", "/assets/app.js/", "/assets/doc.go", "/assets/%2e%2e/dashboard.go"} {
		if w := request("GET", path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "others") {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/", "/assets/app.js"} {
		if w := request("POST", path); !strings.Contains(w.Body.String(), "others") {
			t.Errorf("POST %s: %d %q", path, w.Code, w.Body)
		}
	}
	if w := httptest.NewRecorder(); true {
		New().ServeHTTP(w, httptest.NewRequest("GET", "/elsewhere", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("elsewhere: %d", w.Code)
		}
	}
}

func TestPolicy(t *testing.T) {
	got := request("GET", "/").Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self' data:", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains("; "+got+";", "; "+want+";") {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "unsafe") {
		t.Errorf("policy %q", got)
	}
}

// The page is made for the policy, and works without the network: what it names is
// one of the files.
func TestPageNamesItsFiles(t *testing.T) {
	h := New()
	names := regexp.MustCompile(`(?:src|href)="([^"#]+)"`)
	imports := regexp.MustCompile(`from '\./([a-z]+\.js)'`)
	for path, f := range h.files {
		if strings.HasPrefix(path, "/assets/uplot/") || f.kind == kinds[".svg"] {
			continue
		}
		text := string(f.data)
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "http://", "https://", " style=\"", " onclick=", "@import"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
		var named []string
		for _, m := range names.FindAllStringSubmatch(text, -1) {
			named = append(named, m[1])
		}
		for _, m := range imports.FindAllStringSubmatch(text, -1) {
			named = append(named, "/assets/"+m[1])
		}
		for _, name := range named {
			if _, ok := h.files[name]; !ok {
				t.Errorf("%s names %s, which is none of the files", path, name)
			}
		}
	}
	scripts := regexp.MustCompile(`<script[^>]*>`).FindAllString(string(h.files["/"].data), -1)
	for _, s := range scripts {
		if !strings.Contains(s, "src=") {
			t.Errorf("a script in the page: %s", s)
		}
	}
}
