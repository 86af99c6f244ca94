package registry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// ranked reads all pages.
func ranked(t *testing.T, r *Registry, order, filter string, limit int) (out []admin.Device) {
	t.Helper()
	for after := ""; ; {
		page, err := r.Ranked(order, after, filter, limit)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, page.Devices...)
		if page.Next == "" {
			if page.Total != len(out) {
				t.Errorf("%s %q: %d listed, %d counted", order, filter, len(out), page.Total)
			}
			return out
		}
		if len(page.Devices) != limit || page.Next != page.Devices[limit-1].Device {
			t.Fatalf("after %q: %d devices, next %q", after, len(page.Devices), page.Next)
		}
		after = page.Next
	}
}

// Every order is the same as sorting everything, whatever the page's size, of
// devices that are packed and of those that are not.
func TestRanked(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	rnd := rand.New(rand.NewPCG(1, 2))
	c := &clock{now}
	r := newRegistry(Config{Instance: "h1", MaxDevices: 5000, Now: c.now})
	r.mu.Lock()
	for i := range 1500 {
		name := fmt.Sprintf("d%04d", i)
		d := admin.Device{Device: name, Online: i%3 == 0, Every: 60, Seen: now.Add(-time.Duration(rnd.IntN(50)) * time.Second), Backlog: map[string]wire.LaneBacklog{}}
		for _, lane := range []string{"urgent", "normal"} {
			if n := rnd.IntN(4); n > 0 {
				d.Backlog[lane] = wire.LaneBacklog{Messages: uint64(n), Oldest: now.UnixMilli() - int64(rnd.IntN(20))}
			}
		}
		r.take(name, record{Device: d}, uint64(i+1))
	}
	awake := 0
	for i := 0; i < 1500; i += 7 {
		r.lookup(fmt.Sprintf("d%04d", i))
		awake++
	}
	if len(r.entries) < awake || len(r.entries) == 1500 {
		t.Fatalf("%d of 1500 are not packed, %d or more were to be", len(r.entries), awake)
	}
	r.mu.Unlock()
	rank := map[string]func(a, b admin.Device) int{
		ByBacklog: func(a, b admin.Device) int { return cmp.Compare(waiting(b), waiting(a)) },
		ByOldest:  func(a, b admin.Device) int { return cmp.Compare(oldest(a), oldest(b)) },
		BySeen:    func(a, b admin.Device) int { return a.Seen.Compare(b.Seen) },
	}
	for _, filter := range []string{"", "state=online", "d00", "d0042", "nobody"} {
		all := r.Devices("", filter, 1500).Devices
		for order, compare := range rank {
			want := slices.SortedFunc(slices.Values(all), func(a, b admin.Device) int {
				return cmp.Or(compare(a, b), strings.Compare(a.Device, b.Device))
			})
			for _, limit := range []int{1, 7, 100, 1500} {
				if limit == 1 && len(all) > 100 {
					continue // as the others, for long
				}
				got := ranked(t, r, order, filter, limit)
				if !slices.EqualFunc(got, want, func(a, b admin.Device) bool { return a.Device == b.Device }) {
					t.Errorf("by %s, filter %q, pages of %d: not in order", order, filter, limit)
				}
			}
		}
	}
}

func waiting(d admin.Device) (n uint64) {
	for _, l := range d.Backlog {
		n += l.Messages
	}
	return n
}

func oldest(d admin.Device) int64 {
	at := int64(1) << 62 // nothing waits: the last
	for _, l := range d.Backlog {
		at = min(at, l.Oldest)
	}
	return at
}

func TestRankedRefusesUnknownOrders(t *testing.T) {
	r := newRegistry(Config{Instance: "h1"})
	if _, err := r.Ranked("labels", "", "", 10); err == nil || !strings.Contains(err.Error(), "name, backlog, oldest or seen") {
		t.Errorf("error %v", err)
	}
	if page, err := r.Ranked(ByOldest, "gone", "", 10); err != nil || page.Devices == nil || page.Total != 0 {
		t.Errorf("an empty list: %+v, %v", page, err)
	}
}
