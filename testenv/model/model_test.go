package model

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	seedFlag = flag.Uint64("seed", 0, "the one seed to run; 0 runs -seeds random ones")
	seeds    = flag.Int("seeds", 2000, "seeds to run with all rules on")
)

func TestModelFindsNothing(t *testing.T) {
	n, first := *seeds, rand.Uint64()>>16
	if *seedFlag != 0 {
		n, first = 1, *seedFlag
	}
	if testing.Short() {
		n = min(n, 300)
	}
	for i := range uint64(n) {
		if err := Run(Config{Seed: first + i, Steps: 1500}); err != nil {
			t.Fatalf("seed %d (repeat with -seed=%d): %v", first+i, first+i, err)
		}
	}
	t.Logf("%d seeds from %d on: nothing lost, duplicated, reordered or swallowed", n, first)
}

// TestModelFindsEachMissingRule shows that the model can find what it looks for.
func TestModelFindsEachMissingRule(t *testing.T) {
	rules := map[string]Rules{
		"overlap check":     {NoOverlapCheck: true},
		"epoch per start":   {SameEpoch: true},
		"mark before purge": {NoMark: true},
		"unpack guard":      {NoUnpackGuard: true},
	}
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3000) {
				if err := Run(Config{Seed: seed + 1, Steps: 1500, Rules: r}); err != nil {
					t.Logf("seed %d: %v", seed+1, err)
					return
				}
			}
			t.Fatal("3000 seeds without the rule, and nothing was found")
		})
	}
}
