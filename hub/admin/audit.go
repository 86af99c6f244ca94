package admin

import (
	"context"
	"net/url"
	"strconv"
	"time"
)

// AuditEntry is one line of the audit. A change has two: that it was begun, and
// how it ended. If the second is missing, how it ended is not known.
type AuditEntry struct {
	Seq     uint64    `json:"seq,omitempty"` // in AUDIT
	Time    time.Time `json:"time,omitzero"` // stored
	Action  string    `json:"action"`        // dead_retry, dead_purge, device_forget, route_backfill, import, desired_set, desired_remove
	Actor   string    `json:"actor"`         // the caller's address, or local
	Object  string    `json:"object"`
	Outcome string    `json:"outcome"`      // begun, done…, failed: …
	Of      uint64    `json:"of,omitempty"` // the entry that it was begun
}

// Audit is GET /v1/audit: one page, the oldest first unless the newest were asked for.
type Audit struct {
	Entries []AuditEntry `json:"entries"`        // never null
	Next    uint64       `json:"next,omitempty"` // value of after, or of before, for the next page
}

// AuditQuery chooses a page. The zero value is the first page of all.
type AuditQuery struct {
	After  uint64    // sequence in AUDIT, exclusive
	Since  time.Time // stored then or later
	Limit  int       // 0: the hub's default
	Action string    // empty: all
	// Newest asks for the newest first; Before is exclusive, and 0 stands for the end.
	// After and Since are not for this order.
	Newest bool
	Before uint64
}

// Audit asks for one page of the audit.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (Audit, error) {
	v := url.Values{}
	if q.After > 0 {
		v.Set("after", strconv.FormatUint(q.After, 10))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.Action != "" {
		v.Set("action", q.Action)
	}
	if q.Newest {
		v.Set("order", "newest")
	}
	if q.Before > 0 {
		v.Set("before", strconv.FormatUint(q.Before, 10))
	}
	var out Audit
	return out, c.get(ctx, "/v1/audit", v, &out)
}
