package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	auditText  = 1 << 10 // bytes of an object or outcome
	auditBegun = "begun"
)

// audited writes down who asks for a change, before it is made: what cannot be
// written down is refused, and answered here with ok false. done writes down how
// it ended, before the caller answers; if only that fails, the change stands, the
// log says so, and the entry that it was begun stays. An action is one token.
func (p *parts) audited(w http.ResponseWriter, r *http.Request, action, object string) (done func(outcome string), ok bool) {
	e := admin.AuditEntry{Action: action, Actor: actor(r), Object: short(object), Outcome: auditBegun}
	seq, err := p.writeAudit(r.Context(), e)
	if err != nil {
		p.hub.cfg.Log.Error("a change is refused, as it cannot be written down", "action", action, "actor", e.Actor, "object", e.Object, "error", err)
		problem(w, http.StatusServiceUnavailable, "not_audited", "nothing was changed, because the change cannot be written down in the stream AUDIT: "+err.Error())
		return nil, false
	}
	return func(outcome string) {
		e.Outcome, e.Of = short(outcome), seq
		if _, err := p.writeAudit(context.WithoutCancel(r.Context()), e); err != nil {
			p.hub.cfg.Log.Error("how a change ended cannot be written down", "action", action, "actor", e.Actor, "object", e.Object, "outcome", e.Outcome, "begun", seq, "error", err)
		}
	}, true
}

func (p *parts) writeAudit(ctx context.Context, e admin.AuditEntry) (seq uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	data, err := json.Marshal(e)
	if err == nil {
		err = p.hub.cfg.Fault("audit:write")
	}
	if err != nil {
		return 0, err
	}
	return p.store.PublishBatch(ctx, []store.Msg{{Subject: store.AuditPrefix + e.Action, Data: data}})
}

// actor is who asks: the address, or local for this machine.
func actor(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return "local"
	}
	return host
}

// outcome words how a change ended.
func outcome(err error) string {
	if err != nil {
		return "failed: " + err.Error()
	}
	return "done"
}

// short bounds what an entry holds.
func short(s string) string {
	if len(s) > auditText {
		s = strings.ToValidUTF8(s[:auditText], "") + "…"
	}
	return s
}

// listAudit is GET /v1/audit, the oldest entry first.
func (h *Hub) listAudit(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	after, limit, since, err := auditQuery(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	out, err := p.auditPage(r.Context(), after, limit, since)
	if err != nil {
		h.unreadable(w, err)
		return
	}
	writeJSON(w, out)
}

func auditQuery(r *http.Request) (after uint64, limit int, since time.Time, err error) {
	q := r.URL.Query()
	limit = pageDefault
	if s := q.Get("limit"); s != "" {
		if limit, err = strconv.Atoi(s); err != nil || limit < 1 || limit > pageMax {
			return 0, 0, since, fmt.Errorf("limit %q is not 1 to %d", s, pageMax)
		}
	}
	if s := q.Get("after"); s != "" {
		if after, err = strconv.ParseUint(s, 10, 64); err != nil || after == 1<<64-1 {
			return 0, 0, since, fmt.Errorf("after %q is not a sequence of AUDIT", s)
		}
	}
	if s := q.Get("since"); s != "" {
		if since, err = time.Parse(time.RFC3339, s); err != nil {
			return 0, 0, since, fmt.Errorf("since %q is no time like 2026-01-02T15:04:05Z", s)
		}
	}
	return after, limit, since, nil
}

func (p *parts) auditPage(ctx context.Context, after uint64, limit int, since time.Time) (admin.Audit, error) {
	out := admin.Audit{Entries: []admin.AuditEntry{}}
	if !since.IsZero() {
		first, err := p.store.FirstSince(ctx, store.Audit, since)
		if errors.Is(err, store.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		after = max(after, first.Seq-1)
	}
	r, err := p.store.Reader(store.Audit, after+1)
	if err != nil {
		return out, err
	}
	defer r.Close()
	for {
		m, err := r.Next(ctx)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return out, nil
		case err != nil:
			return out, err
		case len(out.Entries) == limit:
			out.Next = out.Entries[limit-1].Seq
			return out, nil
		}
		var e admin.AuditEntry
		if err := json.Unmarshal(m.Data, &e); err != nil {
			e = admin.AuditEntry{Action: strings.TrimPrefix(m.Subject, store.AuditPrefix), Outcome: "this entry is not readable: " + err.Error()}
		}
		e.Seq, e.Time = m.Seq, m.Time.UTC()
		out.Entries = append(out.Entries, e)
	}
}
