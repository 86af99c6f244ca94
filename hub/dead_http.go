package hub

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/store"
)

func (h *Hub) deadRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/dead", h.listDead)
	mux.HandleFunc("GET /v1/dead/{seq}", h.showDead)
	mux.HandleFunc("POST /v1/dead/retry", func(w http.ResponseWriter, r *http.Request) {
		h.changeDead(w, r, "dead_retry", "retried", func(p *parts) deadWork { return p.retryDead })
	})
	mux.HandleFunc("POST /v1/dead/purge", func(w http.ResponseWriter, r *http.Request) {
		h.changeDead(w, r, "dead_purge", "purged", func(p *parts) deadWork { return p.purgeDead })
	})
}

// deadPlace takes a place among those who go through DEAD; give it back by the
// function, or answer nothing more if there is none.
func (h *Hub) deadPlace(w http.ResponseWriter) (*parts, func()) {
	p := h.running(w)
	if p == nil {
		return nil, nil
	}
	select {
	case h.deads <- struct{}{}:
		return p, func() { <-h.deads }
	default:
		problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d requests go through DEAD already; wait for one of them", cap(h.deads)))
		return nil, nil
	}
}

// listDead is GET /v1/dead, the oldest letter first.
func (h *Hub) listDead(w http.ResponseWriter, r *http.Request) {
	p, free := h.deadPlace(w)
	if p == nil {
		return
	}
	defer free()
	v, limit := r.URL.Query(), pageDefault
	q := deadletter.Query{Filter: v.Get("filter"), Consumer: v.Get("consumer"), Reason: v.Get("reason")}
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
			problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("after %q is not a sequence of DEAD", s))
			return
		}
		q.After = n
	}
	if q.Filter != "" {
		if err := checkFilter(q.Filter); err != nil {
			problem(w, http.StatusBadRequest, "bad_request", err.Error())
			return
		}
	}
	page, next, err := p.dead.List(r.Context(), q, limit)
	if err != nil {
		h.unreadable(w, err)
		return
	}
	out := admin.Letters{Letters: make([]admin.Letter, len(page)), Next: next}
	for i, m := range page {
		out.Letters[i] = letterOf(m)
	}
	writeJSON(w, out)
}

// showDead is GET /v1/dead/{seq}.
func (h *Hub) showDead(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	seq, err := strconv.ParseUint(r.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf("%q is not a sequence of DEAD; GET /v1/dead lists them, and retry and purge want POST", r.PathValue("seq")))
		return
	}
	m, err := p.dead.Get(r.Context(), seq)
	switch {
	case errors.Is(err, store.ErrNotFound):
		problem(w, http.StatusNotFound, "not_found", fmt.Sprintf("DEAD holds no letter %d (any more); GET /v1/dead lists those that it holds", seq))
	case err != nil:
		h.unreadable(w, err)
	default:
		writeJSON(w, wholeLetter(m))
	}
}

// changeDead is POST /v1/dead/retry and /v1/dead/purge.
func (h *Hub) changeDead(w http.ResponseWriter, r *http.Request, action, what string, work func(*parts) deadWork) {
	p, free := h.deadPlace(w)
	if p == nil {
		return
	}
	defer free()
	c, ok := deadChoice(w, r)
	if !ok {
		return
	}
	done, ok := p.audited(w, r, action, chosen(c))
	if !ok {
		return
	}
	rc := http.NewResponseController(w)
	if err := errors.Join(rc.SetReadDeadline(time.Time{}), rc.SetWriteDeadline(time.Now().Add(deadFor+2*answerTimeout))); err != nil {
		h.cfg.Log.Debug("deadline of an answer", "err", err)
	}
	var out admin.DeadDone
	var err error
	if c.All {
		out, err = p.deadAll(r.Context(), c, work(p))
	} else {
		out, err = work(p)(r.Context(), c.Seqs)
	}
	n := out.Retried + out.Purged
	done(fmt.Sprintf("%s: %d letters were %s", outcome(err), n, what))
	if n > 0 {
		h.cfg.Log.Info("letters were "+what, "letters", n, "filter", c.Filter, "consumer", c.Consumer, "reason", c.Reason)
	}
	switch {
	case errors.Is(err, store.ErrFull):
		problem(w, http.StatusServiceUnavailable, "full", fmt.Sprintf("%d letters were %s, then there was no room: %v. RETRY lets a message go after %s; purge it there, or raise dead.max_bytes",
			n, what, err, store.RetryAge(h.cfg.Dead.MaxAge)))
	case err != nil:
		h.unreadable(w, fmt.Errorf("%d letters were %s, then: %w; ask again for the rest", n, what, err))
	case !c.All && out.Refused > 0 && out.Refused == len(c.Seqs):
		problem(w, http.StatusConflict, "not_retryable", fmt.Sprintf("letter %d: %s", out.Why[0].Seq, out.Why[0].Why))
	default:
		writeJSON(w, out)
	}
}

// chosen is a choice of letters for the audit.
func chosen(c admin.DeadChoice) string {
	if !c.All {
		return fmt.Sprintf("letters %v", c.Seqs)
	}
	return fmt.Sprintf("all letters with filter=%q consumer=%q reason=%q after=%d up_to=%d", c.Filter, c.Consumer, c.Reason, c.After, c.UpTo)
}

// deadChoice reads the body.
func deadChoice(w http.ResponseWriter, r *http.Request) (c admin.DeadChoice, ok bool) {
	bad := func(format string, args ...any) {
		problem(w, http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...))
	}
	if !readJSON(w, r, &c, `{"seqs":[1,2]} or {"all":true,"filter":"…","consumer":"…","reason":"…"}`) {
		return c, false
	}
	narrowed := c.Filter != "" || c.Consumer != "" || c.Reason != "" || c.After > 0 || c.UpTo > 0
	switch {
	case c.All == (len(c.Seqs) > 0) || narrowed && !c.All:
		bad(`name letters in "seqs", or write "all":true with "filter", "consumer" or "reason" where not all are meant`)
	case len(c.Seqs) > admin.MaxSeqs:
		bad("%d letters are named, %d at most are possible", len(c.Seqs), admin.MaxSeqs)
	case c.Filter != "" && checkFilter(c.Filter) != nil:
		bad("%v", checkFilter(c.Filter))
	default:
		return c, true
	}
	return c, false
}
