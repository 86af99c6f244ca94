package uplink

import (
	"flag"
	"testing"
)

var (
	daysSeeds = flag.Uint64("days-seeds", 0, "how many worlds TestVirtualDays runs; 0: 12, in short mode 4")
	daysSeed  = flag.Uint64("days-seed", 0, "the only world that TestVirtualDays runs")
)

// TestVirtualDays lets sender and receiver work for days over links of all kinds
// that are cut, swallow, flap and lose, with hubs and agents that restart, under
// windows and budgets. daysWatch says what holds at all times.
func TestVirtualDays(t *testing.T) {
	first, n := uint64(1), uint64(12)
	switch {
	case *daysSeed > 0:
		first, n = *daysSeed, 1
	case *daysSeeds > 0:
		n = *daysSeeds
	case testing.Short():
		n = 4
	}
	for seed := first; seed < first+n; seed++ {
		c := drawDays(seed)
		d := newDays(c)
		err := d.run()
		t.Logf("%s\n    %+v", c, d.watch.summary)
		if err != nil {
			t.Errorf("%s\n    at %v\n    go test -run TestVirtualDays -days-seed=%d ./sync/uplink", c, err, seed)
		}
	}
}
