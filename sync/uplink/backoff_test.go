package uplink

import (
	"testing"
	"time"
)

func TestBackoffBoundsAndJitter(t *testing.T) {
	steps := []time.Duration{250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 32000} // ms
	for _, limit := range []time.Duration{backoffCap, backoffCapMetered} {
		for _, share := range []float64{0, 0.25, 0.5, 0.999999} {
			b := jitter{rand: func() float64 { return share }}
			for i, step := range steps {
				bound := min(step*time.Millisecond, limit)
				got, want := b.next(limit), time.Duration(share*float64(bound))
				if got != want || got < 0 || got >= bound {
					t.Errorf("share %v, failure %d: waits %s, want %s", share, i, got, want)
				}
			}
			for range 1000 {
				if got, want := b.next(limit), time.Duration(share*float64(limit)); got != want {
					t.Fatalf("after many failures: waits %s, want %s", got, want)
				}
			}
			b.reset()
			if got, want := b.next(limit), time.Duration(share*float64(backoffBase)); got != want {
				t.Errorf("after a reset: waits %s, want %s", got, want)
			}
		}
	}
}
