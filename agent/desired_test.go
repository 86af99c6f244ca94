package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// overlaid is a Config.Overlay that knows some keys.
func overlaid(base Config) func([]byte) (Config, error) {
	return func(object []byte) (Config, error) {
		in := struct {
			Log  struct{ Level slog.Level }
			Link struct {
				Class   string
				MaxRate int64 `json:"max_rate"`
				Daily   int64 `json:"daily_bytes"`
				Bulk    bool  // bulk waits for the 29th of February
			}
			Lanes []LaneRule
		}{}
		in.Log.Level, in.Link.Class, in.Lanes = base.Level, base.Link.Class, base.Lanes
		dec := json.NewDecoder(bytes.NewReader(object))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return Config{}, fmt.Errorf("agent: %w", err)
		}
		c := base
		c.Level, c.Lanes, c.Link = in.Log.Level, in.Lanes, LinkConfig{Class: in.Link.Class, MaxRate: in.Link.MaxRate, DailyBytes: in.Link.Daily}
		if in.Link.Bulk {
			c.Link.Windows = []LinkWindow{{Lanes: []wire.Lane{wire.Bulk}, Cron: "0 0 29 2 *", For: time.Minute}}
		}
		return c, c.Validate()
	}
}

func withOverlay(c *Config) {
	c.LevelVar = new(slog.LevelVar)
	c.Overlay = overlaid(*c)
}

// desire is an answer of the hub that brings a document.
func (w *world) desire(version, document string) {
	w.t.Helper()
	_, err := w.a.exchange.Take(w.a.exchange.Ask(0), &wire.CommandReply{Stream: "s", Desired: &wire.Desired{Version: version, Document: json.RawMessage(document)}})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestDesiredOverHTTP(t *testing.T) {
	w := start(t, withOverlay)
	first := w.do("GET", "/v1/desired", "")
	if first.status != 200 || first.body != `{"version":"","state":"","reason":"","in_effect":"","document":{}}`+"\n" {
		t.Errorf("%d %s", first.status, first.body)
	}
	if strings.Contains(w.do("GET", "/v1/status", "").body, `"desired"`) {
		t.Error("status shows what is not there")
	}
	tag := first.header.Get("ETag")
	if r := w.do("GET", "/v1/desired", "", "If-None-Match", tag); r.status != 304 || r.body != "" {
		t.Errorf("the same: %d %s", r.status, r.body)
	}
	if r := w.do("GET", "/v1/desired?wait=10ms", "", "If-None-Match", tag); r.status != 304 {
		t.Errorf("waited for nothing: %d %s", r.status, r.body)
	}
	news := make(chan reply, 1)
	go func() { news <- w.do("GET", "/v1/desired?wait=10m", "", "If-None-Match", tag) }()
	w.desire("v1", `{"agent":{"log":{"level":"debug"}},"app":{"n":1}}`)
	if r := <-news; r.status != 200 || r.body != `{"version":"v1","state":"applied","reason":"","in_effect":"v1","document":{"agent":{"log":{"level":"debug"}},"app":{"n":1}}}`+"\n" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if l := w.a.cfg.LevelVar.Level(); l != slog.LevelDebug {
		t.Errorf("level %v", l)
	}
	for _, c := range []struct {
		method, path string
		status       int
		code         string
	}{
		{"POST", "/v1/desired/v1", 404, codeNotFound}, {"POST", "/v1/desired/v1/like", 404, codeNotFound}, {"POST", "/v1/desired/v0/refuse", 409, codeOutdated},
		{"GET", "/v1/desired/v1/apply", 405, codeBadMethod}, {"GET", "/v1/desired?wait=11m", 400, codeBadRequest}, {"GET", "/v1/desired?wait=x", 400, codeBadRequest},
	} {
		if r := w.do(c.method, c.path, ""); r.status != c.status || r.problem(t).Code != c.code {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.status, r.body)
		}
	}
	if r := w.do("POST", "/v1/desired/v1/apply", ""); r.status != 204 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/desired/v1/refuse", "no such pump"); r.status != 204 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do("GET", "/v1/status", ""); !strings.Contains(r.body, `"desired":{"version":"v1","state":"refused","reason":"a program refuses it: no such pump"}`) {
		t.Error(r.body)
	}
	w.desire("v2", `{"agent":{"hub":{}}}`)
	if r := w.do("POST", "/v1/desired/v2/refuse", ""); r.status != 409 {
		t.Errorf("refused by the agent: %d %s", r.status, r.body)
	}
	if r := w.do("GET", "/v1/desired", ""); !strings.Contains(r.body, `"state":"refused","reason":"agent: json: unknown field \"hub\"","in_effect":"v1"`) {
		t.Error(r.body)
	}
	if l := w.a.cfg.LevelVar.Level(); l != slog.LevelDebug {
		t.Errorf("level %v", l)
	}
	w.desire("v3", `{}`)
	if l := w.a.cfg.LevelVar.Level(); l != slog.LevelInfo {
		t.Errorf("what is taken away falls back: level %v", l)
	}
}

// Programs that wait are bounded, and are told when the agent stops.
func TestDesiredWaitersAreBounded(t *testing.T) {
	w := start(t, nil)
	tag := w.do("GET", "/v1/desired", "").header.Get("ETag")
	answers := make(chan int, 65)
	for range 65 {
		go func() {
			req, err := http.NewRequest("GET", "http://agent/v1/desired?wait=10m", nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("If-None-Match", tag)
			resp, err := w.http.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
	}
	if s := <-answers; s != 429 {
		t.Errorf("one too many: %d", s)
	}
	w.stop()
	for range 64 {
		if s := <-answers; s != 304 {
			t.Errorf("at the end: %d", s)
		}
	}
}

func TestDesiredClient(t *testing.T) {
	w := start(t, withOverlay)
	c := w.dial()
	if d, err := c.Desired(background); err != nil || d.Version != "" || string(d.Document) != "{}" {
		t.Errorf("%+v %v", d, err)
	}
	seen, ended := make(chan client.Desired, 8), make(chan error, 1)
	go func() { ended <- c.WatchDesired(background, func(d client.Desired) { seen <- d }) }()
	if d := <-seen; d.Version != "" {
		t.Errorf("%+v", d)
	}
	w.desire("v1", `{"app":1}`)
	if d := <-seen; d.Version != "v1" || d.State != "applied" || d.InEffect != "v1" {
		t.Errorf("%+v", d)
	}
	if err := c.ApplyDesired(background, "v1"); err != nil {
		t.Error(err)
	}
	if d := <-seen; d.Confirmed.IsZero() {
		t.Errorf("%+v", d)
	}
	if err := c.RefuseDesired(background, "v1", "no"); err != nil {
		t.Error(err)
	}
	if d := <-seen; d.State != "refused" {
		t.Errorf("%+v", d)
	}
	if err := c.RefuseDesired(background, "v0", "no"); err == nil || !strings.Contains(err.Error(), "outdated") {
		t.Error(err)
	}
	c.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What a person sets holds over the class that the settings name, until they name
// another one.
func TestClassOfAPersonAndOfTheHub(t *testing.T) {
	w := start(t, withOverlay)
	w.do("PUT", "/v1/link", `{"class":"metered"}`)
	w.desire("v1", `{"agent":{"link":{"max_rate":5}}}`)
	if c := w.a.linkClass(); c != "metered" {
		t.Errorf("a version that names no other class: %s", c)
	}
	w.a.desired.SessionUp()
	w.desire("v2", `{"agent":{"link":{"class":"metered"}}}`)
	w.a.desired.SessionUp()
	w.do("PUT", "/v1/link", `{"class":"unmetered"}`)
	w.desire("v3", `{"agent":{"link":{"class":"metered"},"log":{"level":"warn"}}}`)
	if c := w.a.linkClass(); c != "unmetered" {
		t.Errorf("the same class again: %s", c)
	}
	w.desire("v4", `{}`)
	if c := w.a.linkClass(); c != "unmetered" {
		t.Errorf("back to the configuration: %s", c)
	}
	w.desire("v5", `{"agent":{"link":{"class":"metered"}}}`)
	w.a.desired.SessionUp()
	w.do("PUT", "/v1/link", `{"class":"unmetered"}`)
	w.desire("v6", `{"agent":{"link":{"class":"unmetered"}}}`)
	w.desire("v7", `{"agent":{"link":{"class":"metered"}}}`) // which v6, on trial, was to take the place of
	if c := w.a.linkClass(); c != "unmetered" {
		t.Errorf("back to the class over which a person has set another: %s", c)
	}
	if r := w.do("PUT", "/v1/link", `{"class":"lte"}`); r.status != 400 {
		t.Errorf("%d", r.status)
	}
}

// A daily budget that comes at run time counts what was used before, and is kept.
func TestDailyBudgetFromTheHub(t *testing.T) {
	w := start(t, withOverlay)
	w.a.policy.Sent(time.Now(), wire.Normal, 700)
	w.desire("v1", `{"agent":{"link":{"daily_bytes":1000}}}`)
	if r := w.do("GET", "/v1/status", ""); !strings.Contains(r.body, `"daily_bytes":1000,"used_bytes":700`) {
		t.Error(r.body)
	}
	w.eventually("its use is kept", func() bool {
		u, err := loadUsage(w.a.usageFile())
		return err == nil && u.Bytes == 700
	})
	w.a.desired.SessionUp()
	w.desire("v2", `{}`)
	if r := w.do("GET", "/v1/status", ""); strings.Contains(r.body, "daily_bytes") {
		t.Error(r.body)
	}
}

// Settings are put into effect, on a link that goes on and on one that is made
// anew, and are in effect again for the next run of the agent.
func TestDesiredFromAHub(t *testing.T) {
	h := newDesiredHub(t)
	w := withHub(t, h, nil)
	opens := h.numOpens()
	h.set("v1", `{"agent":{"link":{"max_rate":1,"bulk":true}}}`) // what holds all data back is no reason to refuse it
	h.becomes("v1", wire.DesiredApplied)
	if r := w.do("GET", "/v1/status", ""); !strings.Contains(r.body, `"max_rate":1,`) || !strings.Contains(r.body, `"bulk":{"open":false`) {
		t.Error(r.body)
	}
	if n := h.numOpens(); n != opens {
		t.Errorf("%d sessions more for a rate", n-opens)
	}
	h.set("v2", `{"agent":{"link":{"class":"metered"}}}`)
	h.becomes("v2", wire.DesiredApplied)
	h.mu.Lock()
	if class := h.opens[len(h.opens)-1]; class != "metered" {
		t.Errorf("the last session is %s", class)
	}
	h.mu.Unlock()
	w.stop()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	before := h.numOpens()
	withHub(t, h, func(c *Config) { c.DataDir = w.a.cfg.DataDir })
	eventually(t, "another session", func() bool { return h.numOpens() > before })
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, class := range h.opens[before:] {
		if class != "metered" {
			t.Errorf("the next run begins with %s", class)
		}
	}
}

// Settings with which the link does not come back are rolled back, and the hub
// is told.
func TestDesiredThatBreaksTheLink(t *testing.T) {
	h := newDesiredHub(t)
	h.mute = "metered"
	w := withHub(t, h, func(c *Config) { c.TrialTime = 500 * time.Millisecond })
	h.set("v1", `{"agent":{"log":{"level":"debug"},"link":{"class":"metered"}}}`)
	r := h.becomes("v1", wire.DesiredRefused)
	if r.Reason != "the link did not come back within 500ms" {
		t.Error(r.Reason)
	}
	if c, l := w.a.linkClass(), w.a.cfg.LevelVar.Level(); c != classUnmetered || l != slog.LevelInfo {
		t.Errorf("class %s, level %v", c, l)
	}
	h.mu.Lock()
	if n := len(h.opens); n < 3 || h.opens[n-1] != classUnmetered || h.opens[n-2] != classMetered {
		t.Errorf("sessions asked for: %v", h.opens)
	}
	h.mute = ""
	h.mu.Unlock()
	h.set("v2", `{"agent":{"link":{"class":"metered"}}}`)
	eventually(t, "applied with a hub that answers", func() bool { return w.a.linkClass() == classMetered })
}

// Lane rules and the link change while messages are published: whatever was
// accepted is there once, in the order of its lane.
func TestDesiredWhilePublishing(t *testing.T) {
	h := newDesiredHub(t)
	w := withHub(t, h, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	accepted := make([]int, 3)
	for p := range accepted {
		c := w.dial()
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := c.Publish(background, client.Message{Subject: fmt.Sprintf("s%d", p), Payload: fmt.Append(nil, i)})
				if err != nil {
					t.Errorf("publish: %v", err)
					return
				}
				accepted[p]++
			}
		})
	}
	wg.Go(func() { // a batch goes to one lane, whatever changes meanwhile
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r := w.do("POST", "/v1/publish", strings.Repeat(`{"subject":"batch","payload":"x"}`+"\n", 200)); r.status != 200 {
				t.Errorf("batch: %d %s", r.status, r.body)
				return
			}
		}
	})
	for i := range 8 {
		lane := []string{"urgent", "normal", "bulk"}[i%3]
		version := fmt.Sprintf("v%d", i)
		h.set(version, fmt.Sprintf(`{"agent":{"lanes":[{"Match":"s1","Lane":%q},{"Match":"batch","Lane":%q}],"link":{"max_rate":%d,"class":%q}}}`,
			lane, lane, i, []string{"unmetered", "metered"}[i/2%2]))
		h.becomes(version, wire.DesiredApplied)
	}
	close(stop)
	wg.Wait()
	w.stop()
	if err := <-w.done; err != nil {
		t.Error(err)
	}
	n, lanes := make([]int, len(accepted)), map[wire.Lane]bool{}
	for flow, msgs := range held(t, w.reopen()) {
		last := map[string]int{}
		for seq := uint64(1); len(msgs) > 0; seq++ {
			m, ok := msgs[seq]
			if !ok {
				if seq > 1<<22 {
					t.Fatal("numbers without messages")
				}
				continue
			}
			delete(msgs, seq)
			var p, i int
			if _, err := fmt.Sscanf(m.Subject+" "+string(m.Payload), "s%d %d", &p, &i); err != nil {
				continue // of a batch
			}
			if before, ok := last[m.Subject]; ok && i <= before {
				t.Fatalf("%v: %s %d after %d", flow, m.Subject, i, before)
			}
			last[m.Subject] = i
			n[p]++
			if p == 1 {
				lanes[flow.Lane] = true
			}
		}
	}
	for p := range accepted {
		if n[p] != accepted[p] {
			t.Errorf("s%d: %d accepted, %d held", p, accepted[p], n[p])
		}
	}
	if len(lanes) < 2 {
		t.Errorf("the rules never held: %v", lanes)
	}
}
