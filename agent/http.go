package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// route is what one path answers to.
type route struct {
	method string
	params []string // query parameters that it knows
	serve  func(*Agent, http.ResponseWriter, *http.Request) *problem
}

var routes = map[string]route{
	"/v1/publish":   {"POST", []string{"ack", "timeout", "stream"}, (*Agent).publishLines},
	"/v1/wait":      {"GET", []string{"epoch", "lane", "seq", "timeout"}, (*Agent).wait},
	"/v1/tap":       {"GET", []string{"filter"}, (*Agent).tap},
	"/v1/commands":  {"GET", []string{"filter", "max"}, (*Agent).subscribe},
	"/v1/status":    {"GET", nil, (*Agent).status},
	"/v1/desired":   {"GET", []string{"wait"}, (*Agent).getDesired},
	"/v1/link":      {"PUT", nil, (*Agent).putLink},
	"/v1/hub/reset": {"POST", nil, (*Agent).resetHub},

	spoolPath + "segments":          {"GET", []string{"lane"}, inspected((*Agent).spoolSegments)},
	spoolPath + "messages":          {"GET", []string{"lane", "filter", "limit", "from"}, inspected((*Agent).spoolMessages)},
	spoolPath + "verify":            {"GET", nil, inspected((*Agent).spoolVerify)},
	spoolPath + "export":            {"GET", []string{"lane"}, inspected((*Agent).spoolExport)},
	spoolPath + "purge":             {"POST", nil, inspected((*Agent).spoolPurge)},
	spoolPath + "quarantine":        {"GET", []string{"report"}, inspected((*Agent).spoolQuarantine)},
	spoolPath + "quarantine/remove": {"POST", []string{"report"}, inspected((*Agent).spoolQuarantineRemove)},

	"/healthz": {"GET", nil, (*Agent).healthz},
	"/readyz":  {"GET", nil, (*Agent).readyz},
	"/metrics": {"GET", nil, (*Agent).serveMetrics},
}

// spoolPath is above what an operator does with the spool.
const spoolPath = "/v1/spool/"

// publishPath is followed by a subject.
const publishPath = "/v1/publish/"

var publishRoute = route{"POST", []string{"ack", "timeout"}, (*Agent).publishOne}

// unreadTimeout is how long the rest of a refused body is waited for, so that
// the connection can be used again.
const unreadTimeout = 2 * time.Second

func (a *Agent) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*httpConn); ok {
		c.serving.Store(true)
	}
	rc := http.NewResponseController(w)
	if r.Body != http.NoBody {
		rc.SetReadDeadline(time.Now().Add(a.cfg.BodyTimeout))
	}
	if p := a.dispatch(w, r); p != nil {
		if r.Body != http.NoBody {
			// net/http reads on before it answers; it shall not wait for what does not come.
			rc.SetReadDeadline(time.Now().Add(min(a.cfg.BodyTimeout, unreadTimeout)))
		}
		if strings.HasPrefix(r.URL.Path, "/v1/publish") {
			a.metrics.refused(p)
		}
		p.write(w)
	}
}

// dispatch returns the problem if nothing was answered yet.
func (a *Agent) dispatch(w http.ResponseWriter, r *http.Request) *problem {
	path := r.URL.EscapedPath()
	rt, ok := routes[path]
	switch {
	case ok:
	case strings.HasPrefix(path, publishPath):
		rt, ok = publishRoute, true
	case strings.HasPrefix(path, commandPath):
		rt, ok = settleRoute, true
	case strings.HasPrefix(path, desiredPath):
		rt, ok = desiredRoute, true
	}
	if !ok {
		return newProblem(codeNotFound, "%s is not a path of this API", r.URL.Path)
	}
	if m := r.Method; m != rt.method && !(m == "HEAD" && rt.method == "GET") {
		p := newProblem(codeBadMethod, "%s takes %s", r.URL.Path, rt.method)
		p.allow = rt.method
		if rt.method == "GET" {
			p.allow = "GET, HEAD"
		}
		return p
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return newProblem(codeBadRequest, "the query cannot be read: %v", err)
	}
	for k, v := range query {
		if !slices.Contains(rt.params, k) || len(v) != 1 {
			return newProblem(codeBadRequest, "query parameter %q is unknown here or given twice; known are: %s", k, strings.Join(rt.params, ", "))
		}
	}
	return rt.serve(a, w, r)
}

func writeJSON(w http.ResponseWriter, status int, v any) *problem {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return newProblem(codeInternal, "%v", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	w.Write(body.Bytes()) // a reader that is gone needs no answer
	return nil
}

// timeoutParam is how long to wait; the default is 30 s, the most an hour.
func timeoutParam(r *http.Request) (time.Duration, *problem) {
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return 30 * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > time.Hour {
		return 0, newProblem(codeBadRequest, "timeout %q is not a duration from 0s to 1h, such as 30s", text)
	}
	return d, nil
}

// body is a request's body in memory, counted in the budget.
type body struct {
	b    []byte
	held int64
}

// readBody reads a body of at most limit bytes. Memory is taken as bytes arrive,
// not as they are announced.
func (a *Agent) readBody(w http.ResponseWriter, r *http.Request, limit int64, limitName string) (*body, *problem) {
	tooLarge := newProblem(codeTooLarge, "the body is larger than %s, %d bytes", limitName, limit)
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	size := int64(4 << 10)
	if n := r.ContentLength; n >= 0 {
		size = min(n+1, 64<<10) // one more, so that the end is seen
	}
	bd := &body{}
	rc := http.NewResponseController(w)
	for {
		if int64(len(bd.b)) == bd.held {
			if bd.held > 0 {
				size = min(2*bd.held, limit+1)
			}
			if !a.bodies.take(size - bd.held) {
				bd.release(a)
				return nil, newProblem(codeQuota, "bodies in memory reach socket.max_inflight, %d bytes; retry, or publish less at once", a.bodies.max)
			}
			bd.b = append(make([]byte, 0, size), bd.b...)
			bd.held = size
		}
		rc.SetReadDeadline(time.Now().Add(a.cfg.BodyTimeout))
		n, err := r.Body.Read(bd.b[len(bd.b):bd.held])
		bd.b = bd.b[:len(bd.b)+n]
		switch {
		case int64(len(bd.b)) > limit:
			bd.release(a)
			return nil, tooLarge
		case err == io.EOF:
			rc.SetReadDeadline(time.Time{}) // or it would end the wait for the answer
			return bd, nil
		case err != nil:
			bd.release(a)
			return nil, a.bodyProblem(err, len(bd.b))
		}
	}
}

// release gives the memory back; nothing may refer to it any more.
func (bd *body) release(a *Agent) {
	if bd.held > 0 {
		a.bodies.give(bd.held)
	}
	bd.b, bd.held = nil, 0
}

func (a *Agent) bodyProblem(err error, got int) *problem {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newProblem(codeTimeout, "no byte of the body for %v after %d bytes", a.cfg.BodyTimeout, got)
	}
	return newProblem(codeBadRequest, "the body ends after %d bytes, before it is complete (%v)", got, err)
}

// lane is the one that a rule gives to a subject now.
func (a *Agent) lane(subject string) wire.Lane { return a.tuned.Load().lane(subject) }
