package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// looks is the status with this backlog.
func looks(t *testing.T, messages uint64, up bool, lastError string) *status {
	t.Helper()
	var s status
	in, err := json.Marshal(map[string]any{
		"link":    map[string]any{"up": up, "last_error": lastError},
		"backlog": map[string]any{"normal": map[string]any{"messages": messages, "bytes": messages * 1024}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(in, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

// TestProgressLine: what a drain says of each state, in turn and a second apart.
func TestProgressLine(t *testing.T) {
	var p progress
	now := time.Now()
	for i, c := range []struct {
		messages uint64
		up       bool
		err      string
		after    time.Duration
		want     string
	}{
		{10_000, false, "", 0, "[....................]   0% 10,000 messages (9.8 MiB) to go, link is down: connecting"},
		{10_000, false, "no\x1broute", time.Second, `link is down: no`},
		{5_000, true, "", time.Second, "[##########..........]  50% 5,000 messages (4.9 MiB) to go, 5,000/s (4.9 MiB/s), about 1s"},
		{5_000, true, "the hub is full", time.Second, "link is up, held up: the hub is full"},
		{5_000, true, "", 10 * time.Second, "the backlog has not shrunk for 11s"},
		{9_000, true, "", time.Second, "the backlog has not shrunk for 12s"},
		{2_500, true, "", time.Second, "]  82% 2,500 messages (2.4 MiB) to go, "},
	} {
		now = now.Add(c.after)
		s := looks(t, c.messages, c.up, c.err)
		p.look(now, s)
		if got := p.bar() + p.line(now, s); !strings.Contains(got, c.want) || strings.Contains(got, "\x1b") {
			t.Errorf("look %d: %q, want %q", i, got, c.want)
		}
	}
}

// TestRates: differences of two looks, growing and shrinking.
func TestRates(t *testing.T) {
	var m meter
	now := time.Now()
	for _, c := range []struct {
		messages uint64
		want     string
	}{
		{1000, ""},
		{3000, "grows by 1,000 messages/s, 1000.0 KiB/s"},
		{3000, "shrinks by 0 messages/s, 0 B/s"},
		{1000, "shrinks by 1,000 messages/s, 1000.0 KiB/s"},
	} {
		now = now.Add(2 * time.Second)
		m.add(now, c.messages, int64(c.messages)*1024)
		var b bytes.Buffer
		if m.write(&b); !strings.Contains(b.String(), c.want) || c.want == "" && b.Len() > 0 {
			t.Errorf("%q, want %q", b.String(), c.want)
		}
	}
}

func TestScreenCoversWhatWasThere(t *testing.T) {
	if got, want := string(screen([]byte("a\nb\n"))), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHistoryForPeople: each state with how long it lasted.
func TestHistoryForPeople(t *testing.T) {
	now := time.Now()
	var s status
	s.Link.History = []transition{
		{At: now.Add(-time.Minute), Up: true, Hub: "nats://h:4222", Reason: "cut"},
		{At: now.Add(-3 * time.Minute), Hub: "nats://h:4222", Reason: "cut\n"},
	}
	var b bytes.Buffer
	s.writeHistory(&b, now)
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "history ") || !strings.HasSuffix(lines[0], "up   for 1m0s  nats://h:4222") ||
		!strings.Contains(lines[1], "down for 2m0s  cut") {
		t.Errorf("%q", b.String())
	}
}

// TestLimitedDrain: what the link may not be used for now is the reason, at once.
func TestLimitedDrain(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) string { return now.Add(d + time.Second/2).Format(time.RFC3339Nano) }
	for _, c := range []struct{ link, backlog, want string }{
		{`"budget":{"daily_bytes":9,"left_bytes":0,"renewed":"` + in(time.Hour) + `"}`, `"normal":{"messages":1}`, "link is up, normal waits for the budget, in 1h"},
		{`"budget":{"daily_bytes":9,"left_bytes":1,"renewed":"` + in(time.Hour) + `"}`, `"normal":{"messages":1}`, ""},
		{`"budget":{"daily_bytes":9,"left_bytes":0,"renewed":"` + in(time.Hour) + `"}`, `"normal":{"messages":1},"urgent":{"messages":1}`, ""},
		{`"windows":{"bulk":{"open":false,"until":"` + in(time.Minute) + `"}}`, `"bulk":{"messages":1}`, "link is up, bulk waits for its window, in 1m"},
		{`"windows":{"bulk":{"open":false}}`, `"bulk":{"messages":1}`, "link is up, bulk has no window"},
		{`"windows":{"bulk":{"open":true}}`, `"bulk":{"messages":1}`, ""},
		{`"windows":{"bulk":{"open":false}}`, `"bulk":{"messages":1},"normal":{"messages":1}`, ""},
	} {
		var s status
		if err := json.Unmarshal([]byte(`{"link":{"up":true,`+c.link+`},"backlog":{`+c.backlog+`}}`), &s); err != nil {
			t.Fatal(err)
		}
		p := progress{moved: now}
		if got := p.why(now, &s); !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s with %s: %q, want %q", c.link, c.backlog, got, c.want)
		}
	}
}
