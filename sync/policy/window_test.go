package policy

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func mustCron(t *testing.T, text string) Cron {
	t.Helper()
	c, err := ParseCron(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWindows(t *testing.T) {
	class := "metered"
	p := New(Config{Zone: time.UTC, Class: func() string { return class }, Windows: []Window{
		{Class: "metered", Lanes: []wire.Lane{wire.Bulk}, Cron: mustCron(t, "0 1 * * *"), For: 4 * time.Hour},
		{Lanes: []wire.Lane{wire.Bulk}, Cron: mustCron(t, "0 13 * * mon"), For: time.Hour},
	}})
	for at, want := range map[string]bool{
		"01 00:59:59": false, "01 01:00:00": true, "01 04:59:59": true, "01 05:00:00": false, "01 13:30:00": false,
		"07 13:00:00": true, "07 13:59:59": true, "07 14:00:00": false,
	} {
		now, err := time.Parse("2006-01 02 15:04:05", "2026-12 "+at)
		if err != nil {
			t.Fatal(err)
		}
		if ok, _ := p.Allow(now, wire.Bulk); ok != want {
			t.Errorf("%s: %v", at, ok)
		}
		if ok, _ := p.Allow(now, wire.Normal); !ok {
			t.Errorf("%s: normal is not named", at)
		}
	}
	now := time.Date(2026, 12, 1, 0, 59, 59, 0, time.UTC)
	if _, again := p.Allow(now, wire.Bulk); again != now.Add(time.Second) {
		t.Errorf("again %v", again)
	}
	if _, again := p.Allow(now.Add(-time.Hour), wire.Bulk); again != now.Add(-time.Hour+recheck) {
		t.Errorf("again %v", again)
	}
	s := p.State(now.Add(-time.Hour)).Lanes[wire.Bulk]
	if s.Open || !s.Windowed || s.Until != now.Add(time.Second) {
		t.Errorf("%+v", s)
	}
	class = "unmetered"
	if ok, _ := p.Allow(now.Add(time.Hour), wire.Bulk); ok {
		t.Error("open by a window of another class")
	}
}

func TestCronNext(t *testing.T) {
	for _, c := range []struct{ cron, after, want, zone string }{
		{"0 1 * * *", "2026-11-30 12:00", "2026-12-01 01:00", "UTC"},
		{"*/15 * * * *", "2026-11-30 12:00", "2026-11-30 12:15", "UTC"},
		{"5/20 8-10,20 * * *", "2026-11-30 10:45", "2026-11-30 20:05", "UTC"},
		{"0 0 29 feb *", "2026-11-30 12:00", "2028-02-29 00:00", "UTC"},
		{"0 0 13 * FRI", "2026-11-30 12:00", "2026-12-04 00:00", "UTC"}, // either
		{"0 0 * * 7", "2026-11-30 12:00", "2026-12-06 00:00", "UTC"},
		{"0 0 * * 5-7", "2026-12-05 12:00", "2026-12-06 00:00", "UTC"},
		{"59 23 31 12 *", "2026-12-31 23:59", "2027-12-31 23:59", "UTC"},
		{"30 2 * * *", "2026-03-29 00:00", "2026-03-29 03:00", "Europe/Berlin"}, // skipped
		{"30 2 * * *", "2026-03-29 03:00", "2026-03-30 02:30", "Europe/Berlin"},
		{"30 2 * * *", "2026-10-25 02:30", "2026-10-26 02:30", "Europe/Berlin"}, // once
		{"0 0 * * *", "2018-11-03 12:00", "2018-11-04 01:00", "America/Sao_Paulo"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		after, err := time.ParseInLocation("2006-01-02 15:04", c.after, zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustCron(t, c.cron).Next(after).Format("2006-01-02 15:04"); got != c.want {
			t.Errorf("%s after %s: %s, want %s", c.cron, c.after, got, c.want)
		}
	}
}

// Every half hour comes four times while the clocks show two hours twice.
func TestCronEveryHourWhereClocksTurnBack(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	c := mustCron(t, "*/30 * * * *")
	at := time.Date(2026, 10, 24, 23, 0, 0, 0, time.UTC).In(zone)
	for range 12 {
		next := c.Next(at)
		if next.Sub(at) != 30*time.Minute {
			t.Errorf("after %v comes %v", at, next)
		}
		at = next
	}
}

func TestCronMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"": "not five", "* * * *": "not five", "@daily": "not five", "60 * * * *": `minute "60": "60" is not between 0 and 59`,
		"* 5-3 * * *": "ends before", "*/0 * * * *": "step", "* * 0 * *": "day of the month", "* * * foo *": "month",
		"* * * * 8": "between 0 and 7", "0 0 31 feb *": "never", ", * * * *": "missing", "-1 * * * *": "missing", "+1 * * * *": "+1",
	} {
		if _, err := ParseCron(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if (Window{For: time.Hour}).Check() == nil || (Window{Lanes: []wire.Lane{1}}).Check() == nil {
		t.Error("a window without lanes or length passed")
	}
}
