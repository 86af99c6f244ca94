package hub

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// entries are the lines of the audit, without their times.
func (r *running) entries() (out []string) {
	r.t.Helper()
	page, err := r.admin().Audit(r.t.Context(), admin.AuditQuery{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range page.Entries {
		if e.Time.IsZero() {
			r.t.Errorf("%+v has no time", e)
		}
		out = append(out, fmt.Sprintf("%d %s %s %s: %s %d", e.Seq, e.Actor, e.Action, e.Object, e.Outcome, e.Of))
	}
	return out
}

func TestAuditOfEveryChange(t *testing.T) {
	dir := t.TempDir()
	r := start(t, testConfig(dir))
	a := r.admin()
	fillDead(t, r, 2)
	if _, err := a.PurgeDead(t.Context(), admin.DeadChoice{Seqs: []uint64{1, 99}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.RetryDead(t.Context(), admin.DeadChoice{All: true, Consumer: "b"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Forget(t.Context(), "press-7"); err == nil {
		t.Fatal("a device that nobody knows is forgotten")
	}
	if _, err := a.Backfill(t.Context(), "NONE", admin.Since{}); err == nil {
		t.Fatal("a stream that is not there is back-filled")
	}
	d := newDevice(r, "press-8")
	st, err := a.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Import(t.Context(), bytes.NewReader(exported(t, d, st.HubID, d.block("one"))), false); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Dead(t.Context(), admin.DeadQuery{}); err != nil { // changes nothing
		t.Fatal(err)
	}
	want := []string{
		"1 local dead_purge letters [1 99]: begun 0", "2 local dead_purge letters [1 99]: done: 1 letters were purged 1",
		`3 local dead_retry all letters with filter="" consumer="b" reason="" after=0 up_to=0: begun 0`,
		`4 local dead_retry all letters with filter="" consumer="b" reason="" after=0 up_to=0: done: 1 letters were retried 3`,
		"5 local device_forget press-7: begun 0", "6 local device_forget press-7: failed: ",
		"7 local route_backfill NONE: begun 0", "8 local route_backfill NONE: failed: ",
		"9 local import a file, force=false: begun 0", "10 local import a file, force=false: done: device press-8, 1 messages stored, 0 were there 9",
	}
	check := func() {
		t.Helper()
		got := r.entries()
		if len(got) != len(want) {
			t.Fatalf("%d entries:\n%s", len(got), strings.Join(got, "\n"))
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("entry %q, want %q", got[i], want[i])
			}
		}
	}
	check()
	r.stop()
	r = start(t, testConfig(dir))
	check()
}

func TestAuditIsPaged(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	for i := range 3 {
		r.admin().Forget(t.Context(), fmt.Sprint("d", i)) // fails, and is written down
	}
	var seqs []uint64
	middle := time.Time{}
	for q := (admin.AuditQuery{Limit: 4}); ; {
		page, err := r.admin().Audit(t.Context(), q)
		if err != nil || len(page.Entries) > 4 {
			t.Fatalf("%+v, %v", page, err)
		}
		for _, e := range page.Entries {
			seqs = append(seqs, e.Seq)
			if e.Seq == 3 {
				middle = e.Time
			}
		}
		if q.After = page.Next; q.After == 0 {
			break
		}
	}
	if fmt.Sprint(seqs) != "[1 2 3 4 5 6]" {
		t.Errorf("pages hold %v", seqs)
	}
	page, err := r.admin().Audit(t.Context(), admin.AuditQuery{Since: middle})
	if err != nil || len(page.Entries) != 4 || page.Entries[0].Seq != 3 {
		t.Errorf("since the third: %+v, %v", page, err)
	}
	page, err = r.admin().Audit(t.Context(), admin.AuditQuery{Since: time.Now().Add(time.Hour)})
	if err != nil || len(page.Entries) != 0 || page.Entries == nil {
		t.Errorf("of the future: %+v, %v", page, err)
	}
	for _, query := range []string{"limit=0", "limit=1001", "after=x", "after=18446744073709551615", "since=yesterday"} {
		if code, body := r.get("/v1/audit?" + query); code != 400 || !strings.Contains(body, "bad_request") {
			t.Errorf("%s: %d %s", query, code, body)
		}
	}
}

// What cannot be written down is not done.
func TestWithoutAuditNothingChanges(t *testing.T) {
	var held atomic.Bool
	cfg := testConfig(t.TempDir())
	cfg.Fault = failing(&held, "audit:write")
	r := start(t, cfg)
	fillDead(t, r, 1)
	d := newDevice(r, "press-7")
	st, err := r.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held.Store(true)
	_, purge := r.admin().PurgeDead(t.Context(), admin.DeadChoice{All: true})
	_, imported := r.admin().Import(t.Context(), bytes.NewReader(exported(t, d, st.HubID, d.block("one"))), false)
	forget := r.admin().Forget(t.Context(), "press-7")
	_, backfill := r.admin().Backfill(t.Context(), "EDGE", admin.Since{})
	for _, err := range []error{purge, imported, forget, backfill} {
		if err == nil || !strings.Contains(err.Error(), "not_audited") {
			t.Errorf("without an audit: %v", err)
		}
	}
	if n := len(letters(t, r.admin(), 4)); n != 4 {
		t.Errorf("%d letters are left", n)
	}
	if info, err := r.open.Load().store.Info(t.Context(), store.Blocks); err != nil || info.Last != 0 {
		t.Errorf("the file was imported: %+v, %v", info, err)
	}
	held.Store(false)
	if got := r.entries(); len(got) != 0 {
		t.Errorf("audit: %q", got)
	}
}

// If only how it ended cannot be written down, the change is answered, and the
// entry that it was begun stays.
func TestAuditSaysWhatItDoesNotKnow(t *testing.T) {
	var writes atomic.Int64
	cfg := testConfig(t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "audit:write" && writes.Add(1) == 2 {
			return fmt.Errorf("injected")
		}
		return nil
	}
	r := start(t, cfg)
	fillDead(t, r, 1)
	if out, err := r.admin().PurgeDead(t.Context(), admin.DeadChoice{Seqs: []uint64{1}}); err != nil || out.Purged != 1 {
		t.Errorf("purge: %+v, %v", out, err)
	}
	if got := r.entries(); len(got) != 1 || !strings.Contains(got[0], "begun") {
		t.Errorf("audit: %q", got)
	}
	if !strings.Contains(r.log.String(), "how a change ended cannot be written down") {
		t.Error("the log does not say so")
	}
}

func TestAuditOnlyGrows(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	r.admin().Forget(t.Context(), "d") // fails, and is written down
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteMsg(store.Audit, 1); err == nil {
		t.Error("an entry can be deleted")
	}
	if err := js.PurgeStream(store.Audit); err == nil {
		t.Error("the audit can be purged")
	}
	st, err := js.StreamInfo(store.Audit)
	if err != nil || st.Config.MaxBytes <= 0 || st.Config.MaxBytes > 16<<20 || st.Config.Discard != nats.DiscardOld {
		t.Errorf("AUDIT: %+v, %v", st, err)
	}
	if !store.Reserved("audit") {
		t.Error("a route may have AUDIT")
	}
}

func TestAuditEntriesAreBounded(t *testing.T) {
	if got := short(strings.Repeat("é", auditText)); len(got) > auditText+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes", len(got))
	}
	for addr, want := range map[string]string{"127.0.0.1:1": "local", "[::1]:1": "local", "[::ffff:127.0.0.1]:1": "local", "192.0.2.7:1": "192.0.2.7", "[2001:db8::1]:1": "2001:db8::1", "@": "@"} {
		if got := actor(&http.Request{RemoteAddr: addr}); got != want {
			t.Errorf("%s is %s, want %s", addr, got, want)
		}
	}
}

// TestAuditOfCommands: what is sent is written down, but not what is asked for again.
func TestAuditOfCommands(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a := r.admin()
	for range 2 {
		if _, err := a.Send(t.Context(), "press-7", admin.NewCommand{ID: "c1", Subject: "valve.set"}, 0); err != nil {
			t.Fatal(err)
		}
	}
	drawn, err := a.Send(t.Context(), "press-7", admin.NewCommand{Subject: "valve.set"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Send(t.Context(), "press-8", admin.NewCommand{ID: "c1", Subject: "x"}, 0); err == nil {
		t.Fatal("an id is taken twice")
	}
	if _, err := a.CancelCommand(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CancelCommand(t.Context(), "none"); err == nil {
		t.Fatal("a command that nobody knows is cancelled")
	}
	if _, err := a.SendGroup(t.Context(), admin.NewCommand{ID: "g1", Subject: "valve.set", Labels: map[string]string{"site": "north", "line": "4"}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range r.entries() {
		if !strings.Contains(e, ": begun") {
			got = append(got, e[strings.Index(e, "command_"):])
		}
	}
	want := []string{"command_send press-7 valve.set: done: c1 1", "command_send press-7 valve.set: done: " + drawn.ID + " 3", "command_cancel c1: done 5",
		"command_cancel none: failed: commands: no such command 7", "command_send_group line=4,site=north valve.set: done: g1, 0 devices 9"}
	if !slices.Equal(got, want) {
		t.Errorf("audit:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
