package commands

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkManyDevices is a fleet of 20,000 devices that have a command each: what
// one request costs, and finding a command by its id alone.
func BenchmarkManyDevices(b *testing.B) {
	const devices = 20_000
	w := newWorld(b)
	c := w.instance()
	info, err := c.stream(b.Context(), true)
	if err != nil {
		b.Fatal(err)
	}
	var entries []entry
	for i := range devices {
		cmd := command{record: record{ID: fmt.Sprintf("c%d", i), Device: fmt.Sprintf("d%d", i), Subject: "x"}, ackWait: time.Second, maxDeliver: 3, payload: make([]byte, 200)}
		m := cmd.message(time.Hour)
		if err := w.nc.PublishMsg(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}); err != nil {
			b.Fatal(err)
		}
		r := cmd.record
		r.State, r.Stream, r.Seq, r.Sent = wire.CommandPending, info.Incarnation, uint64(i+1), time.Now().UnixMilli()
		r.Expires = r.Sent + time.Hour.Milliseconds()
		if entries = append(entries, r.entry()); len(entries) == 1000 {
			if err := c.put(b.Context(), entries...); err != nil {
				b.Fatal(err)
			}
			entries = nil
		}
	}
	eventually(b, "all are stored", func() bool {
		info, err := w.s.Info(b.Context(), store.Commands)
		return err == nil && info.Messages == devices
	})
	b.Run("ask", func(b *testing.B) {
		data, err := json.Marshal(wire.CommandRequest{HubID: "hub", Room: 1 << 20})
		if err != nil {
			b.Fatal(err)
		}
		for i := range b.N {
			if r := c.answer(b.Context(), fmt.Sprintf("d%d", i%devices), data); r.Error != nil && r.Error.Code != wire.CodeRefused {
				b.Fatalf("%+v", r)
			}
		}
	})
	b.Run("find", func(b *testing.B) {
		for i := range b.N {
			if _, err := c.Get(b.Context(), fmt.Sprintf("c%d", i*7%devices)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sweep", func(b *testing.B) {
		for range b.N {
			c.seen, c.spans = 0, nil
			if err := c.sweep(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
