package testenv

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	fleetSizes   = flag.String("fleets", "10,100,1000", "agents of BenchmarkFleetReturn")
	fleetSeconds = flag.Int("fleet-seconds", 10, "how long each of them sends a message a second")
)

// BenchmarkFleetReturn is what a fleet sees of its hub, and the hub of its fleet:
// memory of a connected device, time from send to ack at one message a second
// each, and after a kill -9 of the hub how soon the devices are back, what that
// takes and how the hub answers others meanwhile. All is measured once.
func BenchmarkFleetReturn(b *testing.B) {
	for _, size := range strings.Split(*fleetSizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			b.Fatalf("-fleets %q is not a list of numbers", *fleetSizes)
		}
		b.Run(size, func(b *testing.B) { fleetReturn(b, n) })
	}
}

func fleetReturn(b *testing.B, n int) {
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	none := w.Hub.idle(b)
	f := w.StartFleet(n)
	allUp := func() {
		Eventually(b, 5*time.Minute, "everybody is up", func() error {
			if up := f.Up(); up < n {
				return fmt.Errorf("%d of %d", up, n)
			}
			return nil
		})
	}
	allAcked := func() {
		Eventually(b, 5*time.Minute, "all is acked", func() error {
			if waiting := f.waiting(); waiting > 0 {
				return fmt.Errorf("%d agents wait", waiting)
			}
			return nil
		})
	}
	allUp()
	b.ReportMetric((w.Hub.idle(b)-none)*1024/float64(n), "kB/device")

	// A message a second each, spread over the second.
	began := time.Now()
	for k := range n * *fleetSeconds {
		time.Sleep(time.Until(began.Add(time.Duration(k) * time.Second / time.Duration(n))))
		f.members[k%n].publish()
	}
	b.ReportMetric(float64(n**fleetSeconds)/time.Since(began).Seconds(), "messages/s")
	allAcked()
	acks := f.Acks()
	slices.Sort(acks)
	b.ReportMetric(ms(part(acks, .5)), "ms/ack-p50")
	b.ReportMetric(ms(part(acks, .99)), "ms/ack-p99")

	w.Hub.Kill()
	f.Publish()
	Eventually(b, 5*time.Minute, "everybody has noticed", func() error {
		if up := f.Up(); up > 0 {
			return fmt.Errorf("%d still up", up)
		}
		return nil
	})
	began = time.Now()
	w.Hub.Start()
	stop := make(chan struct{})
	var asking sync.WaitGroup
	worst := make([]time.Duration, 2)
	for i, path := range []string{"/readyz", "/v1/devices?limit=100"} {
		asking.Go(func() { worst[i] = w.slowest(b, path, stop) })
	}
	allUp()
	close(stop)
	asking.Wait()
	var back []time.Duration
	for _, m := range f.members {
		m.mu.Lock()
		back = append(back, m.opened.Sub(began))
		m.mu.Unlock()
	}
	slices.Sort(back)
	for _, share := range []float64{.1, .5, .9, .99} {
		b.ReportMetric(part(back, share).Seconds(), fmt.Sprintf("s/back-%g%%", share*100))
	}
	allAcked()
	b.ReportMetric(w.Hub.peak(b), "MB-peak")
	b.ReportMetric(ms(worst[0]), "ms/readyz-worst")
	b.ReportMetric(ms(worst[1]), "ms/devices-worst")
	b.ReportMetric(0, "ns/op")
}

// slowest asks for a page until stop is closed and returns the longest that an
// answer took. A refusal with words is an answer; once there was one, no answer
// is a failure.
func (w *World) slowest(b *testing.B, path string, stop <-chan struct{}) (worst time.Duration) {
	c := http.Client{Timeout: time.Minute}
	defer c.CloseIdleConnections()
	for answered := false; ; {
		began := time.Now()
		resp, err := c.Get("http://" + w.HTTP + path)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		switch {
		case err == nil:
			answered, worst = true, max(worst, time.Since(began))
		case answered:
			b.Errorf("%s: %v", path, err)
			return worst
		}
		select {
		case <-stop:
			return worst
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// part is a quantile of sorted durations.
func part(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
