package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var monday = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestZeroConfigAllowsEverything(t *testing.T) {
	p := New(Config{})
	for range 1000 {
		p.Sent(monday, wire.Bulk, 1<<20)
	}
	if ok, again := p.Allow(monday, wire.Bulk); !ok || !again.IsZero() {
		t.Errorf("%v, again %v", ok, again)
	}
}

// What is let through in any span is at most the rate times the span, the burst,
// and a frame of each kind; urgent waits for urgent only.
func TestRateHoldsOverEverySpan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const frame = 5000
		rate := rapid.Int64Range(100, 100_000).Draw(t, "rate")
		p := New(Config{MaxRate: rate, Zone: time.UTC})
		type sent struct {
			at    time.Time
			bytes int
		}
		var log []sent
		now := monday
		for range rapid.IntRange(1, 120).Draw(t, "frames") {
			lane := wire.Lane(rapid.IntRange(0, 2).Draw(t, "lane"))
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "pause")))
			if ok, again := p.Allow(now, lane); !ok {
				if !again.After(now) {
					t.Fatalf("again %v at %v", again, now)
				}
				if ok, _ := p.Allow(again.Add(-1), lane); ok {
					t.Fatal("again is later than it must be")
				}
				now = again
				if ok, _ := p.Allow(now, lane); !ok {
					t.Fatal("again is too early")
				}
			}
			n := rapid.IntRange(1, frame).Draw(t, "bytes")
			p.Sent(now, lane, n)
			log = append(log, sent{now, n})
		}
		for i := range log {
			total := 0
			for _, s := range log[i:] {
				total += s.bytes
				span := s.at.Sub(log[i].at) + 2*burst // urgent has a burst of its own
				if most := float64(rate)*span.Seconds() + 2*frame + 1; float64(total) > most {
					t.Fatalf("%d bytes in %v, at most %.0f", total, s.at.Sub(log[i].at), most)
				}
			}
		}
	})
}

func TestUrgentWaitsForItsOwnFramesOnly(t *testing.T) {
	p := New(Config{MaxRate: 1000})
	p.Allow(monday, wire.Bulk)
	p.Sent(monday, wire.Bulk, 60_000)
	if ok, _ := p.Allow(monday, wire.Normal); ok {
		t.Error("normal does not wait for bulk")
	}
	if ok, _ := p.Allow(monday, wire.Urgent); !ok {
		t.Error("urgent waits for bulk")
	}
	p.Sent(monday, wire.Urgent, 1250)
	if ok, again := p.Allow(monday, wire.Urgent); ok || again.Sub(monday) != time.Second {
		t.Errorf("urgent after its own frame: %v, again after %v", ok, again.Sub(monday))
	}
	if _, again := p.Allow(monday, wire.Bulk); again.Sub(monday) != 61*time.Second {
		t.Errorf("bulk pays for urgent: again after %v", again.Sub(monday))
	}
}

func TestRateSurvivesClockJumps(t *testing.T) {
	p := New(Config{MaxRate: 1000})
	p.Sent(monday, wire.Normal, 1250)
	for _, jump := range []int{-56, 10, -10, 0} {
		if _, again := p.Allow(monday.AddDate(jump, 0, 0), wire.Normal); !again.IsZero() && again.Sub(monday.AddDate(jump, 0, 0)) > time.Second {
			t.Errorf("%d years: waits %v", jump, again.Sub(monday.AddDate(jump, 0, 0)))
		}
	}
	p = New(Config{MaxRate: 1})
	p.Sent(monday, wire.Normal, 1<<62>>32)
	if _, again := p.Allow(monday, wire.Normal); again.Sub(monday) > maxDebt {
		t.Errorf("waits %v", again.Sub(monday))
	}
}

// What is set at run time holds at once: nobody waits for what an old rate, budget
// or window asked for, and what was used of the day counts on.
func TestSet(t *testing.T) {
	never, err := ParseCron("0 0 29 2 *")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{MaxRate: 1, Zone: time.UTC})
	may := func(l wire.Lane) bool { ok, _ := p.Allow(monday, l); return ok }
	p.Sent(monday, wire.Normal, 4000)
	if may(wire.Normal) {
		t.Fatal("4000 bytes at 1 B/s are paid for")
	}
	p.Set(Config{})
	if !may(wire.Normal) {
		t.Error("the old rate holds")
	}
	p.Set(Config{DailyBytes: 4000})
	if may(wire.Normal) {
		t.Error("what was used without a budget does not count")
	}
	p.Set(Config{DailyBytes: 5000, Windows: []Window{{Lanes: []wire.Lane{wire.Bulk}, Cron: never, For: time.Hour}}})
	if !may(wire.Normal) || may(wire.Bulk) {
		t.Errorf("normal %v, bulk %v", may(wire.Normal), may(wire.Bulk))
	}
	p.Set(Config{MaxRate: 1000})
	if !may(wire.Bulk) {
		t.Error("the old window holds")
	}
	if s := p.State(monday); s.MaxRate != 1000 || s.DailyBytes != 0 || s.Used != 4000 {
		t.Errorf("%+v", s)
	}
}
