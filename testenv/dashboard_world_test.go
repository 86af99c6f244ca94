package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// A letter is retried from the page, the audit has it, a device's outage is on its
// page, one of its messages is traced, and a hub that is gone for a while is noticed:
// with nothing on the console but that it does not answer.
func TestDashboardWhileThingsHappen(t *testing.T) {
	short(t)
	b := browser(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	if err := a.Post("/v1/publish/orders.new", "order 93"); err != nil {
		t.Fatal(err)
	}
	w.Drain(30 * time.Second)
	w.giveUp(t, "billing")
	const rows = "document.querySelector('[data-is=rows]').innerText"

	b.do(chromedp.Navigate("http://" + w.HTTP + "/#/dead"))
	b.shows(rows, "edge.press-7.orders.new")
	b.do(chromedp.Click(`[data-is=rows] button.link`))
	b.shows("document.querySelector('dialog[open]')?.innerText", "order 93")
	b.do(chromedp.Click(`[data-is=letter-retry]`))
	b.shows(mainText, "1 retried")
	b.shows(rows, "there are no dead letters")
	b.do(chromedp.Navigate("http://" + w.HTTP + "/#/audit"))
	b.shows(rows, "dead retry")
	b.shows(rows, "1 letters were retried")
	b.shows(rows, "local")

	b.do(chromedp.Navigate("http://" + w.HTTP + "/#/devices/press-7"))
	b.shows("document.querySelector('[data-is=links]').innerText", "online")
	b.shows(mainText, "order 93")
	b.do(chromedp.Click(`[data-is=messages] button.link`))
	b.shows("document.querySelector('[data-is=trace-state]').innerText", "stored")
	b.shows("document.querySelector('[data-is=trace-steps]').innerText", "billing")
	a.Stop(20 * time.Second)
	b.shows("document.querySelector('[data-is=links] tr').innerText", "it ended its session")
	b.shows("document.querySelector('[data-is=state]').textContent", "offline")
	a.Start()
	b.shows("document.querySelector('[data-is=links] tr').innerText", "it opened a session")
	b.shows("document.querySelector('[data-is=band-text]').textContent", "one outage")
	b.is("document.querySelectorAll('[data-is=band] .down').length", "1")
	b.shot("outage")
	b.is(strangers, "")
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}

	const trouble = "(e => e.hidden ? 'none' : e.textContent)(document.getElementById('trouble'))"
	b.shows(trouble, "none")
	w.Hub.Kill()
	b.shows(trouble, "The hub does not answer. What you see is not up to date; trying again.")
	b.shows("document.getElementById('ready').textContent", "no answer")
	w.StartHub()
	b.shows(trouble, "none")
	b.shows("document.getElementById('ready').textContent", "ready")
	b.shows("document.querySelector('[data-is=links]').innerText", "it ended its session") // it is remembered
	for _, c := range b.complaints() {
		if !strings.Contains(c, "net::ERR_") && !strings.Contains(c, "503") {
			t.Errorf("console: %s", c)
		}
	}
}

// giveUp makes a consumer of EDGE terminate the first message, and waits for the letter.
func (w *World) giveUp(t *testing.T, consumer string) {
	t.Helper()
	js, closes, err := w.jetStream()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := js.CreateOrUpdateConsumer(ctx, "EDGE", jetstream.ConsumerConfig{Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next(jetstream.FetchMaxWait(30 * time.Second))
	if err == nil {
		err = m.TermWithReason("no such order")
	}
	if err != nil {
		t.Fatal(err)
	}
	Eventually(t, 30*time.Second, "a letter", func() error {
		s, err := js.Stream(ctx, "DEAD")
		if err == nil && s.CachedInfo().State.Msgs == 0 {
			err = fmt.Errorf("DEAD is empty")
		}
		return err
	})
}

// A thousand devices are paged through, sorted and searched by the hub.
func TestDashboardOfAThousandDevices(t *testing.T) {
	short(t)
	b := browser(t)
	w := NewWorld(t, "")
	nc, err := nats.Connect("nats://" + w.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const n = 1000
	for i := range n {
		beat, err := json.Marshal(wire.Heartbeat{Version: "1.0", Process: "p", Every: 3600, Labels: map[string]string{"line": fmt.Sprint(i % 8)},
			Backlog: map[string]wire.LaneBacklog{"normal": {Messages: uint64(i * 7 % n), Oldest: time.Now().UnixMilli()}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(fmt.Sprintf("fp.up.d%04d", i), beat); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	const (
		first = "document.querySelector('[data-is=rows] tr').innerText"
		count = "document.querySelector('[data-is=count]').textContent"
		names = "[...document.querySelectorAll('[data-is=rows] th')].map(e => e.textContent).join(' ')"
		loads = "[...document.querySelectorAll('[data-is=rows] .n:not(.wide)')].map(e => Number(e.textContent.replaceAll(',', '')))"
	)
	b.do(chromedp.Navigate("http://" + w.HTTP + "/#/devices"))
	b.shows(count, "1 to 100 of 1,000 devices, 1,000 of them online")
	next, previous := chromedp.Click(`[data-is=next]`), chromedp.Click(`[data-is=previous]`)
	seen := map[string]bool{}
	for page := range 10 {
		b.shows(first, fmt.Sprintf("d%04d", page*100))
		got, err := b.text(names)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(got) {
			seen[name] = true
		}
		b.is("document.querySelector('[data-is=next]').disabled", fmt.Sprint(page == 9))
		if page < 9 {
			b.do(next)
		}
	}
	if len(seen) != n {
		t.Errorf("the pages have %d devices", len(seen))
	}
	b.do(previous)
	b.shows(first, "d0800")
	b.do(chromedp.Click(`button[data-sort=backlog]`))
	b.shows(first, "999")
	b.shows(count, "1 to 100 of 1,000")
	b.is(loads+".every((n, i, all) => n === 999 - i)", "true")
	b.do(next)
	b.shows(count, "101 to 200")
	b.is(loads+".every((n, i, all) => n === 899 - i)", "true")
	b.do(chromedp.SendKeys(`input[name=filter]`, "line=3\n"))
	b.shows(count, "1 to 100 of 125 devices")
	b.do(next)
	b.shows(count, "101 to 125 of 125")
	b.is("document.querySelectorAll('[data-is=rows] tr').length", "25")
	b.shot("thousand")
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}
