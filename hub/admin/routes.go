package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Routes is GET /v1/routes.
type Routes struct {
	Routes   []RouteState `json:"routes"`           // in the order in which they are tried; never null
	Orphans  []Orphan     `json:"orphaned_streams"` // never null
	Unrouted Unrouted     `json:"unrouted"`
	Ledger   Stream       `json:"ledger"`
}

// RouteState is one route, its settings and how far it is.
type RouteState struct {
	Route
	MaxAge      int64     `json:"max_age_seconds"`
	Discard     string    `json:"discard,omitempty"` // none of a packed route, as the following
	Compression string    `json:"compression,omitempty"`
	State       Stream    `json:"state,omitzero"`
	Backfill    *Backfill `json:"backfill,omitempty"`   // nil: none is under way
	Backfilled  []Range   `json:"backfilled,omitempty"` // complete
	Error       string    `json:"error,omitempty"`      // why it does not go on
}

// Range is blocks of the ledger, both ends included.
type Range struct {
	First uint64 `json:"first_block"`
	Last  uint64 `json:"last_block"`
}

// Backfill is how far a back-fill is.
type Backfill struct {
	Range
	Next uint64 `json:"next_block"`
}

// Orphan is a stream whose route is gone.
type Orphan struct {
	Stream
	Subjects []string `json:"subjects"`
	Lag      uint64   `json:"lag_blocks"` // received while it had a route, and not in it yet
}

// Unrouted counts the messages that no route takes. They are in no stream.
type Unrouted struct {
	Messages uint64 `json:"messages"`
	Subject  string `json:"subject,omitempty"` // of the newest
	Block    uint64 `json:"block,omitempty"`   // of the newest
}

// Backfilling is POST /v1/routes/{stream}/backfill: what will be done.
type Backfilling struct {
	Stream string `json:"stream"`
	Range
	LedgerFirst uint64 `json:"ledger_first_block"`
	Note        string `json:"note,omitempty"`
}

// Routes asks for the routes and how far they are.
func (c *Client) Routes(ctx context.Context) (Routes, error) {
	var out Routes
	return out, c.get(ctx, "/v1/routes", nil, &out)
}

// Since is where a back-fill begins: a block, a time, or, as the zero value, the
// oldest block that is still there.
type Since struct {
	Block uint64
	Time  time.Time
}

// Backfill asks for a back-fill of a stream. It is durable when the answer comes,
// and goes on whatever happens; Routes tells how far it is.
func (c *Client) Backfill(ctx context.Context, stream string, since Since) (Backfilling, error) {
	body := map[string]any{}
	switch {
	case since.Block > 0:
		body["from"] = since.Block
	case !since.Time.IsZero():
		body["from"] = since.Time.Format(time.RFC3339Nano)
	}
	var out Backfilling
	data, err := json.Marshal(body)
	if err != nil {
		return out, err
	}
	path := "/v1/routes/" + url.PathEscape(stream) + "/backfill"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(data))
	if err != nil {
		return out, err
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := c.do(c.http, req)
	if err != nil {
		return out, fmt.Errorf("backfill: %w", err)
	}
	return out, c.read(path, answer, &out)
}
