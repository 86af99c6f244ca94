package testenv

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// setClass is PUT /v1/link.
func (a *Agent) setClass(class string) error {
	req, err := http.NewRequest("PUT", "http://agent/v1/link", strings.NewReader(fmt.Sprintf(`{"class":%q}`, class)))
	if err != nil {
		return err
	}
	return ok(a.http.Do(req))
}

// total is what the link has carried both ways.
func (p *Proxy) total() int64 { return p.Bytes(Up) + p.Bytes(Down) }

// TestMaxRateHolds: a backlog leaves no faster than link.max_rate, counted at the
// socket, and all of it does.
func TestMaxRateHolds(t *testing.T) {
	short(t)
	const rate, extra = 32 << 10, 24 << 10 // extra: what may be saved up, the last frame, and the opening
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "link: {max_rate: 32KiB}\n")
	a.Link.Cut(true)
	size := w.publishNoise(a, "cut", wire.Normal, 50, 8000)
	before, began := a.Link.Bytes(Up), time.Now()
	a.Link.Cut(false)
	for left := int64(1); left > 0; time.Sleep(50 * time.Millisecond) {
		sent, took := a.Link.Bytes(Up)-before, time.Since(began)
		if most := int64(took.Seconds()*rate) + extra; sent > most {
			t.Fatalf("%d bytes in %v, %d are allowed", sent, took, most)
		}
		if took > 2*time.Minute {
			t.Fatalf("%d messages are left", left)
		}
		var err error
		if left, err = a.Backlog(); err != nil {
			t.Fatal(err)
		}
	}
	if sent := a.Link.Bytes(Up) - before; sent < size {
		t.Errorf("%d bytes were counted of %d", sent, size)
	}
	if c := w.Settle(20 * time.Second); c.Stored != 50 {
		t.Fatalf("%v", c)
	}
}

// TestDailyBytesSurviveRestarts: when the day's budget is used up only urgent
// messages go, after a restart too; without the budget the rest follows.
func TestDailyBytesSurviveRestarts(t *testing.T) {
	short(t)
	if now := time.Now(); now.Add(3*time.Minute).Day() != now.Day() {
		t.Skip("the day ends during this test")
	}
	const budget, extra = 100_000, 32_000 // extra: openings, the last frame, acks are not counted
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", fmt.Sprintf("link: {daily_bytes: %d}\n", budget))
	linkIs(t, a, true, 20*time.Second)
	w.publishNoise(a, "before", wire.Normal, 100, 4000)
	stored := uint64(0)
	for turn := range 3 { // each urgent one shows that the link is up, and what else it carries
		for i := range 5 {
			w.publishNoise(a, fmt.Sprintf("urgent%d.%d", turn, i), wire.Urgent, 1, 400)
		}
		Eventually(t, 30*time.Second, "the urgent ones come", func() error {
			if err := w.readStreams(); err != nil {
				return err
			}
			urgent := 0
			for _, s := range w.History.stored {
				if s.Receipt.Lane == "urgent" {
					urgent++
				}
			}
			if urgent < 5*(turn+1) {
				return fmt.Errorf("%d urgent ones", urgent)
			}
			return nil
		})
		if turn == 0 {
			Eventually(t, 30*time.Second, "the budget is used", func() error {
				if n := a.Link.Bytes(Up); n < budget*8/10 {
					return fmt.Errorf("%d bytes", n)
				}
				return nil
			})
		}
		stored = uint64(len(w.History.stored))
		a.Stop(20 * time.Second)
		a.Start()
		w.WaitAgent(a)
		linkIs(t, a, true, 20*time.Second)
	}
	switch left, err := a.Backlog(); {
	case err != nil || left == 0:
		t.Fatalf("%d messages left, %v", left, err)
	case a.Link.Bytes(Up) > budget+extra:
		t.Errorf("%d bytes went up, %d are the budget", a.Link.Bytes(Up), budget)
	case stored < 15+10:
		t.Errorf("only %d messages came", stored)
	}
	a.Stop(20 * time.Second)
	w.configure(a, fmt.Sprint("daily_bytes: ", budget), "daily_bytes: 0")
	a.Start()
	w.WaitAgent(a)
	if c := w.Settle(30 * time.Second); c.Stored != 115 {
		t.Fatalf("%v", c)
	}
}

// TestClassChoosesWindow: a lane whose window is shut for a class of link waits
// while that is set, the others flow; PUT /v1/link sets another class, and it goes.
func TestClassChoosesWindow(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	later := time.Now().Add(6 * time.Hour).Hour()
	a := w.AddAgent("press-7", fmt.Sprintf("link: {windows: [{class: lte, lanes: [bulk], cron: \"0 %d * * *\", for: 1h}]}\n", later))
	for i := range 2 {
		if err := a.setClass("lte"); err != nil {
			t.Fatal(err)
		}
		w.publishNoise(a, fmt.Sprint("bulk", i), wire.Bulk, 20, 400)
		w.publishNoise(a, fmt.Sprint("normal", i), wire.Normal, 20, 400)
		want := func(bulk, normal int) {
			t.Helper()
			Eventually(t, 20*time.Second, "what may go", func() error {
				if err := w.readStreams(); err != nil {
					return err
				}
				got := map[string]int{}
				for _, s := range w.History.stored {
					got[s.Receipt.Lane]++
				}
				if got["bulk"] != bulk || got["normal"] != normal {
					return fmt.Errorf("%v", got)
				}
				return nil
			})
		}
		want(20*i, 20*(i+1))
		if err := a.setClass("unmetered"); err != nil {
			t.Fatal(err)
		}
		want(20*(i+1), 20*(i+1))
	}
	if c := w.Settle(20 * time.Second); c.Stored != 80 {
		t.Fatalf("%v", c)
	}
}
