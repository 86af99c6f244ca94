package testenv

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const mainText = "document.getElementById('main').innerText"

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
	b.shows("document.getElementById('main').querySelector('[data-is=commands-part]').hidden", "true")
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
	for _, c := range b.complaints() {
		if !strings.Contains(c, "/commands") { // a hub without them answers 404, and the browser notes that
			t.Errorf("console: %s", c)
		}
	}
}
