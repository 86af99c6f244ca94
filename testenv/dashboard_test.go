package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/dashboard"
)

const mainText = "document.getElementById('main').innerText"

const background = "getComputedStyle(document.body).backgroundColor"

// The pages show a fleet as it is, and what devices say only as text.
func TestDashboard(t *testing.T) {
	short(t)
	b := browser(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "labels: {site: north}\n")
	w.AddAgent("press-8", "")
	const evil = `<img src=x onerror="document.title='broken in'">`
	if err := a.Post("/v1/publish/sensors.note", evil); err != nil {
		t.Fatal(err)
	}
	w.Drain(30 * time.Second)
	page := func(path string) { t.Helper(); b.do(chromedp.Navigate("http://" + w.HTTP + "/#" + path)) }

	page("/")
	b.shows(mainText, "2 of 2")
	b.shows("document.getElementById('ready').textContent", "ready")
	b.shot("overview")
	page("/devices")
	b.shows(mainText, "1 to 2 of 2 devices, 2 of them online")
	b.shows(mainText, "site=north")
	b.do(chromedp.Click(`button[data-sort=backlog]`))
	b.shows(`document.querySelector('[aria-sort]')?.textContent`, "Backlog")
	b.do(chromedp.SendKeys(`input[name=filter]`, "7\n"))
	b.shows(mainText, "1 to 1 of 1 devices")
	b.shot("devices")
	page("/devices/press-7")
	b.shows(mainText, evil)
	if err := a.Post("/v1/publish/sensors.note", "a second note"); err != nil {
		t.Fatal(err)
	}
	b.shows(mainText, "a second note") // without a reload
	a.perform(t, "valve.>", operate)
	b.do(chromedp.SendKeys(`[name=subject]`, "valve.set"), chromedp.SendKeys(`[name=payload]`, evil), chromedp.Click(`[data-is=send] button`))
	b.shows(`document.querySelector('[data-is=commands]').innerText`, "did "+evil) // what the program answered
	b.shot("device")
	page("/streams")
	b.shows(mainText, "EDGE")
	b.shows(mainText, "BLOCKS")
	b.shot("streams")
	page("/dead")
	b.shows(mainText, "there are no dead letters")
	b.shot("dead")
	page("/tail")
	b.shows(mainText, evil)
	b.shot("tail")
	b.do(chromedp.EmulateViewport(390, 844))
	page("/")
	b.shows(mainText, "2 of 2")
	b.shot("narrow")
	light, err := b.text(background)
	if err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		return err
	}))
	if dark, err := b.text(background); err != nil || dark == light {
		t.Errorf("background %s in light, %s in dark, %v", light, dark, err)
	}
	page("/devices/press-7")
	b.shows(mainText, evil)
	b.shot("dark")
	for _, c := range b.complaints() {
		t.Errorf("console: %s", c)
	}
}

// What the forms say is sent, and what the hub knows of it is shown. The hub is a
// stand-in that knows one device.
func TestDashboardSendsCommands(t *testing.T) {
	short(t)
	b := browser(t)
	var mu sync.Mutex
	sent := []admin.Command{} // more than a page
	for i := range 120 {
		sent = append(sent, admin.Command{ID: fmt.Sprint("old-", i), Device: "press-7", Subject: "valve.old", State: "acked", Sent: time.Now(), Settled: time.Now()})
	}
	wanted := admin.DesiredDevice{State: admin.DesiredNone, Merged: json.RawMessage("{}")}
	answer := func(w http.ResponseWriter, status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	page := dashboard.New()
	for _, p := range page.Patterns() {
		mux.Handle(p, page)
	}
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, admin.Status{Ready: true, Reasons: []string{}, Streams: []admin.Stream{}, Routes: []admin.Route{}})
	})
	mux.HandleFunc("GET /v1/devices/{device}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, admin.Device{Device: r.PathValue("device"), Online: true, Since: time.Now()})
	})
	mux.HandleFunc("GET /v1/devices/{device}/commands", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		after, _ := strconv.Atoi(r.URL.Query().Get("after")) // none is 0
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil {
			answer(w, 400, admin.Problem{Detail: err.Error(), Code: "bad_limit"})
			return
		}
		page := admin.Commands{Commands: sent[after:]}
		if len(page.Commands) > limit {
			page = admin.Commands{Commands: sent[after : after+limit], Next: strconv.Itoa(after + limit)}
		}
		answer(w, 200, page)
	})
	mux.HandleFunc("POST /v1/devices/{device}/commands", func(w http.ResponseWriter, r *http.Request) {
		var in admin.NewCommand
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || string(in.JSON) != `{"open":true}` || in.TTL != "1h" || r.Header.Get("Content-Type") != "application/json" {
			answer(w, 400, admin.Problem{Detail: "not what the test typed", Code: "bad_request"})
			return
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, admin.Command{ID: "c1", Device: r.PathValue("device"), Subject: in.Subject, State: "acked", Sent: time.Now(), Settled: time.Now(), Result: []byte("<b>done</b>")})
		answer(w, 201, sent[len(sent)-1])
	})
	mux.HandleFunc("GET /v1/devices/{device}/desired", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		answer(w, 200, wanted)
	})
	mux.HandleFunc("PATCH /v1/devices/{device}/desired", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"a":null}` || r.Header.Get("Content-Type") != "application/json" {
			answer(w, 400, admin.Problem{Detail: "not what the test typed", Code: "bad_request"})
			return
		}
		mu.Lock()
		defer mu.Unlock()
		wanted = admin.DesiredDevice{State: admin.DesiredRefused, Reason: "<b>no link</b>", Merged: json.RawMessage(`{"b":"<i>"}`)}
		answer(w, 200, admin.DesiredDocument{Device: "press-7", Revision: 7})
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	b.do(chromedp.Navigate(srv.URL + "/#/devices/press-7"))
	b.shows(mainText, "old-119")
	b.do(chromedp.SendKeys(`[name=subject]`, "valve.set"), chromedp.SendKeys(`[name=payload]`, `{"open":true}`), chromedp.SendKeys(`[name=ttl]`, "1h"),
		chromedp.Click(`[name=json]`), chromedp.Click(`[data-is=send] button`))
	b.shows(mainText, "Sent as c1")
	b.shows(`document.querySelector('[data-is=commands]').innerText`, "valve.set")
	b.shows(`document.querySelector('[data-is=commands]').innerText`, "<b>done</b>")
	b.shows(mainText, "nothing is wanted")
	b.do(chromedp.SendKeys(`[name=change]`, `{"a":null}`), chromedp.Click(`[data-is=desire] button`))
	b.shows(mainText, "Set, as revision 7")
	b.shows(mainText, "<b>no link</b>")
	b.shows(`document.querySelector('[data-is="desired-merged"]').innerText`, `"b": "<i>"`)
	b.shot("commands")
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}

// Letters are purged only when somebody says so a second time. The hub is a stand-in.
func TestDashboardPurgesDeadLetters(t *testing.T) {
	short(t)
	b := browser(t)
	var mu sync.Mutex
	purged := ""
	letters := []admin.Letter{{Seq: 17, Stream: "EDGE", Subject: "edge.press-7.a", Reason: "terminated", Consumer: "billing"}}
	mux := http.NewServeMux()
	page := dashboard.New()
	for _, p := range page.Patterns() {
		mux.Handle(p, page)
	}
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(admin.Status{Ready: true, Reasons: []string{}, Streams: []admin.Stream{}, Routes: []admin.Route{}})
	})
	mux.HandleFunc("GET /v1/dead", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		json.NewEncoder(w).Encode(admin.Letters{Letters: letters})
	})
	mux.HandleFunc("POST /v1/dead/purge", func(w http.ResponseWriter, r *http.Request) {
		var c admin.DeadChoice
		err := json.NewDecoder(r.Body).Decode(&c)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && len(c.Seqs) == 1 && c.Seqs[0] == 17 {
			purged, letters = "yes", []admin.Letter{}
		}
		json.NewEncoder(w).Encode(admin.DeadDone{Purged: 1})
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	b.do(chromedp.Navigate(srv.URL + "/#/dead"))
	b.shows(mainText, "edge.press-7.a")
	b.do(chromedp.Click(`input[data-seq="17"]`), chromedp.Click(`[data-is=purge]`), chromedp.Click(`[data-is=confirm-no]`))
	mu.Lock()
	if purged != "" {
		t.Error("purged although somebody said no")
	}
	mu.Unlock()
	b.do(chromedp.Click(`[data-is=purge]`), chromedp.Click(`[data-is=confirm-yes]`))
	b.shows(mainText, "1 purged")
	b.shows(mainText, "there are no dead letters")
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}
