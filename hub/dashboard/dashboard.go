package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"time"
)

//go:embed static
var static embed.FS

// policy lets a page of the dashboard load and ask its own hub, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// kinds are the content types by file name's end. The system's own table is not
// asked: some say that a script is text, and browsers refuse that.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".svg": "image/svg+xml", "": "text/plain; charset=utf-8",
}

type file struct {
	kind, etag string
	data       []byte
}

// Handler serves the dashboard's files to GET and HEAD.
type Handler struct {
	files map[string]file // by URL path
}

// New reads the files.
func New() *Handler {
	h := &Handler{files: map[string]file{}}
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s has no content type", name)
		}
		at := "/assets/" + name[len("static/"):]
		if at == "/assets/index.html" {
			at = "/"
		}
		sum := sha256.Sum256(data)
		h.files[at] = file{kind: kind, etag: `"` + hex.EncodeToString(sum[:12]) + `"`, data: data}
		return nil
	})
	if err != nil {
		panic("dashboard: " + err.Error()) // of files that are part of the program
	}
	return h
}

// Patterns are what a ServeMux hands to the Handler: each file's path, and no
// folder, so that all others stay with whoever answers them.
func (h *Handler) Patterns() []string {
	out := slices.Sorted(maps.Keys(h.files))
	for i, p := range out {
		if p == "/" {
			p = "/{$}"
		}
		out[i] = "GET " + p
	}
	return out
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := h.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	head := w.Header()
	head.Set("Content-Type", f.kind)
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Opener-Policy", "same-origin")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Kept, and asked about each time: another version of the hub has other files.
	head.Set("Cache-Control", "no-cache")
	head.Set("ETag", f.etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}
