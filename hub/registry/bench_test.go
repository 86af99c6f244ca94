package registry

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func BenchmarkHeartbeat(b *testing.B) {
	c := newClock()
	r := newRegistry(Config{Now: c.now})
	data, err := json.Marshal(wire.Heartbeat{
		Version: "1.0.0", Process: "0123456789abcdef", Epoch: wire.NewEpoch().String(), Every: 30, DiskMax: 1 << 30,
		Backlog: map[string]wire.LaneBacklog{"urgent": {}, "normal": {Messages: 10, Bytes: 1000}, "bulk": {}},
		Labels:  map[string]string{"site": "north", "line": "4"},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%10_000 == 0 {
			c.advance(30 * time.Second)
		}
		r.Heartbeat(fmt.Sprintf("device-%d", i%10_000), data)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/float64(r.shelf.total), "B/device")
}

// One sweep and one list of what is due, of 10,000 devices: what the registry
// costs every second.
func BenchmarkSecond(b *testing.B) {
	c := newClock()
	r := newRegistry(Config{Now: c.now, Instance: "h1", Interest: func(string) bool { return true }})
	for i := range 10_000 {
		r.Opened(fmt.Sprintf("device-%d", i), &wire.Open{Process: "p"}, wire.SessionID{byte(i), byte(i >> 8)})
	}
	for _, p := range r.due(true) {
		r.wrote(p, 1)
	}
	c.advance(time.Minute)
	for b.Loop() {
		r.sweep()
		r.due(false)
	}
}

// How fast 10,000 devices that come at once are written down.
func BenchmarkFlush(b *testing.B) {
	kv := bucket(b)
	r, err := Open(b.Context(), Config{Bucket: kv, Instance: "h1"})
	if err != nil {
		b.Fatal(err)
	}
	f := flusher{r: r}
	n := 0
	for b.Loop() {
		for i := range 1000 {
			r.Opened(fmt.Sprintf("device-%d", i), &wire.Open{Process: "p"}, wire.SessionID{byte(i), byte(i >> 8)})
		}
		n += 1000
		f.flush(b.Context(), true)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "devices/s")
}
