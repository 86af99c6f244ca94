package testenv

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
)

// BenchmarkAgent is what an agent takes with its link up: resident memory idle and
// at its peak, and processor time for a million readings of 200 bytes, up to the
// hub's ack. They come in a steady flow, 16 every 10 ms, which the session's stream
// carries, or as fast as the agent takes them.
func BenchmarkAgent(b *testing.B) {
	const steady, burst = 40_000, 500_000
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	a := w.AddAgent("press-7", "")
	defer a.Kill()
	linkIs(b, a, true, 20*time.Second)
	b.ReportMetric(a.idle(b), "MB-idle")
	measure := func(name string, n int, publish func()) {
		a.clearPeak(b)
		before := cpuOf(b, a.PID())[0]
		publish()
		w.Drain(2 * time.Minute)
		b.ReportMetric((cpuOf(b, a.PID())[0]-before).Seconds()/float64(n)*1e6, "cpu-s/million-"+name)
		b.ReportMetric(a.peak(b), "MB-peak-"+name)
	}
	measure("steady", steady, func() {
		c, err := client.Dial(b.Context(), a.Socket)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		for i := range steady {
			c.PublishAsync(client.Message{Subject: "bench.steady", Payload: reading(i)})
			if i%16 == 15 {
				time.Sleep(10 * time.Millisecond) // the pace
			}
		}
		if err := c.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	})
	measure("burst", burst, func() { a.publishAll(b, burst, 4096, reading) })
	b.ReportMetric(a.idle(b), "MB-idle-after")
}
