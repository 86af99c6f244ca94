package uplink

import "time"

const (
	backoffBase = 250 * time.Millisecond
	// backoffCap lets a link that comes back after days be noticed within two
	// seconds; half of it on average is little for a hub that restarts.
	backoffCap = 1500 * time.Millisecond
	// backoffCapMetered is for links where every attempt is paid for; whoever
	// switches the link tells the agent when it is up.
	backoffCapMetered = 30 * time.Second
)

// jitter spaces attempts with full jitter: the n-th wait is anything from zero
// to base·2ⁿ, so that a fleet that lost its hub at one moment does not return
// at one moment.
type jitter struct {
	fails int
	rand  func() float64 // [0,1)
}

// next is the wait after one more failure, at most limit.
func (j *jitter) next(limit time.Duration) time.Duration {
	d := min(backoffBase<<min(j.fails, 7), limit) // 250 ms · 2⁷ is beyond both caps, and does not overflow
	j.fails++
	return time.Duration(j.rand() * float64(d))
}

func (j *jitter) reset() { j.fails = 0 }
