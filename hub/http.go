package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/dashboard"
	"github.com/fieldpost/fieldpost/hub/registry"
)

// Limits of the HTTP server.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	answerTimeout = 30 * time.Second // of an answer, or of one write of a tail
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	maxBody       = 64 << 10
	maxTails      = 64
	pageDefault   = 100
	pageMax       = 1000
)

// serveHTTP answers on ln until ctx ends; tails end with it.
func (h *Hub) serveHTTP(ctx context.Context, ln net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	srv := &http.Server{
		Handler:           h.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("http.listen: %w", err)
	case <-ctx.Done():
	}
	cancel()
	last, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	if err := srv.Shutdown(last); err != nil {
		srv.Close()
	}
	<-failed
	return nil
}

func (h *Hub) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") })
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /metrics", h.metricsPage)
	mux.HandleFunc("GET /v1/status", h.status)
	mux.HandleFunc("GET /v1/devices", h.devices)
	mux.HandleFunc("GET /v1/devices/{device}", h.device)
	mux.HandleFunc("DELETE /v1/devices/{device}", h.forgetDevice)
	mux.HandleFunc("GET /v1/devices/{device}/trace", h.trace)
	mux.HandleFunc("GET /v1/routes", h.listRoutes)
	mux.HandleFunc("POST /v1/routes/{stream}/backfill", h.backfill)
	mux.HandleFunc("GET /v1/tail", h.tail)
	mux.HandleFunc("GET /v1/messages", h.messages)
	h.deadRoutes(mux)
	h.commandRoutes(mux)
	h.desiredRoutes(mux)
	page := dashboard.New()
	for _, pattern := range page.Patterns() {
		mux.Handle(pattern, page)
	}
	mux.HandleFunc("GET /v1/audit", h.listAudit)
	for path, or := range map[string]string{"/v1/ack": "", "/v1/import": ", or `fieldpost-hub import FILE`"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "POST")
			problem(w, http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not offered here; use POST"+or)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			problem(w, http.StatusMethodNotAllowed, "method_not_allowed", r.Method+" is not offered here; use GET")
			return
		}
		problem(w, http.StatusNotFound, "not_found", "no such page; there are /healthz, /readyz, /metrics, /v1/status, /v1/devices, /v1/routes, /v1/dead, /v1/commands, /v1/desired, /v1/audit, /v1/tail, /v1/messages, /v1/ack and /v1/import")
	})
	all := http.NewServeMux()
	all.HandleFunc("POST /v1/import", h.importFile) // the only body without a limit
	all.Handle("POST /v1/ack", http.MaxBytesHandler(http.HandlerFunc(h.ack), maxAckBody))
	for _, path := range []string{"POST /v1/commands", "POST /v1/devices/{device}/commands"} {
		all.Handle(path, http.MaxBytesHandler(mux, maxCommandBody))
	}
	for _, path := range []string{"PUT /v1/desired", "PATCH /v1/desired", "PUT /v1/devices/{device}/desired", "PATCH /v1/devices/{device}/desired"} {
		all.Handle(path, http.MaxBytesHandler(mux, maxDesiredBody))
	}
	all.Handle("/", http.MaxBytesHandler(mux, maxBody))
	return all
}

// problem answers with application/problem+json.
func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "2")
	}
	w.WriteHeader(status)
	encode(w, admin.Problem{Status: status, Title: http.StatusText(status), Detail: detail, Code: code})
}

// encode writes JSON; a client that is gone needs no error.
func encode(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // ">" is common here, and nothing of it is HTML
	enc.Encode(v)
}

// writeJSON answers 200.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encode(w, v)
}

func writeText(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write([]byte(s))
}

// running returns the open parts, or answers why there are none.
func (h *Hub) running(w http.ResponseWriter) *parts {
	if p := h.open.Load(); p != nil {
		return p
	}
	problem(w, http.StatusServiceUnavailable, "starting", "the hub is starting or stopping; try again in a moment")
	return nil
}

func (h *Hub) readyz(w http.ResponseWriter, r *http.Request) {
	reasons := h.notReady(r.Context())
	if len(reasons) == 0 {
		text := "ready\n"
		if p := h.open.Load(); p != nil {
			for _, note := range p.notes() {
				text += "note: " + note + "\n"
			}
		}
		writeText(w, text)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Retry-After", "2")
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, reason := range reasons {
		fmt.Fprintln(w, reason)
	}
}

func (h *Hub) metricsPage(w http.ResponseWriter, r *http.Request) {
	if p := h.open.Load(); p != nil {
		p.monitor.look(r.Context())
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.metrics.set.WritePrometheus(w)
}

func (h *Hub) status(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	seen := p.monitor.look(r.Context())
	n := p.registry.Numbers()
	reasons := h.notReady(r.Context())
	out := admin.Status{
		HubID: p.hubID, Version: h.cfg.Version, Instance: h.instance, Started: h.started,
		Ready: len(reasons) == 0, Reasons: append([]string{}, reasons...), NATS: p.store.ClientURL(),
		Streams: seen.streams, Devices: admin.DeviceNumbers{Online: n.Online, Total: n.Online + n.Offline, Backlog: n.Backlog, Loading: n.Loading},
		Ledger: admin.Ledger{Seq: seen.ledger}, Notes: p.notes(),
	}
	for i, route := range h.cfg.Routes {
		out.Routes = append(out.Routes, admin.Route{Match: route.Match, Stream: route.Stream, Prefix: route.Prefix, Packed: route.packed(), Lag: seen.lag[i], Lost: seen.lost[i]})
	}
	for i, err := range p.webhooks.Status() {
		hook := admin.Webhook{Name: h.cfg.Webhooks[i].Name, URL: h.cfg.Webhooks[i].Place(), Stream: h.cfg.Webhooks[i].Stream}
		if err != nil {
			hook.Error = err.Error()
		}
		out.Webhooks = append(out.Webhooks, hook)
	}
	writeJSON(w, out)
}

func (h *Hub) devices(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	q, limit := r.URL.Query(), pageDefault
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > pageMax {
			problem(w, http.StatusBadRequest, "bad_limit", fmt.Sprintf("limit %q is not 1 to %d", s, pageMax))
			return
		}
		limit = n
	}
	if order := q.Get("sort"); order != "" && order != "name" {
		page, err := p.registry.Ranked(order, q.Get("after"), q.Get("filter"), limit)
		if err != nil {
			problem(w, http.StatusBadRequest, "bad_sort", err.Error())
			return
		}
		writeJSON(w, page)
		return
	}
	writeJSON(w, p.registry.Devices(q.Get("after"), q.Get("filter"), limit))
}

func (h *Hub) device(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	name := r.PathValue("device")
	d, ok := p.registry.Device(name)
	if !ok && p.registry.Numbers().Loading {
		problem(w, http.StatusServiceUnavailable, "starting", fmt.Sprintf("device %q is not in the part of the list that has been read since the start; try again in a moment", name))
		return
	}
	if !ok {
		problem(w, http.StatusNotFound, "not_found", fmt.Sprintf("device %q has never been heard of; GET /v1/devices lists those that have", name))
		return
	}
	writeJSON(w, d)
}

// forgetDevice removes a device from the registry.
func (h *Hub) forgetDevice(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	name := r.PathValue("device")
	if !own(w, r) {
		return
	}
	done, ok := p.audited(w, r, "device_forget", name)
	if !ok {
		return
	}
	err := p.registry.Forget(r.Context(), name)
	if err == nil {
		err = p.desired.Forget(r.Context(), name)
	}
	done(outcome(err))
	switch {
	case errors.Is(err, registry.ErrUnknown):
		problem(w, http.StatusNotFound, "not_found", fmt.Sprintf("device %q has never been heard of", name))
	case errors.Is(err, registry.ErrLoading):
		problem(w, http.StatusServiceUnavailable, "starting", fmt.Sprintf("device %q is not in the part of the list that has been read since the start; try again in a moment", name))
	case errors.Is(err, registry.ErrOnline):
		problem(w, http.StatusConflict, "online", fmt.Sprintf("device %q is online and would be back at once; stop its agent first", name))
	case err != nil:
		problem(w, http.StatusServiceUnavailable, "unavailable", err.Error())
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// listen opens the listener of http.listen.
func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("http.listen: cannot listen on %s: %w; stop what uses it, or choose another address", addr, err)
	}
	return ln, nil
}
