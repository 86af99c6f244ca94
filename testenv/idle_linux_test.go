package testenv

import (
	"flag"
	"sync"
	"testing"
	"time"
)

var idleTime = flag.Duration("idle", 15*time.Minute, "how long BenchmarkLinkIdle watches idle sessions, at least 5m")

// BenchmarkLinkIdle is what a session of class metered costs in a month of 30 days
// in which nothing is published: what -idle shows at the TCP socket, and one
// heartbeat an hour, which is measured apart. The class comes from the
// configuration, or is set while the session is open.
func BenchmarkLinkIdle(b *testing.B) {
	const month = 30 * 24 * time.Hour
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	names := []string{"config", "put"}
	agents := []*Agent{w.AddAgent("unit-config", "link: {class: metered}\n"), w.AddAgent("unit-put", "")}
	for _, a := range agents {
		linkIs(b, a, true, 20*time.Second)
	}
	var wg sync.WaitGroup
	results := make([]map[string]float64, len(agents))
	for i, a := range agents {
		wg.Go(func() {
			set := func() int64 {
				before := a.Link.total()
				if err := a.setClass("metered"); err != nil {
					b.Error(err)
				}
				time.Sleep(10 * time.Second) // for what it brings about
				return a.Link.total() - before
			}
			time.Sleep(5 * time.Second) // the session's first messages are gone
			change := set()
			beat := set() // no change any more: a heartbeat, and a ping
			before := a.Link.total()
			time.Sleep(*idleTime)
			idle := a.Link.total() - before
			sum := float64(idle)*float64(month)/float64(*idleTime) + float64(beat)*month.Hours()
			results[i] = map[string]float64{"B-idle": float64(idle), "B-beat": float64(beat), "B-change": float64(change), "MB-month": sum / 1e6}
		})
	}
	wg.Wait()
	for i, name := range names {
		for unit, v := range results[i] {
			b.ReportMetric(v, name+"-"+unit)
		}
	}
}
