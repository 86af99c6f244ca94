package testenv

import (
	"flag"
	"fmt"
	"testing"
	"time"
)

var benchFleet = flag.Int("fleet", 2000, "agents of BenchmarkFleet; 10000 need 3 GB and 20,000 open files")

// BenchmarkFleet is what many connected agents cost the hub: resident memory while
// they are idle and at its peak, and processor time for each message when all of
// them send one at a time.
func BenchmarkFleet(b *testing.B) {
	const rounds = 5
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	none := w.Hub.idle(b)
	f := w.StartFleet(*benchFleet)
	Eventually(b, 5*time.Minute, "everybody is up", func() error {
		if n := f.Up(); n < *benchFleet {
			return fmt.Errorf("%d of %d", n, *benchFleet)
		}
		return nil
	})
	b.ReportMetric(w.Hub.idle(b), "MB-idle")
	b.ReportMetric((w.Hub.memory(b, "VmRSS")-none)*1024/float64(*benchFleet), "kB/agent")
	w.Hub.clearPeak(b)
	before := cpuOf(b, w.Hub.PID())[0]
	for range rounds {
		f.Publish()
		Eventually(b, 5*time.Minute, "all is acked", func() error {
			if n := f.waiting(); n > 0 {
				return fmt.Errorf("%d agents wait", n)
			}
			return nil
		})
	}
	w.storedWithin(5*time.Minute, uint64(rounds**benchFleet))
	b.ReportMetric((cpuOf(b, w.Hub.PID())[0]-before).Seconds()/float64(rounds**benchFleet)*1e6, "hub-cpu-µs/message")
	b.ReportMetric(w.Hub.peak(b), "MB-peak")
}

// waiting is how many agents hold what the hub has not acked.
func (f *Fleet) waiting() (n int) {
	for _, m := range f.members {
		if len(m.Flows()) > 0 {
			n++
		}
	}
	return n
}
