package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/commands"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func (h *Hub) commandRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /v1/devices/{device}/commands", h.sendOne)
	mux.HandleFunc("GET /v1/devices/{device}/commands", h.listCommands)
	mux.HandleFunc("POST /v1/commands", h.sendGroup)
	mux.HandleFunc("GET /v1/commands", h.listCommands)
	mux.HandleFunc("GET /v1/commands/{id}", h.showCommand)
	mux.HandleFunc("DELETE /v1/commands/{id}", h.cancelCommand)
	mux.HandleFunc("GET /v1/commands/groups/{id}", h.showGroup)
}

const commandLike = `{"subject":"valve.set","json":{"open":true},"ttl":"1h"}`

// readCommand reads the body, or answers what is wrong with it.
func (h *Hub) readCommand(w http.ResponseWriter, r *http.Request, group bool) (n admin.NewCommand, payload []byte, ttl time.Duration, ok bool) {
	like := commandLike
	if group {
		like = `{"labels":{"site":"north"},"subject":"valve.set","json":{"open":true},"ttl":"1h"}`
	}
	if !readJSON(w, r, &n, like) {
		return n, nil, 0, false
	}
	payload, ttl, err := checkCommand(n, group)
	switch {
	case err != nil:
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
	case group != (len(n.Labels) > 0):
		problem(w, http.StatusBadRequest, "bad_request", "labels choose the devices of POST /v1/commands, and are for that alone; for one device use POST /v1/devices/{device}/commands")
	case len(payload) > wire.MaxCommand:
		problem(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the payload is %d bytes; a command has at most %d: send where to get the rest", len(payload), wire.MaxCommand))
	default:
		return n, payload, ttl, true
	}
	return n, nil, 0, false
}

// sendOne is POST /v1/devices/{device}/commands.
func (h *Hub) sendOne(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	device := r.PathValue("device")
	if err := wire.CheckDevice(device); err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	wait, ok := waitOf(w, r)
	if !ok {
		return
	}
	n, payload, ttl, ok := h.readCommand(w, r, false)
	if !ok {
		return
	}
	if wait > 0 {
		select {
		case h.waits <- struct{}{}:
			defer func() { <-h.waits }()
		default:
			problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d requests wait for commands already; send without wait, and ask for the command later", cap(h.waits)))
			return
		}
	}
	c, err, ok := h.sendAudited(w, r, p, device, n, payload, ttl)
	if !ok {
		return
	}
	if err != nil {
		h.commandFailed(w, err)
		return
	}
	if wait == 0 {
		answer(w, http.StatusCreated, c)
		return
	}
	h.patient(w, wait)
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	if c, err = p.commands.Wait(ctx, device, c.ID); err != nil {
		h.commandFailed(w, err)
		return
	}
	if c.State.Settled() {
		answer(w, http.StatusOK, c)
	} else {
		answer(w, http.StatusAccepted, c)
	}
}

// sendAudited sends a command; with ok false it has answered. One that is asked
// for again by its id, as who waits does, is written down once.
func (h *Hub) sendAudited(w http.ResponseWriter, r *http.Request, p *parts, device string, n admin.NewCommand, payload []byte, ttl time.Duration) (c admin.Command, err error, ok bool) {
	done := func(string) {}
	if n.ID != "" {
		_, err = p.commands.Get(r.Context(), n.ID)
	}
	if n.ID == "" || errors.Is(err, commands.ErrUnknown) {
		if done, ok = p.audited(w, r, "command_send", device+" "+n.Subject); !ok {
			return c, nil, false
		}
	}
	c, err = p.sendCommand(r.Context(), device, n, payload, ttl)
	if err == nil {
		done("done: " + c.ID)
	} else {
		done(outcome(err))
	}
	return c, err, true
}

// patient makes room for an answer that takes a while.
func (h *Hub) patient(w http.ResponseWriter, d time.Duration) {
	rc := http.NewResponseController(w)
	if err := errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Now().Add(d+answerTimeout))); err != nil {
		h.cfg.Log.Debug("deadline of an answer", "err", err)
	}
}

func waitOf(w http.ResponseWriter, r *http.Request) (time.Duration, bool) {
	s := r.URL.Query().Get("wait")
	if s == "" {
		return 0, true
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxWait {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("wait %q is not a duration up to %s, such as 30s", s, maxWait))
		return 0, false
	}
	return d, true
}

// answer is writeJSON with another status.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	encode(w, v)
}

func (h *Hub) commandFailed(w http.ResponseWriter, err error) {
	status, code, detail := h.commandProblem(err)
	problem(w, status, code, detail)
}

// sendGroup is POST /v1/commands.
func (h *Hub) sendGroup(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	n, payload, ttl, ok := h.readCommand(w, r, true)
	if !ok {
		return
	}
	done, ok := p.audited(w, r, "command_send_group", fmt.Sprintf("%s %s", labelText(n.Labels), n.Subject))
	if !ok {
		return
	}
	h.patient(w, groupFor)
	ctx, cancel := context.WithTimeout(r.Context(), groupFor)
	defer cancel()
	g, err := p.commands.SendGroup(ctx, commands.NewGroup{ID: n.ID, Labels: n.Labels, Subject: n.Subject, Payload: payload, TTL: ttl})
	if err != nil {
		done(outcome(err))
		h.commandFailed(w, err)
		return
	}
	done(fmt.Sprintf("done: %s, %d devices", g.ID, g.Devices))
	h.cfg.Log.Info("a command was sent to many", "group", g.ID, "devices", g.Devices, "subject", g.Subject)
	answer(w, http.StatusCreated, g)
}

// labelText is labels as a person writes them.
func labelText(labels map[string]string) string {
	var out []string
	for k, v := range labels {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// listCommands is GET /v1/commands and GET /v1/devices/{device}/commands.
func (h *Hub) listCommands(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	v, limit := r.URL.Query(), pageDefault
	bad := func(format string, args ...any) {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...))
	}
	q := commands.Query{Device: v.Get("device"), Group: v.Get("group"), State: wire.CommandState(v.Get("state"))}
	if d := r.PathValue("device"); d != "" {
		q.Device = d
	}
	if s := v.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > pageMax {
			problem(w, http.StatusBadRequest, "bad_limit", fmt.Sprintf("limit %q is not 1 to %d", s, pageMax))
			return
		}
		limit = n
	}
	if s := v.Get("after"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 1<<64-1 {
			bad("after %q is not what next of a page was", s)
			return
		}
		q.After = n
	}
	switch {
	case q.Device != "" && wire.CheckDevice(q.Device) != nil:
		bad("%v", wire.CheckDevice(q.Device))
		return
	case q.State != "" && !slices.Contains(commandStates, q.State):
		bad("state %.40q is not one of pending, delivered, acked, failed, expired, cancelled", q.State)
		return
	}
	page, next, err := p.commands.List(r.Context(), q, limit)
	if err != nil {
		h.commandFailed(w, err)
		return
	}
	out := admin.Commands{Commands: page}
	if next > 0 {
		out.Next = strconv.FormatUint(next, 10)
	}
	writeJSON(w, out)
}

// commandID is the id of the path, or an answer.
func commandID(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.PathValue("id")
	if wire.CheckDevice(id) != nil {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("%.80q is not a command's id: 1 to 64 of A-Z a-z 0-9 _ -", id))
		return "", false
	}
	return id, true
}

func (h *Hub) showCommand(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	id, ok := commandID(w, r)
	if !ok {
		return
	}
	c, err := p.commands.Get(r.Context(), id)
	if err != nil {
		h.commandFailed(w, err)
		return
	}
	writeJSON(w, c)
}

func (h *Hub) cancelCommand(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil || !own(w, r) {
		return
	}
	id, ok := commandID(w, r)
	if !ok {
		return
	}
	done, ok := p.audited(w, r, "command_cancel", id)
	if !ok {
		return
	}
	c, err := p.commands.Cancel(r.Context(), id)
	done(outcome(err))
	if err != nil {
		h.commandFailed(w, err)
		return
	}
	writeJSON(w, c)
}

func (h *Hub) showGroup(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	id, ok := commandID(w, r)
	if !ok {
		return
	}
	h.patient(w, answerTimeout)
	g, err := p.commands.Group(r.Context(), id)
	if err != nil {
		h.commandFailed(w, err)
		return
	}
	writeJSON(w, g)
}
