package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// backEnd is a consumer like anybody's.
func backEnd(t *testing.T, nc *nats.Conn, stream string, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AckPolicy = jetstream.AckExplicitPolicy
	c, err := js.CreateOrUpdateConsumer(t.Context(), stream, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	m, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// letters waits until DEAD holds n.
func letters(t *testing.T, a *admin.Client, n int) (out []admin.Letter) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d letters", n), func() bool {
		page, err := a.Dead(t.Context(), admin.DeadQuery{})
		if err != nil {
			t.Fatal(err)
		}
		out = page.Letters
		return len(out) == n
	})
	return out
}

// The whole way: given up, kept, looked at, retried, given up again, retried,
// taken.
func TestDeadLetterGoesAndComesBack(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a, nc := r.admin(), r.connect()
	inside, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inside.PublishMsg(&nats.Msg{Subject: "edge.press-7.sensors.temp", Data: []byte("21.5"), Header: nats.Header{"Unit": {"C"}}}); err != nil {
		t.Fatal(err)
	}
	worker := backEnd(t, nc, "EDGE", jetstream.ConsumerConfig{Durable: "worker"})
	again := backEnd(t, nc, "RETRY", jetstream.ConsumerConfig{Durable: "worker-again", FilterSubject: "retry.worker"})
	if err := next(t, worker).TermWithReason("no such press"); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		got := letters(t, a, 1)[0]
		if got.Subject != "edge.press-7.sensors.temp" || got.Stream != "EDGE" || got.StreamSeq != 1 || got.Consumer != "worker" || got.Reason != "terminated" ||
			got.Retry != uint64(n) || got.Size != 4 || got.Refusal != "" || got.Deliveries != 1 || got.Time.IsZero() {
			t.Errorf("letter %+v", got)
		}
		whole, err := a.DeadLetter(t.Context(), got.Seq)
		if err != nil || string(whole.Payload()) != "21.5" || whole.Headers["Unit"][0] != "C" || whole.Letter != got || n == 0 && whole.Detail != "no such press" {
			t.Errorf("whole letter %+v, %v", whole, err)
		}
		if out, err := a.RetryDead(t.Context(), admin.DeadChoice{Seqs: []uint64{got.Seq, got.Seq + 1000}}); err != nil || out.Retried != 1 || out.Gone != 1 || out.Purged != 0 {
			t.Fatalf("retry: %+v, %v", out, err)
		}
		letters(t, a, 0)
		m := next(t, again)
		h := m.Headers()
		if m.Subject() != "retry.worker" || string(m.Data()) != "21.5" || h.Get("Unit") != "C" || h.Get("Fieldpost-Subject") != got.Subject || h.Get("Fieldpost-Stream") != "EDGE" ||
			h.Get("Fieldpost-Stream-Seq") != "1" || h.Get("Fieldpost-Retry") != fmt.Sprint(n+1) || h.Get("Fieldpost-Reason") != "" {
			t.Errorf("retried: %s %q %v", m.Subject(), m.Data(), h)
		}
		if n == 0 {
			err = m.Term()
		} else {
			err = m.DoubleAck(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	letters(t, a, 0)
	if _, body := r.get("/metrics"); !strings.Contains(body, `fieldpost_hub_dead_total{reason="terminated"} 2`) || !strings.Contains(body, `fieldpost_hub_dead_total{reason="max_deliveries"} 0`) {
		t.Errorf("metrics: %s", body)
	}
}

// fill puts letters into DEAD as the hub writes them: of consumers a and b, one
// without a body, a gap and a poison block.
func fillDead(t *testing.T, r *running, n int) {
	t.Helper()
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	put := func(subject string, h nats.Header) {
		t.Helper()
		if _, err := js.PublishMsg(&nats.Msg{Subject: subject, Header: h, Data: []byte("\xff")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		put(fmt.Sprintf("dead.EDGE.edge.d%d.x", i%2), nats.Header{"Fieldpost-Reason": {"terminated"}, "Fieldpost-Consumer": {string("ab"[i%2])},
			"Fieldpost-Stream": {"EDGE"}, "Fieldpost-Stream-Seq": {fmt.Sprint(i + 1)}, "Nats-Msg-Id": {fmt.Sprintf("EDGE.1.a.%d", i+1)}})
	}
	put("dead.EDGE.unknown", nats.Header{"Fieldpost-Reason": {"max_deliveries"}, "Fieldpost-Consumer": {"a"}, "Fieldpost-Body": {"gone"}})
	put("dead.gap.d0", nats.Header{"Fieldpost-Reason": {"ttl"}, "Fieldpost-Gap": {"0000000000000001/normal/1-2"}})
	put("dead.BLOCKS.fp.blocks.d0.0000000000000001.normal", nats.Header{"Fieldpost-Reason": {"corrupt"}})
}

func TestDeadIsListedInPages(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a := r.admin()
	fillDead(t, r, 10)
	for q, want := range map[admin.DeadQuery]string{
		{}:                                     "1 2 3 4 5 6 7 8 9 10 11 12 13",
		{Limit: 3}:                             "1 2 3 | 4 5 6 | 7 8 9 | 10 11 12 | 13",
		{Limit: 2, Consumer: "b"}:              "2 4 | 6 8 | 10",
		{Filter: "edge.d0.>"}:                  "1 3 5 7 9",
		{Filter: "edge.*.x", After: 8}:         "9 10",
		{Filter: ">", Reason: "corrupt"}:       "13",
		{Reason: "ttl"}:                        "12",
		{Filter: "d0"}:                         "12",
		{Reason: "terminated", Consumer: "c"}:  "",
		{After: 1 << 63}:                       "",
		{Reason: "max_deliveries", Limit: 100}: "11",
	} {
		var pages []string
		for q := q; ; {
			page, err := a.Dead(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var seqs []string
			for _, l := range page.Letters {
				seqs = append(seqs, fmt.Sprint(l.Seq))
			}
			if len(seqs) > 0 {
				pages = append(pages, strings.Join(seqs, " "))
			}
			if page.Next == 0 {
				break
			}
			q.After = page.Next
		}
		if got := strings.Join(pages, " | "); got != want {
			t.Errorf("%+v: %s, want %s", q, got, want)
		}
	}
	l, err := a.DeadLetter(t.Context(), 1)
	if err != nil || l.Text != nil || string(l.Payload()) != "\xff" || l.Headers["Nats-Msg-Id"] != nil {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestRetryAndPurgeOfMany(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	a := r.admin()
	fillDead(t, r, 300)
	for seq, text := range map[uint64]string{301: "holds no message", 302: "gap", 303: "decoded"} {
		_, err := a.RetryDead(t.Context(), admin.DeadChoice{Seqs: []uint64{seq}})
		var p *admin.Problem
		if !errors.As(err, &p) || p.Status != 409 || p.Code != "not_retryable" || !strings.Contains(p.Detail, text) {
			t.Errorf("letter %d: %v", seq, err)
		}
	}
	if out, err := a.PurgeDead(t.Context(), admin.DeadChoice{All: true, Filter: "edge.d0.*", Consumer: "a", Reason: "terminated"}); err != nil || out.Purged != 150 || out.Retried != 0 {
		t.Errorf("purge: %+v, %v", out, err)
	}
	if out, err := a.RetryDead(t.Context(), admin.DeadChoice{All: true}); err != nil || out.Retried != 150 || out.Refused != 3 || len(out.Why) != 3 || out.Next != 0 {
		t.Errorf("retry: %+v, %v", out, err)
	}
	info, err := r.open.Load().store.Info(t.Context(), store.Retry)
	if err != nil || info.Messages != 150 {
		t.Errorf("RETRY: %+v, %v", info, err)
	}
	if out, err := a.PurgeDead(t.Context(), admin.DeadChoice{All: true, UpTo: 302}); err != nil || out.Purged != 2 {
		t.Errorf("purge of the rest: %+v, %v", out, err)
	}
	letters(t, a, 1)
}

func TestDeadRefuses(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	fillDead(t, r, 2)
	for path, want := range map[string]string{
		"/v1/dead?limit=0":                              "400 bad_limit",
		"/v1/dead?limit=1001":                           "400 bad_limit",
		"/v1/dead?after=x":                              "400 bad_request",
		"/v1/dead?after=" + fmt.Sprint(uint64(1<<64-1)): "400 bad_request",
		"/v1/dead?filter=a..b":                          "400 bad_request",
		"/v1/dead/0":                                    "400 bad_request",
		"/v1/dead/retry":                                "400 bad_request",
		"/v1/dead/99":                                   "404 not_found",
	} {
		code, body := r.get(path)
		var p admin.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || fmt.Sprint(code, " ", p.Code) != want || p.Detail == "" {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, c := range []struct {
		body, kind, site string
		want             string
	}{
		{`{"all":true}`, "application/x-www-form-urlencoded", "", "415 bad_request"},
		{`{"all":true}`, "text/plain", "", "415 bad_request"},
		{`{"all":true}`, "", "", "415 bad_request"},
		{`{"all":true}`, "application/json", "cross-site", "403 forbidden"},
		{`{}`, "application/json", "", "400 bad_request"},
		{`{"all":true,"seqs":[1]}`, "application/json", "", "400 bad_request"},
		{`{"seqs":[1],"filter":"a.>"}`, "application/json", "", "400 bad_request"},
		{`{"consumer":"a"}`, "application/json", "", "400 bad_request"},
		{`{"all":true,"filter":"a..b"}`, "application/json", "", "400 bad_request"},
		{`{"all":true,"every":1}`, "application/json", "", "400 bad_request"},
		{`{"seqs":[-1]}`, "application/json", "", "400 bad_request"},
		{`{"all":true}{"all":true}`, "application/json; charset=utf-8", "", "400 bad_request"},
		{`{"seqs":[` + strings.Repeat("1,", 1000) + `1]}`, "application/json", "", "400 bad_request"},
		{`{"seqs":[` + strings.Repeat("1,", maxBody) + `1]}`, "application/json", "", "413 too_large"},
		{`all`, "application/json", "", "400 bad_request"},
	} {
		for _, verb := range []string{"retry", "purge"} {
			req, err := http.NewRequest("POST", "http://"+r.Addrs().HTTP+"/v1/dead/"+verb, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", c.kind)
			if c.site != "" {
				req.Header.Set("Sec-Fetch-Site", c.site)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var p admin.Problem
			data, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err = errors.Join(err, json.Unmarshal(data, &p)); err != nil || fmt.Sprint(resp.StatusCode, " ", p.Code) != c.want || p.Detail == "" {
				t.Errorf("%s %.60s: %d %s %v", verb, c.body, resp.StatusCode, data, err)
			}
		}
	}
	for range maxDeads {
		r.deads <- struct{}{}
	}
	if code, body := r.get("/v1/dead"); code != 429 || !strings.Contains(body, "quota") {
		t.Errorf("too many: %d %s", code, body)
	}
	for range maxDeads {
		<-r.deads
	}
	letters(t, r.admin(), 5)
}

func TestRetryWithoutRoom(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Dead.MaxBytes = Size{Bytes: 10 << 20} // 2 MiB for RETRY
	r := start(t, cfg)
	a := r.admin()
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		m := &nats.Msg{Subject: "dead.EDGE.edge.d.x", Data: make([]byte, 500<<10), Header: nats.Header{"Fieldpost-Reason": {"terminated"}, "Fieldpost-Consumer": {"a"},
			"Fieldpost-Stream": {"EDGE"}, "Fieldpost-Stream-Seq": {fmt.Sprint(i + 1)}}}
		if _, err := js.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	retried := 0
	for i := uint64(1); i <= 6; i++ {
		out, err := a.RetryDead(t.Context(), admin.DeadChoice{Seqs: []uint64{i}})
		var p *admin.Problem
		if retried += out.Retried; err != nil && (!errors.As(err, &p) || p.Code != "full" || p.Status != 503) {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if retried == 0 || retried == 6 {
		t.Errorf("%d of 6 fit", retried)
	}
	letters(t, a, 6-retried)
}

func TestReadinessNamesDeadLettersHeldUp(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("edge.d.x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo(store.Dead)
	if err != nil {
		t.Fatal(err)
	}
	cfg := info.Config
	cfg.Discard, cfg.MaxBytes = nats.DiscardNew, 10
	if _, err := js.UpdateStream(&cfg); err != nil {
		t.Fatal(err)
	}
	if err := next(t, backEnd(t, r.connect(), "EDGE", jetstream.ConsumerConfig{Durable: "worker"})).Term(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "readyz says why", func() bool {
		code, body := r.get("/readyz")
		return code == 503 && strings.Contains(body, "dead letters are held up") && strings.Contains(body, "full")
	})
	cfg.MaxBytes = 1 << 20
	if _, err := js.UpdateStream(&cfg); err != nil {
		t.Fatal(err)
	}
	letters(t, r.admin(), 1)
	eventually(t, "ready again", func() bool { code, _ := r.get("/readyz"); return code == 200 })
}
