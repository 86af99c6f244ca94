package desired

import (
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkManyDevices is 100,000 devices with one label: what a device that asks
// costs, with something to send, with nothing new, and without anything set for it,
// and what waking and summing up all of them costs.
func BenchmarkManyDevices(b *testing.B) {
	const devices = 100_000
	w := newWorld(b)
	for i := range devices {
		w.device(key(i), "site=north kind=press line=4")
	}
	w.device("without", "")
	d := w.instance(func(c *Config) { c.WakeRate = 1e9 })
	w.set(d, "site=north", `{"agent":{"log":{"level":"debug"}},"program":{"interval":"10s"}}`, d)
	version := ""
	ask := func(b *testing.B, device string, rep wire.DesiredReport, wants bool) {
		got, err := d.Answer(b.Context(), device, &rep)
		if err != nil || (got != nil) != wants {
			b.Fatalf("%v %v", got, err)
		}
		if got != nil {
			version = got.Version
		}
	}
	b.Run("send", func(b *testing.B) {
		for i := range b.N {
			ask(b, key(i%devices), wire.DesiredReport{}, true)
		}
	})
	b.Run("same", func(b *testing.B) {
		for i := range b.N {
			ask(b, key(i%devices), wire.DesiredReport{Version: version, State: wire.DesiredApplied}, false)
		}
	})
	b.Run("none", func(b *testing.B) {
		for range b.N {
			ask(b, "without", wire.DesiredReport{}, false)
		}
	})
	b.Run("wake", func(b *testing.B) {
		for range b.N {
			if err := d.wakeAll(b.Context(), target("site=north").key(), &pace{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("summary", func(b *testing.B) {
		for range b.N {
			if got, err := d.Label(b.Context(), target("site=north")); err != nil || got.Devices != devices {
				b.Fatalf("%d %v", got.Devices, err)
			}
		}
	})
}
