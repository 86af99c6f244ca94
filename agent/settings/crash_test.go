package settings

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var errKilled = errors.New("killed")

// inEffect is what the documents of the test come to.
var inEffect = map[string]string{linkB: "b 1", linkC: "c 1", other: "a 2", "{}": "a 1"}

// Killed at any labelled step: the agent comes back with what the hub was told,
// or with what it was about to be told, and what is in effect is what that says.
func TestCrashes(t *testing.T) {
	hits := map[string]int{}
	for seed := range uint64(150) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t)
		told := *r.asked()
		for life := range 5 {
			left, dead := 1+rnd.IntN(12), false
			r.cfg.Fault = func(point string) error {
				if left--; left <= 0 {
					if !dead {
						hits[point]++
					}
					dead = true
					return errKilled
				}
				return nil
			}
			r.open()
			for i := 0; ; i++ {
				now := *r.asked()
				if again(told, now) != nil {
					t.Fatalf("seed %d: the hub was told of %+v, and then: %v", seed, told, again(told, now))
				}
				if want := inEffect[string(r.s.View().Document)]; !dead && r.effect != want {
					t.Fatalf("seed %d: %s is in effect, but said is %s", seed, r.effect, want)
				}
				if told = now; dead || i == 30 {
					break
				}
				switch rnd.IntN(4) {
				case 0:
					_ = r.give(fmt.Sprintf("%d%02d", life+1, i), []string{linkB, linkC, other, "{"}[rnd.IntN(4)])
				case 1:
					r.s.SessionUp()
				case 2:
					r.pass(40 * time.Second)
				case 3:
					_ = r.s.Refuse(now.Version, "no")
				}
			}
			if err := os.WriteFile(filepath.Join(r.cfg.Dir, tempName), []byte("torn"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(r.log.String(), asideName) {
			t.Fatalf("seed %d: a file was damaged:\n%s", seed, r.log.String())
		}
	}
	for _, p := range Points() {
		if hits[p] == 0 {
			t.Errorf("never killed at %s: %v", p, hits)
		}
	}
}

// again says what is wrong when the hub is told this after that.
func again(that, this wire.DesiredReport) error {
	switch final := that.State == wire.DesiredRefused; {
	case this.Version < that.Version:
		return fmt.Errorf("the older %+v", this)
	case this.Version == that.Version && final && (this.State != that.State || this.Reason != that.Reason),
		this.Version == that.Version && that.State == wire.DesiredApplied && this.State == wire.DesiredTrial:
		return fmt.Errorf("it is %+v", this)
	}
	return nil
}
