package policy

import (
	"math"
	"time"
)

// burst is how much of the rate may be saved up.
const burst = time.Second / 4

// maxDebt bounds what one frame can cost, whatever rate and size are.
const maxDebt = 24 * time.Hour

// bucket holds to a rate: a frame may start while nothing is owed, and is paid
// for afterwards. The size of a frame is known only then, and may be more than
// any burst.
type bucket struct {
	rate int64         // bytes a second; 0: unlimited
	debt time.Duration // what was sent, in time at the rate, as of at; down to -burst: saved up
	at   time.Time     // zero: nothing was asked yet
}

// pass lets time pay. Times that go backwards pay nothing and cost nothing.
func (b *bucket) pass(now time.Time) {
	if b.at.IsZero() {
		b.debt = -burst
	} else if d := now.Sub(b.at); d > 0 {
		if d > b.debt+burst {
			d = b.debt + burst // and no overflow
		}
		b.debt -= d
	}
	b.at = now
}

// wait is how long nothing may start; 0: now.
func (b *bucket) wait(now time.Time) time.Duration {
	if b.rate <= 0 {
		return 0
	}
	b.pass(now)
	return max(b.debt, 0)
}

func (b *bucket) take(now time.Time, bytes int) {
	if b.rate <= 0 || bytes <= 0 {
		return
	}
	b.pass(now)
	cost := math.Ceil(float64(bytes) / float64(b.rate) * float64(time.Second))
	b.debt = min(b.debt+time.Duration(min(cost, float64(maxDebt))), maxDebt)
}
