package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fieldpost/fieldpost/agent/command"
	"github.com/fieldpost/fieldpost/spool"
)

// Codes of errors, the same over HTTP and over frames.
const (
	codeBadSubject = "bad_subject"
	codeBadLine    = "bad_line"
	codeBadHeader  = "bad_header"
	codeBadLane    = "bad_lane"
	codeBadTTL     = "bad_ttl"
	codeMixedLanes = "mixed_lanes"
	codeBadRequest = "bad_request" // not HTTP, an unknown parameter, half a body
	codeForbidden  = "forbidden"
	codeNotFound   = "not_found"
	codeBadMethod  = "method_not_allowed"
	codeRemoved    = "removed" // accepted once, and never to be delivered
	codeTimeout    = "timeout"
	codeSettled    = "settled"  // a command, and otherwise than asked for
	codeOutdated   = "outdated" // a version of the desired settings that is not, or no longer, to be spoken of
	codeTooLarge   = "too_large"
	codeQuota      = "quota"
	codeInternal   = "internal"
	codeStarting   = "starting"
	codeStopping   = "stopping"
	codeDiskFault  = "disk_fault"
	codeSpoolFull  = "spool_full"
	codeDiskFull   = "disk_full"
)

// kinds says how each code is answered.
var kinds = map[string]struct {
	status int
	title  string
	retry  int // seconds, sent as Retry-After; 0: none
}{
	codeBadSubject: {400, "The subject or filter is not valid", 0},
	codeBadLine:    {400, "A line cannot be read", 0},
	codeBadHeader:  {400, "A header is refused", 0},
	codeBadLane:    {400, "There is no such lane", 0},
	codeBadTTL:     {400, "The time to live is refused", 0},
	codeMixedLanes: {400, "A batch goes to one lane", 0},
	codeBadRequest: {400, "The request cannot be read", 0},
	codeForbidden:  {403, "Not allowed", 0},
	codeNotFound:   {404, "There is no such thing", 0},
	codeBadMethod:  {405, "Not this method", 0},
	codeRemoved:    {410, "The message was removed", 0},
	codeTimeout:    {408, "The request came too slowly", 0},
	codeSettled:    {409, "The command is settled", 0},
	codeOutdated:   {409, "Not these settings", 0},
	codeTooLarge:   {413, "Too large", 0},
	codeQuota:      {429, "Too much at once", 1},
	codeInternal:   {500, "Internal error", 0},
	codeStarting:   {503, "The agent is starting", 1},
	codeStopping:   {503, "The agent is stopping", 5},
	codeDiskFault:  {503, "The disk failed", 30},
	codeSpoolFull:  {507, "The spool is full", 0},
	codeDiskFull:   {507, "The disk is full", 0},
}

// problem is an error as a program is told it.
type problem struct {
	code   string
	detail string // what happened and what to do
	line   int    // 1-based, of an NDJSON body; 0: none
	allow  string // methods, with codeBadMethod
}

func newProblem(code, format string, args ...any) *problem {
	return &problem{code: code, detail: fmt.Sprintf(format, args...)}
}

func (p *problem) Error() string { return p.code + ": " + p.detail }

// at returns p as the fault of a line of an NDJSON body.
func (p *problem) at(line int) *problem {
	q := *p
	q.line = line
	q.detail = "line " + strconv.Itoa(line) + ": " + p.detail
	return &q
}

// problemOf says to a program what an error of the spool means.
func problemOf(err error) *problem {
	var p *problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.Is(err, spool.ErrRemoved):
		return newProblem(codeRemoved, "the message was accepted, and removed before the hub had it (%v); publish it again if it still matters", err)
	case errors.Is(err, spool.ErrFull):
		return newProblem(codeSpoolFull, "the spool holds as much as spool.max_bytes allows and the hub has not taken it yet (%v); retry later, raise spool.max_bytes, or set spool.when_full: drop-oldest", err)
	case errors.Is(err, command.ErrDiskFull):
		return newProblem(codeDiskFull, "the file system of data_dir is full, so that nothing can be kept of commands (%v); free some space and repeat this", err)
	case errors.Is(err, command.ErrDiskFault):
		return newProblem(codeDiskFault, "what is known of commands cannot be written (%v); the agent goes on trying, repeat this later", err)
	case errors.Is(err, spool.ErrDiskFull):
		return newProblem(codeDiskFull, "the file system has less free than spool.keep_free (%v); free some space and retry", err)
	case errors.Is(err, spool.ErrDiskFault):
		return newProblem(codeDiskFault, "a write or fsync failed (%v); the agent tries again with a new segment, see its log", err)
	case errors.Is(err, spool.ErrClosed):
		return newProblem(codeStopping, "retry when the agent runs again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return newProblem(codeTimeout, "the outcome is not known (%v); retry with the same id", err)
	}
	return newProblem(codeInternal, "%v", err)
}

// problemJSON is the application/problem+json form.
type problemJSON struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Line   int    `json:"line,omitempty"`
}

func (p *problem) json() problemJSON {
	k := kinds[p.code]
	return problemJSON{Title: k.title, Status: k.status, Detail: p.detail, Code: p.code, Line: p.line}
}

func (p *problem) retry() int { return kinds[p.code].retry }

// write answers a request with p.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	p.headers(h.Set)
	body := p.body()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(kinds[p.code].status)
	w.Write(body) // a reader that is gone needs no answer
}

func (p *problem) headers(set func(key, value string)) {
	set("Content-Type", "application/problem+json")
	if n := p.retry(); n > 0 {
		set("Retry-After", strconv.Itoa(n))
	}
	if p.allow != "" {
		set("Allow", p.allow)
	}
	switch p.code {
	case codeTimeout, codeTooLarge, codeQuota: // the body may still be on its way: do not wait for it
		set("Connection", "close")
	}
}

func (p *problem) body() []byte {
	b, err := json.Marshal(p.json())
	if err != nil {
		panic("agent: " + err.Error()) // strings and numbers marshal
	}
	return append(b, '\n')
}

// raw is the whole response, for connections on which net/http does not serve.
func (p *problem) raw() []byte {
	status, body := kinds[p.code].status, p.body()
	out := fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	p.headers(func(k, v string) {
		if k != "Connection" {
			out = fmt.Appendf(out, "%s: %s\r\n", k, v)
		}
	})
	out = fmt.Appendf(out, "Content-Length: %d\r\nConnection: close\r\n\r\n", len(body))
	return append(out, body...)
}
