package hub

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// refused is what a hub says that does not start with this configuration.
func refused(t *testing.T, cfg Config) string {
	t.Helper()
	h, err := New(cfg)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // a hub that starts all the same is stopped
		select {
		case <-h.Ready():
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := h.Run(ctx); err != nil {
		return err.Error()
	}
	return ""
}

// filled returns a configuration of two routes whose streams hold messages.
func filled(t *testing.T) Config {
	t.Helper()
	cfg := testConfig(t.TempDir())
	cfg.Routes = []Route{small("logs.>", "LOGS"), small(">", "EDGE")}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.of("logs.app", strings.Repeat("a", 4000), strings.Repeat("b", 4000)))
	d.send(wire.FrameBlock, d.block("one", "two"))
	d.acked()
	r.holds("LOGS", 2)
	r.holds("EDGE", 2)
	eventually(t, "both streams are past both blocks, also past the one that has nothing for them", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && st.Ledger.Seq == 2 && st.Routes[0].Lag == 0 && st.Routes[1].Lag == 0
	})
	r.stop()
	return cfg
}

// holds waits until a stream holds so many messages.
func (r *running) holds(stream string, n uint64) {
	r.t.Helper()
	js, err := jetstream.New(r.inside())
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, stream+" holds what it must", func() bool {
		st, err := js.Stream(r.t.Context(), stream)
		return err == nil && st.CachedInfo().State.Msgs == n
	})
}

// post returns status and body of the answer.
func (r *running) post(path, kind, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest("POST", "http://"+r.Addrs().HTTP+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestSettingsThatChangeInPlace(t *testing.T) {
	cfg := filled(t)
	none := small("logs.>", "LOGS")
	none.MaxAge, none.MaxBytes, none.Discard, none.Compression = time.Hour, Size{Bytes: 4 << 20}, "new", "none"
	cfg.Routes[0] = none
	r := start(t, cfg)
	js, err := jetstream.New(r.inside())
	if err != nil {
		t.Fatal(err)
	}
	st, err := js.Stream(t.Context(), "LOGS")
	if err != nil {
		t.Fatal(err)
	}
	got := st.CachedInfo()
	if c := got.Config; c.MaxAge != time.Hour || c.MaxBytes != 4<<20 || c.Discard != jetstream.DiscardNew || c.Compression != jetstream.NoCompression || got.State.Msgs != 2 {
		t.Errorf("LOGS: %+v", got)
	}
	if !strings.Contains(r.log.String(), "keeps its messages for a shorter time") {
		t.Error("a shorter max_age is not logged")
	}
	r.stop()
	cfg.Routes[0] = small("logs.>", "LOGS") // and back
	r = start(t, cfg)
	r.holds("LOGS", 2)
	r.stop()
	// Smaller than what it holds: with discard: old the oldest go.
	cfg.Routes[0].MaxBytes, cfg.Routes[0].Compression = Size{Bytes: 6000}, "none"
	r = start(t, cfg)
	r.holds("LOGS", 1)
	if !strings.Contains(r.log.String(), "made smaller than what it holds") {
		t.Error("a smaller max_bytes is not logged")
	}
}

func TestChangesThatAreRefused(t *testing.T) {
	cfg := filled(t)
	for name, tt := range map[string]struct {
		change func(*Route)
		want   []string
	}{
		"prefix": {func(r *Route) { r.Prefix = "protocols" },
			[]string{"routes[0].prefix: stream LOGS holds 2 messages under logs.>", "put the old prefix back", "nats stream purge LOGS"}},
		"less than it holds, and discard: new": {func(r *Route) { r.MaxBytes, r.Discard = Size{Bytes: 6000}, "new" },
			[]string{"routes[0].max_bytes: stream LOGS holds ", "discard: old"}},
	} {
		c := cfg
		c.Routes = slices.Clone(cfg.Routes)
		tt.change(&c.Routes[0])
		text := refused(t, c)
		for _, w := range tt.want {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q lacks %q", name, text, w)
			}
		}
	}
	r := start(t, cfg) // nothing was touched
	r.holds("LOGS", 2)
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.PurgeStream("LOGS"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	cfg.Routes[0].Prefix = "protocols"
	r = start(t, cfg)
	d := newDevice(r, "press-8")
	d.open()
	d.send(wire.FrameBlock, d.of("logs.app", "x"))
	d.acked()
	r.holds("LOGS", 1)
}

// A route that is gone leaves its stream, which is reported; a route that takes
// its place can be back-filled.
func TestRemovedRouteAndBackfill(t *testing.T) {
	cfg := filled(t)
	cfg.Routes = []Route{{Match: "nothing.>", Unpack: noUnpack, MaxAge: time.Hour}, small("sensors.*", "NEW"), small("other.>", "OTHER")}
	cfg.Routes[1].MaxBytes = Size{Bytes: 128 << 20} // has room only if those give up theirs
	r := start(t, cfg)
	c := r.admin()
	orphans := func() (out []string) {
		list, err := c.Routes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Orphans {
			out = append(out, o.Name)
		}
		return out
	}
	eventually(t, "the orphans are listed", func() bool { return slices.Equal(orphans(), []string{"EDGE", "LOGS"}) })
	r.holds("LOGS", 2)
	d := newDevice(r, "press-8")
	d.open()
	d.send(wire.FrameBlock, d.block("three"))
	d.send(wire.FrameBlock, d.of("strange", "x", "y"))
	d.acked()
	r.holds("NEW", 1)
	eventually(t, "what has no route is counted", func() bool {
		list, err := c.Routes(t.Context())
		_, page := r.get("/metrics")
		return err == nil && list.Unrouted.Messages == 2 && list.Unrouted.Subject == "strange" && strings.Contains(page, "fieldpost_hub_unrouted_messages_total 2")
	})
	code, body := r.get("/readyz")
	if code != 200 || !strings.Contains(body, "note: stream LOGS is orphaned") || !strings.Contains(body, "note: messages without a route: 2, the newest with subject strange") {
		t.Errorf("readyz: %d %s", code, body)
	}

	var b admin.Backfilling
	eventually(t, "the back-fill is taken", func() (ok bool) {
		var err error
		b, err = c.Backfill(t.Context(), "NEW", admin.Since{Block: 1})
		return err == nil
	})
	if b.Stream != "NEW" || b.First != 1 || b.Last != 2 || b.LedgerFirst != 1 {
		t.Errorf("back-fill: %+v", b)
	}
	r.holds("NEW", 3)
	eventually(t, "it is complete", func() bool {
		list, err := c.Routes(t.Context())
		return err == nil && list.Routes[0].Packed && list.Routes[1].Backfill == nil && slices.Equal(list.Routes[1].Backfilled, []admin.Range{{First: 1, Last: 2}})
	})
	if _, err := c.Backfill(t.Context(), "NEW", admin.Since{Time: time.Now().Add(-time.Hour)}); err == nil || !strings.Contains(err.Error(), "nothing is left to back-fill") {
		t.Errorf("once more: %v", err)
	}
	if _, err := c.Backfill(t.Context(), "LOGS", admin.Since{}); err == nil || !strings.Contains(err.Error(), "no route unpacks into this stream") {
		t.Errorf("an orphan: %v", err)
	}
	r.stop()

	// A route with the stream takes it over again.
	cfg.Routes = []Route{small("logs.>", "LOGS"), small(">", "EDGE")}
	r = start(t, cfg)
	c = r.admin()
	eventually(t, "others are orphans", func() bool { return slices.Equal(orphans(), []string{"NEW", "OTHER"}) })
	r.holds("LOGS", 2)
	r.holds("EDGE", 2)
}

func TestBackfillRequests(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	for _, tt := range []struct {
		stream, kind, body string
		want               int
	}{
		{"EDGE", "text/plain", "{}", 415},
		{"EDGE", "", "{}", 415},
		{"EDGE", "application/json", "", 400},
		{"EDGE", "application/json", "[]", 400},
		{"EDGE", "application/json", `{"from":0}`, 400},
		{"EDGE", "application/json", `{"from":-1}`, 400},
		{"EDGE", "application/json", `{"from":1.5}`, 400},
		{"EDGE", "application/json", `{"from":"yesterday"}`, 400},
		{"EDGE", "application/json", `{"from":{}}`, 400},
		{"EDGE", "application/json", `{"to":5}`, 400},
		{"EDGE", "application/json", `{}{}`, 400},
		{"EDGE", "application/json", `{"from":"` + strings.Repeat("1", 100_000) + `"}`, 413},
		{"NONE", "application/json", "{}", 404},
		{"%00", "application/json", "{}", 404},
		{"BLOCKS", "application/json; charset=utf-8", "{}", 404},
	} {
		if code, body := r.post("/v1/routes/"+tt.stream+"/backfill", tt.kind, tt.body); code != tt.want || !strings.Contains(body, `"detail":"`) {
			t.Errorf("%s %q %.30s: %d %s", tt.stream, tt.kind, tt.body, code, body)
		}
	}
	eventually(t, "a route that is as old as the ledger has everything", func() bool {
		code, body := r.post("/v1/routes/EDGE/backfill", "application/json", `{"from":"2026-01-02T15:04:05Z"}`)
		return code == 409 && strings.Contains(body, "nothing is left")
	})
}

// What somebody does to the streams while the hub runs is repaired where that is
// safe, and shown.
func TestStreamsThatOthersChange(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	js, err := jetstream.New(r.inside())
	if err != nil {
		t.Fatal(err)
	}
	edit := func(stream string, fn func(*jetstream.StreamConfig)) {
		t.Helper()
		st, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := st.CachedInfo().Config
		fn(&cfg)
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	edit("EDGE", func(c *jetstream.StreamConfig) {
		c.MaxBytes, c.Subjects, c.AllowAtomicPublish = 9<<20, []string{"elsewhere.>"}, false
	})
	edit("BLOCKS", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	r.open.Load().monitor.inspect(t.Context())
	for _, name := range []string{"EDGE", "BLOCKS"} {
		st, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		c := st.CachedInfo().Config
		if name == "EDGE" && (!slices.Equal(c.Subjects, []string{"edge.>"}) || !c.AllowAtomicPublish || c.MaxBytes != 9<<20) || name == "BLOCKS" && c.MaxAge != 0 {
			t.Errorf("%s: %+v", name, c)
		}
	}
	if code, body := r.get("/readyz"); code != 200 || !strings.Contains(body, "note: stream EDGE has other settings than the configuration: max_bytes is 9437184, not 134217728; to keep them") {
		t.Errorf("readyz: %d %s", code, body)
	}
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	r.holds("EDGE", 1)
	eventually(t, "the hub knows that it is stored", func() bool { // or it stores it again, and rightly
		_, body := r.get("/metrics")
		return strings.Contains(body, `fieldpost_hub_unpack_messages_total{route="EDGE"} 1`)
	})
	if err := js.DeleteStream(t.Context(), "EDGE"); err != nil {
		t.Fatal(err)
	}
	r.open.Load().monitor.inspect(t.Context())
	d.send(wire.FrameBlock, d.block("two"))
	d.acked()
	r.holds("EDGE", 1)
	if got := edge(t, r.connect(), "press-7", 1); !slices.Equal(got, []string{"two"}) {
		t.Errorf("EDGE holds %q", got)
	}
	eventually(t, "readyz tells of it", func() bool {
		code, body := r.get("/readyz")
		return code == 200 && strings.Contains(body, "note: stream EDGE was deleted while the hub ran and was made anew")
	})
}

// Messages of others in a route's stream are counted and shown, and the hub's
// own come once all the same.
func TestOthersPublishIntoARoute(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	r.holds("EDGE", 1)
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(&nats.Msg{Subject: "edge.press-7.fake", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	d.send(wire.FrameBlock, d.block("two"))
	d.acked()
	if got := edge(t, r.connect(), "press-7", 3); !slices.Equal(got, []string{"one", "x", "two"}) {
		t.Errorf("EDGE holds %q", got)
	}
	eventually(t, "readyz tells of it", func() bool {
		code, body := r.get("/readyz")
		return code == 200 && strings.Contains(body, "note: messages of others in stream EDGE, which only the hub may write: 1 or more")
	})
}

// What one stream gives up, another can have, in whatever order they stand.
func TestRoomMovesBetweenStreams(t *testing.T) {
	cfg := testConfig(t.TempDir())
	sized := func(r Route, mib int64) Route { r.MaxBytes = Size{Bytes: mib << 20}; return r }
	cfg.Routes = []Route{sized(small(">", "EDGE"), 140)}
	start(t, cfg).stop()
	cfg.Routes = []Route{sized(small("logs.>", "LOGS"), 70), sized(small(">", "EDGE"), 70)}
	start(t, cfg).stop()
	cfg.Routes = []Route{sized(small("logs.>", "LOGS"), 130), sized(small(">", "EDGE"), 10)}
	start(t, cfg).stop()
}
