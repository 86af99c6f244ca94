package uplink

import "time"

const (
	backoffBase = 250 * time.Millisecond
	backoffCap  = 30 * time.Second
)

// jitter spaces attempts with full jitter: the n-th wait is anything from zero
// to base·2ⁿ, so that a fleet that lost its hub at one moment does not return
// at one moment.
type jitter struct {
	fails int
	rand  func() float64 // [0,1)
}

// next is the wait after one more failure.
func (j *jitter) next() time.Duration {
	d := j.bound()
	j.fails++
	return time.Duration(j.rand() * float64(d))
}

func (j *jitter) bound() time.Duration {
	if j.fails >= 7 { // 250 ms · 2⁷ is beyond the cap, and must not overflow
		return backoffCap
	}
	return min(backoffBase<<j.fails, backoffCap)
}

func (j *jitter) reset() { j.fails = 0 }
