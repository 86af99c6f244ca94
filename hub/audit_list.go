package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// auditStride is how many sequences of AUDIT are read at a time, backwards.
const auditStride = 2000

// listAudit is GET /v1/audit.
func (h *Hub) listAudit(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	q, err := auditQuery(r.URL.Query())
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	var out admin.Audit
	if q.Newest {
		out, err = p.auditNewest(r.Context(), q)
	} else {
		out, err = p.auditPage(r.Context(), q)
	}
	if err != nil {
		h.unreadable(w, err)
		return
	}
	writeJSON(w, out)
}

func auditQuery(v url.Values) (q admin.AuditQuery, err error) {
	q.Limit, q.Action = pageDefault, v.Get("action")
	if q.Action != "" && strings.Trim(q.Action, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return q, fmt.Errorf("action %q is none, like dead_purge", q.Action)
	}
	if s := v.Get("limit"); s != "" {
		if q.Limit, err = strconv.Atoi(s); err != nil || q.Limit < 1 || q.Limit > pageMax {
			return q, fmt.Errorf("limit %q is not 1 to %d", s, pageMax)
		}
	}
	switch order := v.Get("order"); order {
	case "", "oldest":
	case "newest":
		q.Newest = true
	default:
		return q, fmt.Errorf("order %q is neither oldest nor newest", order)
	}
	for name, at := range map[string]*uint64{"after": &q.After, "before": &q.Before} {
		if s := v.Get(name); s != "" {
			if *at, err = strconv.ParseUint(s, 10, 64); err != nil || *at == 1<<64-1 {
				return q, fmt.Errorf("%s %q is not a sequence of AUDIT", name, s)
			}
		}
	}
	if s := v.Get("since"); s != "" {
		if q.Since, err = time.Parse(time.RFC3339, s); err != nil {
			return q, fmt.Errorf("since %q is no time like 2026-01-02T15:04:05Z", s)
		}
	}
	if q.Newest && (v.Has("after") || v.Has("since")) || !q.Newest && v.Has("before") {
		return q, errors.New("after and since are for the oldest first, before is for order=newest")
	}
	return q, nil
}

// auditFilter takes one action, or all.
func auditFilter(action string) string {
	if action == "" {
		return ""
	}
	return store.AuditPrefix + action
}

// auditPage is a page of the oldest first.
func (p *parts) auditPage(ctx context.Context, q admin.AuditQuery) (admin.Audit, error) {
	out := admin.Audit{Entries: []admin.AuditEntry{}}
	if !q.Since.IsZero() {
		first, err := p.store.FirstSince(ctx, store.Audit, q.Since)
		if errors.Is(err, store.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		q.After = max(q.After, first.Seq-1)
	}
	var err error
	out.Entries, err = p.auditRange(ctx, q.Action, q.After+1, 1<<64-1, q.Limit+1)
	if len(out.Entries) > q.Limit {
		out.Entries = out.Entries[:q.Limit]
		out.Next = out.Entries[q.Limit-1].Seq
	}
	return out, err
}

// auditNewest is a page of the newest first. The stream is read in strides from its
// end, as its server reads forwards only.
func (p *parts) auditNewest(ctx context.Context, q admin.AuditQuery) (admin.Audit, error) {
	out := admin.Audit{Entries: []admin.AuditEntry{}}
	info, err := p.store.Info(ctx, store.Audit)
	if err != nil {
		return out, err
	}
	end := info.Last + 1 // exclusive
	if q.Before > 0 {
		end = min(end, q.Before)
	}
	stride := uint64(auditStride)
	if q.Action == "" {
		stride = uint64(q.Limit) + 1
	}
	for end > info.First && len(out.Entries) <= q.Limit {
		from := info.First
		if end-from > stride {
			from = end - stride
		}
		some, err := p.auditRange(ctx, q.Action, from, end, auditStride)
		if err != nil {
			return out, err
		}
		slices.Reverse(some)
		out.Entries = append(out.Entries, some...)
		end = from
	}
	if len(out.Entries) > q.Limit {
		out.Entries = out.Entries[:q.Limit]
		out.Next = out.Entries[q.Limit-1].Seq
	}
	return out, nil
}

// auditRange reads up to limit entries from a sequence on and before end.
func (p *parts) auditRange(ctx context.Context, action string, from, end uint64, limit int) ([]admin.AuditEntry, error) {
	out := []admin.AuditEntry{}
	r, err := p.store.FilteredReader(store.Audit, auditFilter(action), from)
	if err != nil {
		return out, err
	}
	defer r.Close()
	for len(out) < limit {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) || err == nil && m.Seq >= end {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		var e admin.AuditEntry
		if err := json.Unmarshal(m.Data, &e); err != nil {
			e = admin.AuditEntry{Action: strings.TrimPrefix(m.Subject, store.AuditPrefix), Outcome: "this entry is not readable: " + err.Error()}
		}
		e.Seq, e.Time = m.Seq, m.Time.UTC()
		out = append(out, e)
	}
	return out, nil
}
