package uplink

import (
	"testing"
	"time"
)

func TestBackoffBoundsAndJitter(t *testing.T) {
	bounds := []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second,
	}
	for _, share := range []float64{0, 0.25, 0.5, 0.999999} {
		b := jitter{rand: func() float64 { return share }}
		for i, bound := range bounds {
			got, want := b.next(), time.Duration(share*float64(bound))
			if got != want || got < 0 || got >= bound {
				t.Errorf("share %v, failure %d: waits %s, want %s", share, i, got, want)
			}
		}
		for range 1000 {
			b.next()
		}
		if got := b.bound(); got != backoffCap {
			t.Errorf("after 1000 failures the bound is %s", got)
		}
		b.reset()
		if got := b.bound(); got != backoffBase {
			t.Errorf("after a reset the bound is %s", got)
		}
	}
}
