package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// pages are the sequences of a listing, a page between brackets.
func (r *running) pages(q admin.AuditQuery) string {
	r.t.Helper()
	var out strings.Builder
	for {
		page, err := r.admin().Audit(r.t.Context(), q)
		if err != nil || page.Entries == nil || len(page.Entries) > q.Limit {
			r.t.Fatalf("%+v: %+v, %v", q, page, err)
		}
		out.WriteString("[")
		for i, e := range page.Entries {
			if q.Action != "" && e.Action != q.Action {
				r.t.Errorf("%+v has %+v", q, e)
			}
			fmt.Fprint(&out, strings.Repeat(" ", min(i, 1)), e.Seq)
		}
		out.WriteString("]")
		if page.Next == 0 {
			return out.String()
		}
		if q.Newest {
			q.Before = page.Next
		} else {
			q.After = page.Next
		}
	}
}

func TestAuditNewestFirst(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	if got := r.pages(admin.AuditQuery{Newest: true, Limit: 4}); got != "[]" {
		t.Errorf("of nothing: %s", got)
	}
	for i := range 3 { // fail, and are written down
		r.admin().Forget(t.Context(), fmt.Sprint("d", i))
		r.admin().Backfill(t.Context(), "NONE", admin.Since{})
	}
	for _, c := range []struct {
		q    admin.AuditQuery
		want string
	}{
		{admin.AuditQuery{Newest: true, Limit: 5}, "[12 11 10 9 8][7 6 5 4 3][2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 6}, "[12 11 10 9 8 7][6 5 4 3 2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 12}, "[12 11 10 9 8 7 6 5 4 3 2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 9, Before: 4}, "[3 2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 9, Before: 1}, "[]"},
		{admin.AuditQuery{Newest: true, Limit: 9, Before: 1000}, "[12 11 10 9 8 7 6 5 4][3 2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 4, Action: "device_forget"}, "[10 9 6 5][2 1]"},
		{admin.AuditQuery{Newest: true, Limit: 6, Action: "device_forget"}, "[10 9 6 5 2 1]"},
		{admin.AuditQuery{Limit: 4, Action: "route_backfill"}, "[3 4 7 8][11 12]"},
		{admin.AuditQuery{Newest: true, Limit: 4, Action: "import"}, "[]"},
	} {
		if got := r.pages(c.q); got != c.want {
			t.Errorf("%+v: %s, want %s", c.q, got, c.want)
		}
	}
	for _, query := range []string{"order=up", "before=4", "order=newest&before=x", "order=newest&after=1", "order=newest&since=2026-01-02T15:04:05Z", "action=*", "action=a.b"} {
		if code, body := r.get("/v1/audit?" + query); code != 400 || !strings.Contains(body, "bad_request") {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}
