package hub

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/desired"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxDesiredBody is a document at its limit, written in the least favourable way.
const maxDesiredBody = 512 << 10

// openDesired makes what keeps desired settings; it knows nothing before it runs.
func (p *parts) openDesired() (err error) {
	cfg, m := p.hub.cfg, p.hub.metrics
	p.desired, err = desired.New(desired.Config{
		Store: p.store, Conn: p.conn, Devices: p.registry,
		Rejected: func(reason string) { m.rejected(reason).Inc() },
		Fault:    cfg.Fault, Log: cfg.Log, Now: cfg.Now,
	})
	return err
}

func (h *Hub) desiredRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/desired", h.listDesired)
	mux.HandleFunc("GET /v1/devices/{device}/desired", h.showDesired)
	for _, path := range []string{"/v1/desired", "/v1/devices/{device}/desired"} {
		for _, method := range []string{"PUT ", "PATCH ", "DELETE "} {
			mux.HandleFunc(method+path, h.setDesired)
		}
	}
}

// desiredTarget is the device of the path, or the label of the query, or an answer.
func desiredTarget(w http.ResponseWriter, r *http.Request) (t desired.Target, ok bool) {
	var err error
	if t.Device = r.PathValue("device"); t.Device != "" {
		err = wire.CheckDevice(t.Device)
	} else if s := r.URL.Query().Get("label"); s != "" {
		t, err = desired.ParseLabel(s)
	} else {
		err = errors.New("say for whom: /v1/devices/{device}/desired, or /v1/desired?label=site=north")
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
	}
	return t, err == nil
}

// setDesired is PUT, PATCH and DELETE of the document of a device or a label.
func (h *Hub) setDesired(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil || !own(w, r) {
		return
	}
	t, ok := desiredTarget(w, r)
	if !ok {
		return
	}
	c := desired.Change{Target: t, By: actor(r), Merge: r.Method == http.MethodPatch, Remove: r.Method == http.MethodDelete}
	if c.Revision, ok = ifMatch(w, r); !ok {
		return
	}
	action := "desired_remove"
	if !c.Remove {
		action = "desired_set"
		if c.Document, ok = readDocument(w, r); !ok {
			return
		}
	}
	done, ok := p.audited(w, r, action, t.String())
	if !ok {
		return
	}
	doc, err := p.desired.Set(r.Context(), c)
	done(outcome(err))
	if err != nil {
		desiredFailed(w, err)
		return
	}
	writeJSON(w, doc)
}

// ifMatch reads the revision that is to be changed; nil: any.
func ifMatch(w http.ResponseWriter, r *http.Request) (*uint64, bool) {
	s := r.Header.Get("If-Match")
	if s == "" {
		return nil, true
	}
	n, err := strconv.ParseUint(strings.Trim(s, `"`), 10, 64)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("If-Match %.40q is not a revision, such as 12; 0 is that of what is not set", s))
		return nil, false
	}
	return &n, true
}

// readDocument reads the body, which is checked where it is set.
func readDocument(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/merge-patch+json" {
		problem(w, http.StatusUnsupportedMediaType, "bad_request", `the body is a JSON object like {"agent":{"log":{"level":"debug"}}}; send Content-Type: application/json`)
		return nil, false
	}
	data, err := io.ReadAll(r.Body) // bounded by the server
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		problem(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes, and a document has %d at most", large.Limit, wire.MaxDesired))
	case err != nil:
		problem(w, http.StatusBadRequest, "bad_request", "the body does not come to its end: "+err.Error())
	}
	return data, err == nil
}

// desiredFailed says which answer an error is.
func desiredFailed(w http.ResponseWriter, err error) {
	status, code, next := http.StatusServiceUnavailable, "unavailable", "; look whether it was changed, and try again"
	switch {
	case errors.Is(err, desired.ErrInvalid):
		status, code, next = http.StatusBadRequest, "bad_request", ""
	case errors.Is(err, desired.ErrNone):
		status, code, next = http.StatusNotFound, "not_found", ""
	case errors.Is(err, desired.ErrChanged):
		status, code, next = http.StatusPreconditionFailed, "changed", ""
	case errors.Is(err, desired.ErrLarge):
		status, code, next = http.StatusRequestEntityTooLarge, "too_large", ""
	case errors.Is(err, desired.ErrFull):
		status, code, next = http.StatusInsufficientStorage, "full", ""
	case errors.Is(err, desired.ErrLoading):
		code, next = "starting", "; try again in a moment"
	}
	detail := strings.ToValidUTF8(strings.TrimPrefix(err.Error(), "desired: "), string(utf8.RuneError))
	problem(w, status, code, detail+next)
}

// showDesired is GET /v1/devices/{device}/desired.
func (h *Hub) showDesired(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	t, ok := desiredTarget(w, r)
	if !ok {
		return
	}
	out, err := p.desired.Device(r.Context(), t.Device)
	if err != nil {
		desiredFailed(w, err)
		return
	}
	writeJSON(w, out)
}

// listDesired is GET /v1/desired: one label, or a page of everything that is set.
func (h *Hub) listDesired(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	v, limit := r.URL.Query(), pageDefault
	if v.Has("label") {
		t, ok := desiredTarget(w, r)
		if !ok {
			return
		}
		h.patient(w, answerTimeout)
		out, err := p.desired.Label(r.Context(), t)
		if err != nil {
			desiredFailed(w, err)
			return
		}
		writeJSON(w, out)
		return
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > pageMax {
			problem(w, http.StatusBadRequest, "bad_limit", fmt.Sprintf("limit %q is not 1 to %d", s, pageMax))
			return
		}
		limit = n
	}
	page, next, err := p.desired.List(v.Get("after"), limit)
	if err != nil {
		desiredFailed(w, err)
		return
	}
	writeJSON(w, admin.DesiredList{Documents: page, Next: next})
}
