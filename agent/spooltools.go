package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxSpoolReaders is how many may look into the spool at a time: each holds a
// block and a decoder, or writes.
const maxSpoolReaders = 2

// exportType is the media type of a portable file (sync/wire/EXPORT.md).
const exportType = "application/vnd.fieldpost.export"

// problemTrailer follows an export that could not be finished, as JSON.
const problemTrailer = "Fieldpost-Problem"

// spoolTools is the spool as an operator uses it.
type spoolTools interface {
	Inspector() *spool.Inspector
	Purge(spool.Selection) (removed uint64, err error)
	RemoveReport(name string) error
}

// inspected lets a route use the spool, not too many at a time.
func inspected(serve func(*Agent, http.ResponseWriter, *http.Request, spoolTools) *problem) func(*Agent, http.ResponseWriter, *http.Request) *problem {
	return func(a *Agent, w http.ResponseWriter, r *http.Request) *problem {
		st, p := a.gate.enter()
		if p != nil {
			return p
		}
		defer a.gate.leave()
		tools, ok := st.(spoolTools)
		if !ok {
			return newProblem(codeInternal, "a %T cannot be looked into", st)
		}
		select {
		case a.readers <- struct{}{}:
			defer func() { <-a.readers }()
		default:
			return newProblem(codeQuota, "%d look into the spool already; wait for one of them to end", maxSpoolReaders)
		}
		return serve(a, w, r, tools)
	}
}

// segmentJSON is a line of GET /v1/spool/segments.
type segmentJSON struct {
	Segment  string      `json:"segment"`
	State    string      `json:"state"`
	Lane     *wire.Lane  `json:"lane,omitempty"` // absent where not known
	Epoch    string      `json:"epoch,omitempty"`
	Ranges   wire.Ranges `json:"ranges"` // "1-500,502-600"
	Blocks   int         `json:"blocks"`
	Messages uint64      `json:"messages"`
	Waiting  uint64      `json:"waiting"` // for the hub
	Bytes    int64       `json:"bytes"`
	Oldest   *time.Time  `json:"oldest"`
	Problem  string      `json:"problem,omitempty"`
}

// spoolSegments is GET /v1/spool/segments.
func (a *Agent) spoolSegments(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	lanes, p := lanesParam(r)
	if p != nil {
		return p
	}
	return a.streamLines(w, r, func(_ context.Context, line func(any) error) error {
		for _, s := range t.Inspector().Segments() {
			out := segmentJSON{
				Segment: s.Segment, State: s.State, Ranges: s.Ranges, Blocks: s.Blocks, Messages: s.Messages,
				Waiting: s.Waiting, Bytes: s.Bytes, Problem: s.Problem,
			}
			if !s.Flow.Epoch.IsZero() {
				out.Lane, out.Epoch, out.Oldest = &s.Flow.Lane, s.Flow.Epoch.String(), timeOrNull(s.Oldest)
			}
			if len(lanes) > 0 && (out.Lane == nil || *out.Lane != lanes[0]) {
				continue
			}
			if err := line(out); err != nil {
				return err
			}
		}
		return nil
	})
}

// spoolMessages is GET /v1/spool/messages.
func (a *Agent) spoolMessages(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	q := spool.Query{Filter: r.URL.Query().Get("filter")}
	var p *problem
	if q.Lanes, p = lanesParam(r); p != nil {
		return p
	}
	if q.Filter != "" {
		if err := wire.CheckFilter(q.Filter); err != nil {
			return newProblem(codeBadSubject, "%v", err)
		}
	}
	switch from := r.URL.Query().Get("from"); from {
	case "", "oldest":
	case "newest":
		q.Newest = true
	default:
		return newProblem(codeBadRequest, "from %q is neither oldest nor newest", from)
	}
	limit := uint64(0)
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.ParseUint(text, 10, 63); err != nil {
			return newProblem(codeBadRequest, "limit %q is not a number of messages; 0 is all", text)
		}
	}
	return a.streamLines(w, r, func(ctx context.Context, line func(any) error) error {
		n := uint64(0)
		return t.Inspector().Messages(ctx, q, func(m *spool.Held) error {
			x := tapped{m: m.Message, lane: m.Flow.Lane, flow: m.Flow, seq: m.Seq}
			if err := line(x.json()); err != nil {
				return err
			}
			if n++; n == limit {
				return spool.ErrEnough
			}
			return nil
		})
	})
}

// checkJSON is a line of GET /v1/spool/verify.
type checkJSON struct {
	Segment  string            `json:"segment"`
	State    string            `json:"state"`
	OK       bool              `json:"ok"`
	Blocks   int               `json:"blocks"`
	Messages uint64            `json:"messages"`
	Bytes    int64             `json:"bytes"`
	Damaged  map[string]string `json:"damaged,omitempty"` // ranges by flow
	Problem  string            `json:"problem,omitempty"`
}

// spoolVerify is GET /v1/spool/verify.
func (a *Agent) spoolVerify(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	return a.streamLines(w, r, func(ctx context.Context, line func(any) error) error {
		return t.Inspector().Verify(ctx, func(c spool.Check) error {
			out := checkJSON{Segment: c.Segment, State: c.State, OK: c.Problem == "", Blocks: c.Blocks, Messages: c.Messages, Bytes: c.Bytes, Problem: c.Problem}
			for f, rs := range c.Damaged {
				if out.Damaged == nil {
					out.Damaged = map[string]string{}
				}
				out.Damaged[f.String()] = rs.String()
			}
			return line(out)
		})
	})
}

// spoolExport is GET /v1/spool/export.
func (a *Agent) spoolExport(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	lanes, p := lanesParam(r)
	if p != nil {
		return p
	}
	ctx, out, end := a.stream(w, r, exportType)
	defer end()
	head := wire.ExportHead{Device: a.device, Version: a.cfg.Version, Created: time.Now().UnixMilli()}
	if _, err := t.Inspector().Export(ctx, out, head, lanes); err != nil {
		trailer, err := json.Marshal(a.streamProblem(err).json())
		if err == nil {
			w.Header().Set(http.TrailerPrefix+problemTrailer, string(trailer))
		}
	}
	return nil
}

// spoolPurge is POST /v1/spool/purge.
func (a *Agent) spoolPurge(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	const example = `{"lane":"bulk","filter":"logs.>","older_than":"24h"}, each of which may be left out, or {"all":true}`
	bd, p := a.readBody(w, r, 4<<10, "what this needs")
	if p != nil {
		return p
	}
	defer bd.release(a)
	var in struct {
		All    bool       `json:"all"`
		Lane   *wire.Lane `json:"lane"`
		Filter string     `json:"filter"`
		Older  string     `json:"older_than"`
	}
	dec := json.NewDecoder(bytes.NewReader(bd.b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return newProblem(codeBadRequest, "the body is not like %s: %v", example, err)
	}
	sel := spool.Selection{Filter: in.Filter}
	if in.Lane != nil {
		sel.Lanes = []wire.Lane{*in.Lane}
	}
	if in.Older != "" {
		d, err := time.ParseDuration(in.Older)
		if err != nil || d <= 0 {
			return newProblem(codeBadRequest, "older_than %q is not a duration above 0, such as 24h", in.Older)
		}
		sel.OlderThan = d
	}
	if in.Filter != "" {
		if err := wire.CheckFilter(in.Filter); err != nil {
			return newProblem(codeBadSubject, "%v", err)
		}
	}
	if chosen := in.Lane != nil || in.Filter != "" || in.Older != ""; chosen == in.All {
		return newProblem(codeBadRequest, "the body is not like %s", example)
	}
	n, err := t.Purge(sel)
	if err != nil {
		p := problemOf(err)
		p.detail += fmt.Sprintf("; %d messages were purged before", n)
		return p
	}
	a.log.Warn("spool purged by an operator", "messages", n, "lanes", sel.Lanes, "filter", in.Filter, "older_than", in.Older)
	return writeJSON(w, http.StatusOK, map[string]uint64{"purged": n})
}

// spoolQuarantine is GET /v1/spool/quarantine: all reports, or one.
func (a *Agent) spoolQuarantine(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	if name := r.URL.Query().Get("report"); name != "" {
		rep, err := t.Inspector().Report(name)
		if err != nil {
			return reportProblem(name, err)
		}
		return writeJSON(w, http.StatusOK, rep)
	}
	reports, err := t.Inspector().Reports()
	if err != nil {
		return newProblem(codeDiskFault, "the quarantine cannot be read: %v", err)
	}
	return a.streamLines(w, r, func(_ context.Context, line func(any) error) error {
		for _, rep := range reports {
			if err := line(rep); err != nil {
				return err
			}
		}
		return nil
	})
}

// spoolQuarantineRemove is POST /v1/spool/quarantine/remove.
func (a *Agent) spoolQuarantineRemove(w http.ResponseWriter, r *http.Request, t spoolTools) *problem {
	name := r.URL.Query().Get("report")
	if err := t.RemoveReport(name); err != nil {
		return reportProblem(name, err)
	}
	a.log.Warn("quarantine report removed by an operator", "report", name)
	return writeJSON(w, http.StatusOK, map[string]string{"removed": name})
}

func reportProblem(name string, err error) *problem {
	if errors.Is(err, fs.ErrNotExist) {
		return newProblem(codeNotFound, "there is no report %q; GET /v1/spool/quarantine lists them", name)
	}
	return problemOf(err)
}

// lanesParam is the lane to look at; none: all.
func lanesParam(r *http.Request) ([]wire.Lane, *problem) {
	text := r.URL.Query().Get("lane")
	if text == "" {
		return nil, nil
	}
	l, p := parseLane(text)
	return []wire.Lane{l}, p
}
