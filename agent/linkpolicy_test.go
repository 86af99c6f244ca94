package agent

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/policy"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestLinkClassOfAWindow(t *testing.T) {
	w := start(t, func(c *Config) {
		c.Link.DailyBytes = 1000
		c.Link.Windows = []LinkWindow{{"lte", []wire.Lane{wire.Bulk}, "0 1 * * *", time.Hour}}
	})
	if r := w.do("PUT", "/v1/link", `{"class":"wifi"}`); r.status != 400 || !strings.Contains(r.body, "lte") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do("PUT", "/v1/link", `{"class":"lte"}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do("GET", "/v1/status", ""); !strings.Contains(r.body, `"windows":{"bulk":{"open":`) || !strings.Contains(r.body, `"left_bytes":1000`) {
		t.Errorf("%s", r.body)
	}
}

func TestUsageFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), usageName)
	want := policy.Usage{Day: 20261130, Bytes: 9, Over: 1, Running: 5}
	if u, err := loadUsage(name); u != (policy.Usage{}) || err != nil {
		t.Errorf("no file: %v %v", u, err)
	}
	if err := saveUsage(name, want); err != nil {
		t.Fatal(err)
	}
	if u, err := loadUsage(name); u != want || err != nil {
		t.Errorf("%v %v", u, err)
	}
	for _, text := range []string{"", "{", `{"version":2}`, `{"version":1,"bytes":-1}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if u, err := loadUsage(name); u != (policy.Usage{}) || err == nil {
			t.Errorf("%q: %v %v", text, u, err)
		}
	}
}

// TestUsageIsKeptSoon: much of a budget that is used is in the file without a stop,
// for a kill -9 would give it back.
func TestUsageIsKeptSoon(t *testing.T) {
	w := start(t, func(c *Config) { c.Link.DailyBytes = 1000 })
	w.a.policy.Sent(time.Now(), wire.Normal, 600)
	w.eventually("the use of the budget is kept", func() bool {
		u, err := loadUsage(w.a.usageFile())
		return err == nil && u.Bytes == 600
	})
}

func TestFramesOfABudget(t *testing.T) {
	for daily, want := range map[int64]int{0: 0, 1000: 4 << 10, 3_200_000: 100_000, 1 << 60: math.MaxInt32} {
		if got := (LinkConfig{DailyBytes: daily}).maxFrame(); got != want {
			t.Errorf("%d bytes a day: frames of %d, want %d", daily, got, want)
		}
	}
}
