package registry

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// said writes links as +session_opened -connection_lost.
func said(list []admin.Link) string {
	var out []string
	for _, k := range list {
		sign := "-"
		if k.Online {
			sign = "+"
		}
		out = append(out, sign+k.Reason)
	}
	return strings.Join(out, " ")
}

func TestLinksOfADevice(t *testing.T) {
	clk := newClock()
	interest := true
	r := newRegistry(Config{Instance: "h1", Now: clk.now, Interest: func(string) bool { return interest }})
	a := &agent{r: r, device: "d1", process: "p"}
	begun := clk.t
	s, _ := a.open(true)
	clk.advance(time.Hour)
	r.Ended("d1", s, true)
	clk.advance(time.Hour)
	a.open(true)
	clk.advance(time.Minute)
	interest = false
	r.sweep()
	interest = true
	clk.advance(time.Minute)
	a.process = "q" // heartbeats of a process that left are late ones
	a.beat(30)
	clk.advance(time.Hour)
	r.sweep()
	d := get(t, r, "d1")
	if got := said(d.Links); got != "+session_opened -session_ended +session_opened -connection_lost +heartbeat -heartbeats_stopped" {
		t.Errorf("links: %s", got)
	}
	if !d.Links[0].At.Equal(begun) || !d.Links[5].At.Equal(clk.t) || d.Online {
		t.Errorf("%+v", d)
	}
	if page := r.Devices("", "", 10); page.Devices[0].Links != nil {
		t.Errorf("the list has links: %+v", page)
	}
	clk.advance(-time.Hour) // the hub's clock is set back
	a.open(true)
	if l := get(t, r, "d1").Links; len(l) != 7 || l[6].At.Before(l[5].At) {
		t.Errorf("links out of order: %+v", l)
	}
}

func TestLinksAreTheLastOnesAndSmall(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	var l links
	var all []admin.Link
	for i := range 40 {
		at = at.Add(time.Duration(i%7+1) * 5 * time.Hour)
		reason := []string{admin.LinkSession, admin.LinkLost}[i%2]
		all = append(all, admin.Link{At: at, Online: i%2 == 0, Reason: reason})
		l = l.with(i%2 == 0, reason, at.Add(300*time.Millisecond))
	}
	if got := l.list(); !reflect.DeepEqual(got, all[24:]) {
		t.Errorf("%+v, want %+v", got, all[24:])
	}
	if len(l) > 52 {
		t.Errorf("%d bytes", len(l))
	}
	odd := links(nil).with(true, "of a newer hub", at)
	if got := said(odd.list()); got != "+" {
		t.Errorf("a reason that is not known: %s", got)
	}
}

func TestLinksOfTwoInstances(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	make := func(text string) (l links) {
		for _, w := range strings.Fields(text) {
			var sec int
			if _, err := fmt.Sscan(w[1:], &sec); err != nil {
				t.Fatal(err)
			}
			l = l.with(w[0] == '+', "", at.Add(time.Duration(sec)*time.Second))
		}
		return l
	}
	for _, c := range []struct {
		mine, theirs, want string
		online             bool
	}{
		{"", "", "", false},
		{"+1", "", "+1", true},
		{"", "+1 -2", "+1 -2", false},
		{"+1 -5", "+1 -80", "+1 -5", false},
		{"+1", "+1 -80", "+1", true},            // the session is here
		{"+9", "+1 -5", "+1 -5 +9", true},       // it came before its record was read
		{"+9", "+1", "+1", true},                // and was never away
		{"+1 -5 +9", "+1", "+1 -5 +9", true},    // not written yet
		{"+1 -1 +1", "+1 -1", "+1 -1 +1", true}, // within a second
		{"+1 -5", "+1 -5 +9", "+1 -5", false},
	} {
		if got := mergeLinks(make(c.mine), make(c.theirs), c.online); !bytes.Equal(got, make(c.want)) {
			t.Errorf("%q and %q: %+v, want %q", c.mine, c.theirs, got.list(), c.want)
		}
	}
}

// A bucket's bytes are not trusted, and links that were read are written the same.
func FuzzLinks(f *testing.F) {
	f.Add([]byte(links(nil).with(true, admin.LinkSession, time.Unix(1_800_000_000, 0)).with(false, "", time.Unix(1_800_000_100, 0))))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		list := links(data).list()
		if len(list) > maxLinks {
			t.Fatalf("%d links", len(list))
		}
		l := encodeLinks(list)
		if len(l) > len(data)+9 { // what is before 1970 is moved there
			t.Fatalf("%d bytes became %d", len(data), len(l))
		}
		again := l.list()
		if !bytes.Equal(encodeLinks(again), l) || len(again) != len(list) {
			t.Fatalf("%+v became %+v", list, again)
		}
	})
}

// Links outlive the registry, and cost no write: a device that flaps is written
// once a second, as before.
func TestLinksAreKept(t *testing.T) {
	kv := &counting{KeyValue: bucket(t)}
	clk := newClock()
	r, err := Open(t.Context(), Config{Bucket: kv, Instance: "h1", Now: clk.now})
	if err != nil {
		t.Fatal(err)
	}
	f := flusher{r: r}
	a := &agent{r: r, device: "d1", process: "p"}
	for range 300 { // ten changes a second for 30 seconds
		s, _ := a.open(true)
		f.flush(t.Context(), false)
		r.Ended("d1", s, true)
		f.flushUrgent(t.Context())
		clk.advance(100 * time.Millisecond)
	}
	if kv.writes < 20 || kv.writes > 31 {
		t.Errorf("%d writes in 30 seconds", kv.writes)
	}
	f.flush(t.Context(), true)
	before := get(t, r, "d1").Links
	fresh, err := Open(t.Context(), Config{Bucket: kv, Instance: "h2", Now: clk.now})
	if err != nil {
		t.Fatal(err)
	}
	if after := get(t, fresh, "d1").Links; len(after) != maxLinks || !reflect.DeepEqual(before, after) {
		t.Errorf("links %+v, before the restart %+v", after, before)
	}
}

// A device that a restarted hub does not hear of went with it, as far as one knows.
func TestLinksAfterARestart(t *testing.T) {
	clk := newClock()
	r := newRegistry(Config{Instance: "h1", Now: clk.now})
	rec := record{Device: admin.Device{Device: "d1", Online: true, Every: 30, Since: clk.t.Add(-time.Hour), Seen: clk.t.Add(-time.Minute)}}
	rec.History = rec.History.with(true, admin.LinkSession, rec.Since)
	r.learn(stored(t, rec, 1))
	packed := get(t, r, "d1").Links
	clk.advance(time.Hour)
	r.sweep()
	if got := said(get(t, r, "d1").Links); said(packed) != "+session_opened" || got != "+session_opened -hub_restarted" {
		t.Errorf("links %s, then %s", said(packed), got)
	}
	r.Heartbeat("d1", []byte(`{"version":"1","process":"x","every":30}`))
	if got := said(get(t, r, "d1").Links); got != "+session_opened -hub_restarted +heartbeat" {
		t.Errorf("links %s", got)
	}
}
