package testenv

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// everyPage is an address, and a text that stands there when it is filled.
var everyPage = []struct{ name, path, text string }{
	{"overview", "/", "press-12"}, {"devices", "/devices", "1 to 12 of 12 devices"}, {"device", "/devices/press-7?trace=6f1d0c2b9a3e4758/normal/4711", "billing has settled it"},
	{"streams", "/streams", "stays packed"}, {"dead", "/dead", "no such order"}, {"tail", "/tail", "celsius"}, {"audit", "/audit", "no outcome yet"},
}

// stumbles lists what a person who does not see the page well, or uses no mouse, would
// stumble over: names that are missing, and colours that are too near.
const stumbles = `(() => {
  const out = [], all = q => [...document.querySelectorAll(q)], seen = e => e.checkVisibility({visibilityProperty: true}) && !e.closest('.unseen');
  const say = (what, e) => out.push(what + ': ' + e.outerHTML.slice(0, 120));
  for (const e of all('input, select, textarea')) if (![...e.labels].some(l => l.textContent.trim()) && !e.getAttribute('aria-label')) say('no label', e);
  for (const e of all('button, a')) if (!e.textContent.trim() && !e.getAttribute('aria-label')) say('no name', e);
  for (const e of all('img')) if (e.getAttribute('alt') === null) say('no alt', e);
  for (const e of all('[role=img], [role=region], [role=group], nav, dialog[open], meter')) if (!e.getAttribute('aria-label') && !document.getElementById(e.getAttribute('aria-labelledby'))?.textContent.trim()) say('no name', e);
  for (const e of all('main table')) if (!e.closest('.chart, dialog:not([open])') && !e.querySelector('th') && !e.querySelector('.none')) say('no header', e);
  for (const e of all('main th')) if (!e.closest('.chart') && !['col', 'row'].includes(e.scope)) say('no scope', e);
  for (const e of all('main .scroll')) if (e.tabIndex !== 0) say('cannot be scrolled by keys', e);
  if (all('main h1').length !== 1 || !document.title || !document.documentElement.lang) out.push('no heading, title or language');
  const ids = all('[id]').map(e => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) out.push('twice: ' + id);
  const parts = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length === 3 ? [...m, 1] : m; };
  const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor); if (c[3] === 1) return c; if (c[3] > 0) out.push('half a background'); } return [255, 255, 255, 1]; };
  const check = (color, e, what) => {
    const a = light(parts(color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say(what + ratio.toFixed(2) + ' ' + color, e);
  };
  let checked = 0;
  for (const e of all('body *')) {
    if (!seen(e) || e.disabled || e.closest('svg, canvas, option, datalist')) continue;
    if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) { checked++; check(getComputedStyle(e).color, e, 'contrast '); }
    if (e.placeholder) check(getComputedStyle(e, '::placeholder').color, e, 'contrast of a placeholder ');
  }
  if (checked < 20) out.push('only ' + checked + ' texts');
  return out.join('\n');
})()`

// strangers are what the page has loaded or asked from elsewhere.
const strangers = `performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin + '/') && !n.startsWith('data:')).join(' ')`

// scheme switches to light or dark.
func (b *tab) scheme(name string) {
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}})
		return err
	}))
}

// is fails unless an expression has a text now.
func (b *tab) is(expression, want string) {
	b.t.Helper()
	if got, err := b.text(expression); err != nil || got != want {
		b.t.Errorf("%.60s is %q, want %q, %v", expression, got, want, err)
	}
}

// Every page in light, dark and on a narrow screen: everything has a name, every
// text can be read, nothing is wider than the screen, nothing comes from elsewhere.
func TestDashboardIsAccessible(t *testing.T) {
	short(t)
	b := browser(t)
	s := newStandIn(t)
	for i := range 9 {
		s.changed([]string{"dead_purge", "dead_retry", "device_forget"}[i%3], fmt.Sprintf("letters [%d]", i), []string{"done: 1 letters", "failed: the device is online"}[i/5%2])
	}
	s.changed("import", "a file, force=false", "")
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"narrow", "light", 390}} {
		b.do(chromedp.EmulateViewport(look.width, 900))
		b.scheme(look.scheme)
		for _, p := range everyPage {
			b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#"+p.path))
			b.shows(mainText, p.text)
			b.shows("document.getElementById('about').textContent", "hub-1")
			b.shot(p.name + "-" + look.name)
			b.is("document.documentElement.scrollWidth > innerWidth", "false")
			b.is(strangers, "")
			if got, err := b.text(stumbles); err != nil || got != "" {
				t.Errorf("%s, %s: %v\n%s", p.name, look.name, err, got)
			}
		}
	}
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}

const (
	focused      = "(document.activeElement.textContent || document.activeElement.getAttribute('aria-label') || document.activeElement.id).trim()"
	focusVisible = "(e => { const c = getComputedStyle(e), r = e.getBoundingClientRect(); return c.outlineStyle !== 'none' && parseFloat(c.outlineWidth) >= 2 && r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })(document.activeElement)"
)

// tabTo presses Tab until the focus is on an element with that text.
func (b *tab) tabTo(text string) {
	b.t.Helper()
	var way []string
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		got, err := b.text(focused)
		if err != nil {
			b.t.Fatal(err)
		}
		if got == text {
			b.is(focusVisible, "true")
			return
		}
		way = append(way, got)
	}
	b.t.Fatalf("Tab does not get to %q, but to %q", text, way)
}

// The pages can be used without a mouse.
func TestDashboardByKeyboard(t *testing.T) {
	short(t)
	b := browser(t)
	s := newStandIn(t)
	b.do(chromedp.Navigate(s.url + "/"))
	b.shows(mainText, "press-12")
	b.do(chromedp.KeyEvent(kb.Tab))
	b.is(focused, "Skip to the content")
	b.is(focusVisible, "true")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.is("document.activeElement.id", "main")
	b.is("location.hash", "")

	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/"))
	b.shows(mainText, "press-12")
	b.tabTo("Devices")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows(mainText, "1 to 12 of 12")
	b.is("document.activeElement.id", "main")
	b.is("document.querySelector('nav [aria-current=page]').textContent", "Devices")
	b.tabTo("Backlog")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows("document.querySelector('[aria-sort]')?.textContent", "Backlog")
	b.is(focused, "Backlog")
	b.tabTo("press-7")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows(mainText, "it opened a session")

	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.url+"/#/dead"))
	b.shows(mainText, "no such order")
	b.tabTo("2")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows("document.querySelector('dialog[open]')?.innerText", "pieces")
	b.is("document.querySelector('dialog[open]').contains(document.activeElement)", "true")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.shows("document.querySelector('dialog[open]')", "null")
	b.shows(focused, "2")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows("document.querySelector('dialog[open]')?.innerText", "pieces")
	b.tabTo("Purge")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows("document.querySelector('dialog[open]')?.innerText", "Letter 2 will be gone")
	b.is(focused, "Keep them")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.shows("document.querySelector('dialog[open]')", "null")
	b.shows(focused, "2")
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}

// A long audit is read in pages; a change that has no outcome yet says so, and its
// outcome comes by itself, also on an older page.
func TestDashboardAuditPages(t *testing.T) {
	short(t)
	b := browser(t)
	s := newStandIn(t)
	s.changed("import", "the oldest", "")
	for i := range 130 {
		s.changed([]string{"dead_purge", "dead_retry"}[i%2], fmt.Sprintf("letters [%d]", i), "done: 1 letters")
	}
	const rows = `[...document.querySelectorAll('[data-is=rows] tr')].map(r => r.innerText.replaceAll('\t', ' ')).join('\n')`
	b.do(chromedp.Navigate(s.url + "/#/audit"))
	b.shows(rows, "done letters [129] 1 letters local")
	b.is("document.querySelectorAll('[data-is=rows] tr').length", "50")
	s.changed("device_forget", "press-3", "failed: the device is online")
	b.shows(rows, "device forget failed press-3 the device is online local") // without a reload
	older := chromedp.Click(`[data-is=next]`)
	b.do(older)
	b.shows(rows, "letters [80]")
	b.do(older)
	b.shows(rows, "no outcome yet the oldest")
	b.is("document.querySelector('[data-is=next]').disabled", "true")
	s.mu.Lock()
	s.audit = append(s.audit, s.audit[0])
	last := &s.audit[len(s.audit)-1]
	last.Seq, last.Of, last.Outcome, last.Time = uint64(len(s.audit)), 1, "done: 7 messages stored", time.Now()
	s.mu.Unlock()
	b.shows(rows, "done the oldest 7 messages stored local")
	b.do(chromedp.Click(`[data-is=first]`))
	b.shows(rows, "press-3")
	b.do(chromedp.SendKeys(`[name=action]`, "dead_retry\n"))
	b.shows("document.querySelector('[data-is=rows] tr').innerText", "letters [129]")
	if got, err := b.text(rows); err != nil || strings.Contains(got, "dead purge") || strings.Contains(got, "press-3") || strings.Contains(got, "oldest") {
		t.Errorf("other actions are shown: %s, %v", got, err)
	}
	if c := b.complaints(); len(c) > 0 {
		t.Errorf("console: %q", c)
	}
}
