package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func spent(p *Policy, now time.Time) bool {
	ok, _ := p.Allow(now, wire.Bulk)
	return !ok
}

func TestBudgetOfADay(t *testing.T) {
	p := New(Config{DailyBytes: 1000, Zone: time.UTC})
	p.Sent(monday, wire.Normal, 999)
	if spent(p, monday) {
		t.Fatal("one byte is left")
	}
	p.Sent(monday, wire.Bulk, 101)
	ok, again := p.Allow(monday, wire.Normal)
	if ok || again != monday.Add(time.Minute) {
		t.Errorf("used up: %v, again %v", ok, again)
	}
	if ok, _ := p.Allow(monday, wire.Urgent); !ok {
		t.Error("urgent waits for the budget")
	}
	p.Sent(monday, wire.Urgent, 500)
	night := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	if _, again := p.Allow(night.Add(-time.Second), wire.Normal); again != night {
		t.Errorf("again %v", again)
	}
	if spent(p, night) {
		t.Error("nothing to spend on the next day")
	}
	if used := p.State(night).Used; used != 100 {
		t.Errorf("%d bytes taken off the next day; normal and bulk were 100 over, urgent is not counted", used)
	}
}

// On every day normal and bulk stay within the budget but for one frame, and
// over all days together too; a restart changes nothing.
func TestBudgetHoldsOverEverySpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit, frame = 10_000, 3000
		cfg := Config{DailyBytes: limit, Zone: time.UTC}
		p := New(cfg)
		now := monday
		perDay, total, days := map[Day]int{}, 0, map[Day]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "frames") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Hour)).Draw(t, "pause")))
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				cfg.Usage = p.Usage(now)
				p = New(cfg)
			}
			days[dayOf(now)] = true
			if spent(p, now) {
				continue
			}
			n := rapid.IntRange(1, frame).Draw(t, "bytes")
			p.Sent(now, wire.Normal, n)
			perDay[dayOf(now)] += n
			total += n
			if perDay[dayOf(now)] >= limit+frame {
				t.Fatalf("%d bytes in one day", perDay[dayOf(now)])
			}
		}
		if total >= len(days)*limit+frame {
			t.Fatalf("%d bytes in %d days", total, len(days))
		}
	})
}

// A clock of 1970, ten years ahead or set back gives no second budget and stops
// nothing for more than a day of running time.
func TestBudgetSurvivesClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Time{
		"1970":            time.Unix(100, 0),
		"ten years ahead": monday.AddDate(10, 0, 0),
		"a day back":      monday.AddDate(0, 0, -1),
	} {
		cfg := Config{DailyBytes: 1000, Zone: time.UTC}
		p := New(cfg)
		grants := 0
		for range 50 { // the clock goes to and fro, over restarts
			for _, now := range []time.Time{monday, jump} {
				if !spent(p, now) {
					grants++
					p.Sent(now, wire.Normal, 1000)
				}
				cfg.Usage = p.Usage(now)
				p = New(cfg)
			}
		}
		if grants > 2 {
			t.Errorf("%s: %d budgets for two days", name, grants)
		}
		for _, stays := range []time.Time{jump, monday} {
			end := stays.Add(26 * time.Hour)
			for now := stays; spent(p, now); now = now.Add(time.Minute) {
				if now.After(end) {
					t.Fatalf("%s: stopped for ever", name)
				}
			}
		}
	}
}

// A device without a clock starts at the same time of the same day each time.
func TestBudgetOfAClockThatStartsAgain(t *testing.T) {
	cfg := Config{DailyBytes: 1000, Zone: time.UTC}
	grants := 0
	for range 100 { // 2 h each
		p := New(cfg)
		for now := monday; now.Before(monday.Add(2 * time.Hour)); now = now.Add(time.Minute) {
			if !spent(p, now) {
				grants++
				p.Sent(now, wire.Normal, 1000)
			}
		}
		cfg.Usage = p.Usage(monday.Add(2 * time.Hour))
	}
	if grants < 6 || grants > 9 {
		t.Errorf("%d budgets in 200 h", grants)
	}
}
