package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// clock is a time that only the test moves.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

type agent struct {
	r       *Registry
	device  string
	process string
	token   string
	n       byte
}

// open opens a session and makes its token durable; confirm may be lost.
func (a *agent) open(confirm bool) (wire.SessionID, string) {
	a.n++
	s := wire.SessionID{a.device[0], a.process[0], a.n}
	token, notice := a.r.Opened(a.device, &wire.Open{Process: a.process, Version: "1", Token: a.token}, s)
	a.token = token
	if confirm {
		a.r.Confirmed(a.device, token)
	}
	return s, notice
}

func (a *agent) beat(every int) {
	b, _ := json.Marshal(wire.Heartbeat{Version: "1", Process: a.process, Every: every,
		Backlog: map[string]wire.LaneBacklog{"normal": {Messages: 7, Bytes: 70}}})
	a.r.Heartbeat(a.device, b)
}

func get(t *testing.T, r *Registry, device string) admin.Device {
	t.Helper()
	d, ok := r.Device(device)
	if !ok {
		t.Fatalf("device %s is unknown", device)
	}
	return d
}

func reports(t *testing.T, r *Registry, device string) uint64 {
	t.Helper()
	if c := get(t, r, device).Clones; c != nil {
		return c.Reports
	}
	return 0
}

func TestTokensOfOneAgentAreNeverReported(t *testing.T) {
	r := newRegistry(Config{Instance: "h1", Now: newClock().now})
	a := &agent{r: r, device: "d1", process: "p"}
	for i := range 20 {
		// Confirmations are lost now and then, replies too: then the agent keeps the old token.
		old := a.token
		if _, notice := a.open(i%3 != 0); notice != "" {
			t.Fatalf("open %d: notice %q", i, notice)
		}
		if i%5 == 4 && i%3 == 0 {
			a.token = old
		}
	}
}

func TestCopiesAreReported(t *testing.T) {
	tests := []struct {
		name string
		run  func(orig, copied *agent) (notice string)
	}{
		{"restored from an older state", func(orig, copied *agent) string {
			copied.token = orig.token
			orig.open(true)
			_, n := copied.open(true)
			return n
		}},
		{"original comes back after its clone", func(orig, copied *agent) string {
			copied.token = orig.token
			copied.open(true)
			_, n := orig.open(true)
			return n
		}},
		{"wiped spool", func(_, copied *agent) string {
			_, n := copied.open(true)
			return n
		}},
		{"token that is none", func(_, copied *agent) string {
			copied.token = strings.Repeat("z", 500)
			_, n := copied.open(true)
			return n
		}},
		{"both at once, seen at the next open", func(orig, copied *agent) string {
			copied.token = orig.token
			orig.open(false)
			copied.open(false)
			orig.r.Confirmed("d1", orig.token)
			orig.r.Confirmed("d1", copied.token)
			_, n := orig.open(true)
			return n
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(Config{Instance: "h1", Now: newClock().now})
			orig := &agent{r: r, device: "d1", process: "p"}
			orig.open(true)
			orig.open(true)
			if n := reports(t, r, "d1"); n != 0 {
				t.Fatalf("%d reports before anything happened", n)
			}
			if n := tt.run(orig, &agent{r: r, device: "d1", process: "q"}); n != NoticeClone {
				t.Errorf("notice %q", n)
			}
			if n := reports(t, r, "d1"); n != 1 {
				t.Errorf("%d reports", n)
			}
		})
	}
}

func TestLostBucketIsNoClone(t *testing.T) {
	a := &agent{r: newRegistry(Config{Now: newClock().now}), device: "d1", process: "p"}
	a.open(true)
	a.r = newRegistry(Config{Now: newClock().now})
	for range 3 {
		if _, notice := a.open(false); notice != "" {
			t.Fatalf("notice %q", notice)
		}
	}
}

func TestOnlineLifecycle(t *testing.T) {
	c := newClock()
	subscribed := map[string]bool{}
	r := newRegistry(Config{Instance: "h1", Now: c.now, Interest: func(s string) bool { return subscribed[s] }})
	a := &agent{r: r, device: "d1", process: "p"}
	online := func(want bool, when string) {
		t.Helper()
		if d := get(t, r, "d1"); d.Online != want {
			t.Fatalf("%s: online %v", when, d.Online)
		}
	}
	open := func() wire.SessionID {
		s, _ := a.open(true)
		subscribed[wire.SessionSubject("d1", s)] = true
		return s
	}
	s := open()
	since := get(t, r, "d1").Since
	a.beat(10)
	c.advance(24 * time.Second)
	r.sweep()
	online(true, "a heartbeat is 24 of 25 seconds old")
	if !get(t, r, "d1").Since.Equal(since) {
		t.Error("since changed")
	}
	c.advance(2 * time.Second)
	r.sweep()
	online(false, "the heartbeat is overdue")
	a.beat(10)
	online(true, "heartbeats go on")

	r.Ended("d1", s, true)
	online(false, "it said bye")
	a.beat(10)
	online(false, "a heartbeat came late")

	a.process = "q"
	s = open()
	online(true, "opened anew")
	r.Ended("d1", s, false)
	r.sweep()
	online(true, "between two sessions")
	subscribed = map[string]bool{}
	c.advance(grace + time.Second)
	a.beat(10)
	r.sweep()
	online(false, "no session and no subscription")

	s = open()
	online(true, "opened again")
	delete(subscribed, wire.SessionSubject("d1", s))
	r.sweep()
	online(true, "it has not had the time to subscribe")
	c.advance(grace)
	r.sweep()
	online(false, "the connection is gone")
}

// A copy beside its original: one of them leaving does not make the device offline.
func TestTwoSessionsOneDevice(t *testing.T) {
	r := newRegistry(Config{Instance: "h1", Now: newClock().now})
	a, b := &agent{r: r, device: "d1", process: "p"}, &agent{r: r, device: "d1", process: "q"}
	sa, _ := a.open(true)
	sb, _ := b.open(true)
	r.Ended("d1", sa, true)
	if !get(t, r, "d1").Online {
		t.Error("offline while the other session lives")
	}
	r.Ended("d1", sa, true)
	r.Ended("d1", sb, true)
	if get(t, r, "d1").Online {
		t.Error("online without a session")
	}
}

// A device says what is wrong once, and its time every time.
func TestErrorAndClock(t *testing.T) {
	c := newClock()
	r := newRegistry(Config{Now: c.now})
	beat := func(b wire.Heartbeat) admin.Device {
		data, _ := json.Marshal(b)
		r.Heartbeat("d1", data)
		return get(t, r, "d1")
	}
	if d := beat(wire.Heartbeat{}); d.Clock != nil || d.Error != nil {
		t.Errorf("of a device that says nothing: %+v", d)
	}
	at := c.now().Add(-time.Hour)
	d := beat(wire.Heartbeat{Now: at.UnixMilli(), Error: wire.NewLastError("refused\n", at)})
	if *d.Clock != -3_600_000 || d.Error.Text != "refused " || !d.Error.At.Equal(at.Truncate(time.Millisecond)) {
		t.Errorf("clock %d ms, error %+v", *d.Clock, d.Error)
	}
	if d = beat(wire.Heartbeat{Now: c.now().UnixMilli() + 1500}); *d.Clock < 1499 || *d.Clock > 1500 || d.Error == nil {
		t.Errorf("clock %d ms, error %+v", *d.Clock, d.Error)
	}
	if d = beat(wire.Heartbeat{Now: 1 << 62}); *d.Clock < 1499 {
		t.Errorf("a time that is none was taken: %d", *d.Clock)
	}
}

func TestHostileHeartbeats(t *testing.T) {
	c := newClock()
	rejected := map[string]int{}
	r := newRegistry(Config{Now: c.now, MaxDevices: 3, Rejected: func(reason string) { rejected[reason]++ }})
	big := map[string]string{}
	for i := range 40 {
		big[fmt.Sprint(i)] = "x"
	}
	labels, _ := json.Marshal(wire.Heartbeat{Labels: big})
	for i, data := range []string{
		"", "{", "[]", `{"every":-1}`, `{"every":99999999}`, `{"version":"` + strings.Repeat("v", 65) + `"}`,
		"{\"process\":\"a\\u0000b\"}", `{"epoch":"XYZ"}`, `{"disk_used":-1}`, `{"labels":{"":"x"}}`, `{"labels":{"a":"\u202e"}}`,
		string(labels), strings.Repeat(" ", maxHeartbeat+1), `{"dropped":{"ttl":-1}}`,
		`{"error":{"text":"` + strings.Repeat("e", 300) + `"}}`, `{"error":{"text":"a\nb"}}`,
	} {
		r.Heartbeat("d1", []byte(data))
		if rejected["heartbeat_invalid"] != i+1 {
			t.Fatalf("accepted: %.80q", data)
		}
	}
	if n := r.shelf.total; n != 0 {
		t.Fatalf("%d devices from invalid heartbeats", n)
	}
	r.Heartbeat("no.device", []byte(`{}`))
	r.Heartbeat("d1", []byte(`{"dropped":{"ttl":3,"from_the_future":4},"backlog":{"normal":{"messages":18446744073709551615},"express":{"messages":1}},"started":-5,"every":0}`))
	d := get(t, r, "d1")
	if len(d.Dropped) != 1 || len(d.Backlog) != 1 || !d.Started.IsZero() || d.Every != defaultEvery {
		t.Errorf("taken over: %+v", d)
	}
	for range 50 {
		r.Heartbeat("d1", []byte(`{}`))
	}
	if n := rejected["heartbeat_rate"]; n < 44 || n > 46 {
		t.Errorf("%d of 50 at once were refused", n)
	}
	for i := range 10 {
		r.Heartbeat(fmt.Sprintf("x%d", i), []byte(`{}`))
	}
	if n := r.shelf.total; n != 3 || rejected["too_many_devices"] != 8 {
		t.Errorf("%d devices, %v", n, rejected)
	}
	if token, notice := r.Opened("y", &wire.Open{}, wire.SessionID{1}); token != "" || notice != "" {
		t.Errorf("beyond the limit: %q %q", token, notice)
	}
	if _, err := json.Marshal(r.Devices("", "", 10)); err != nil {
		t.Errorf("cannot be shown: %v", err)
	}
}

func TestDevicesPagesAndFilters(t *testing.T) {
	c := newClock()
	r := newRegistry(Config{Now: c.now})
	for i := range 25 {
		a := &agent{r: r, device: fmt.Sprintf("dev-%02d", i), process: "p"}
		s, _ := a.open(true)
		if i%5 == 0 {
			r.Ended(a.device, s, true)
		}
	}
	known(r, "dev-03").rec.Labels = map[string]string{"site": "north"}
	var names []string
	after, pages := "", 0
	for {
		page := r.Devices(after, "", 10)
		if page.Total != 25 || page.Online != 20 {
			t.Fatalf("total %d, online %d", page.Total, page.Online)
		}
		for _, d := range page.Devices {
			names = append(names, d.Device)
		}
		pages++
		if after = page.Next; after == "" {
			break
		}
	}
	if pages != 3 || len(names) != 25 || names[24] != "dev-24" {
		t.Errorf("%d pages, %v", pages, names)
	}
	for filter, want := range map[string]int{"dev-1": 10, "state=offline": 5, "state=online": 20, "state=cloned": 0, "site=north": 1, "site=": 0, "nothing": 0} {
		if n := r.Devices("", filter, 100).Total; n != want {
			t.Errorf("filter %q: %d, want %d", filter, n, want)
		}
	}
	if b, _ := json.Marshal(r.Devices("zzz", "", 10)); !bytes.Contains(b, []byte(`"devices":[]`)) {
		t.Errorf("an empty page is %s", b)
	}
}

// known returns the entry of a known device.
func known(r *Registry, device string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lookup(device)
}
