package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
)

// listRoutes is GET /v1/routes.
func (h *Hub) listRoutes(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	seen := p.monitor.look(r.Context())
	states := map[string]unpack.Status{}
	for _, s := range p.unpack.Status() {
		states[s.Stream] = s
	}
	n := p.unpack.Unrouted()
	out := admin.Routes{
		Routes: []admin.RouteState{}, Orphans: []admin.Orphan{},
		Unrouted: admin.Unrouted{Messages: n.Messages, Subject: n.Subject, Block: n.Block},
		Ledger:   seen.stream("BLOCKS"),
	}
	for i, route := range h.cfg.Routes {
		s := admin.RouteState{
			Route:  admin.Route{Match: route.Match, Stream: route.Stream, Prefix: route.Prefix, Packed: route.packed(), Lag: seen.lag[i], Lost: seen.lost[i]},
			MaxAge: int64(route.MaxAge / time.Second),
		}
		if !route.packed() {
			s.Discard, s.Compression = route.Discard, route.Compression
			if !store.Compresses(h.cfg.NATS.Replicas) {
				s.Compression = "none"
			}
			s.State, s.Backfill, s.Backfilled, s.Error = p.routeState(seen.stream(route.Stream), states[route.Stream])
		}
		out.Routes = append(out.Routes, s)
	}
	for _, o := range p.monitor.orphans() {
		s := states[o.Name]
		left := uint64(0)
		if s.Stream != "" && !s.Done {
			left = p.unpack.Lag(o.Name, seen.ledger)
		}
		out.Orphans = append(out.Orphans, admin.Orphan{Stream: adminStream(o), Subjects: o.Subjects, Lag: left})
	}
	writeJSON(w, out)
}

func (p *parts) routeState(st admin.Stream, s unpack.Status) (admin.Stream, *admin.Backfill, []admin.Range, string) {
	var b *admin.Backfill
	switch {
	case s.Walk != nil:
		b = &admin.Backfill{Range: blocks(*s.Walk), Next: s.At.Block}
	case s.Asked != nil:
		b = &admin.Backfill{Range: blocks(*s.Asked), Next: s.Asked.First}
	}
	var done []admin.Range
	for _, d := range s.Walks {
		done = append(done, blocks(d))
	}
	text := ""
	if s.Err != nil {
		text = s.Err.Error()
	}
	return st, b, done, text
}

func blocks(w unpack.Walk) admin.Range { return admin.Range{First: w.First, Last: w.End - 1} }

// backfill is POST /v1/routes/{stream}/backfill.
func (h *Hub) backfill(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	stream := r.PathValue("stream")
	var in struct {
		From json.RawMessage `json:"from"`
	}
	if !readJSON(w, r, &in, `{}, {"from":<block>} or {"from":"<RFC 3339 time>"}`) {
		return
	}
	since, err := sinceOf(in.From)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	done, ok := p.audited(w, r, "route_backfill", stream)
	if !ok {
		return
	}
	walk, first, err := p.unpack.Backfill(r.Context(), stream, since)
	if err != nil {
		done(outcome(err))
		backfillProblem(w, stream, err)
		return
	}
	done(fmt.Sprintf("done: blocks %d to %d", walk.First, walk.End-1))
	h.cfg.Log.Info("a back-fill is asked for", "stream", stream, "first_block", walk.First, "last_block", walk.End-1)
	out := admin.Backfilling{Stream: stream, Range: blocks(walk), LedgerFirst: first}
	if since.Seq > 0 && since.Seq < first || since.Seq == 0 && since.Time.IsZero() && first > 1 {
		out.Note = fmt.Sprintf("the ledger begins at block %d; what is older is gone", first)
	}
	writeJSON(w, out)
}

// sinceOf reads where a back-fill begins: everywhere, at a block or at a time.
func sinceOf(from json.RawMessage) (since unpack.Since, err error) {
	if len(from) == 0 || string(from) == "null" {
		return since, nil
	}
	if from[0] == '"' {
		var text string
		if err := json.Unmarshal(from, &text); err != nil {
			return since, err
		}
		if since.Time, err = time.Parse(time.RFC3339, text); err != nil {
			return since, fmt.Errorf("from %q is no time like 2026-01-02T15:04:05Z", text)
		}
		return since, nil
	}
	if err := json.Unmarshal(from, &since.Seq); err != nil || since.Seq == 0 {
		return since, fmt.Errorf("from %.40s is no block of the ledger, which are counted from 1", from)
	}
	return since, nil
}

func backfillProblem(w http.ResponseWriter, stream string, err error) {
	switch {
	case errors.Is(err, unpack.ErrNoRoute):
		problem(w, http.StatusNotFound, "not_found", fmt.Sprintf("stream %q: %v; `fieldpost-hub routes list` shows those that do", stream, err))
	case errors.Is(err, unpack.ErrBackfilling):
		problem(w, http.StatusConflict, "conflict", fmt.Sprintf("stream %s: %v; `fieldpost-hub routes list` shows how far it is", stream, err))
	case errors.Is(err, unpack.ErrBackfilled), errors.Is(err, unpack.ErrManyBackfill):
		problem(w, http.StatusConflict, "conflict", fmt.Sprintf("stream %s: %v", stream, err))
	default:
		problem(w, http.StatusServiceUnavailable, "unavailable", fmt.Sprintf("stream %s: %v; try again in a moment", stream, err))
	}
}
