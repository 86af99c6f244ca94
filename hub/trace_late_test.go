package hub

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// A back-fill puts older messages behind newer ones: the stream is not in the
// ledger's order any more, and every message is found all the same.
func TestTraceAfterABackfill(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Routes = []Route{small("logs.>", "LOGS"), small("sensors.>", "EDGE")}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	for i := range 3 {
		d.send(wire.FrameBlock, d.of("debug.x", fmt.Sprint("early ", i)))
		d.send(wire.FrameBlock, d.of("logs.app", fmt.Sprint("log ", i)))
	}
	d.acked()
	d.until(r, 6, admin.TraceStored)
	told(t, d.until(r, 1, admin.TraceUnrouted), "route", "unrouted")
	r.stop()

	cfg.Routes = []Route{small("debug.>", "DEBUG"), small("sensors.>", "EDGE")}
	r = start(t, cfg)
	old := d
	d = newDevice(r, "press-7")
	d.flow, d.next, d.token = old.flow, old.next, old.token
	d.open()
	for i := range 3 {
		d.send(wire.FrameBlock, d.of("debug.x", fmt.Sprint("late ", i)))
	}
	d.acked()
	for seq := uint64(7); seq <= 9; seq++ {
		d.until(r, seq, admin.TraceStored)
	}
	if _, err := r.admin().Backfill(t.Context(), "DEBUG", admin.Since{}); err != nil {
		t.Fatal(err)
	}
	places := map[uint64]uint64{7: 1, 8: 2, 9: 3, 1: 4, 3: 5, 5: 6}
	for seq, want := range places {
		got := d.until(r, seq, admin.TraceStored)
		words := "still there"
		if want > 3 {
			words = "behind messages that are newer"
		}
		if s := told(t, got, "stream", "stored", words); s.Stream != "DEBUG" || s.Seq != want {
			t.Errorf("%d is at %+v, want %d of DEBUG", seq, s, want)
		}
	}
	if s := told(t, d.where(r, 2), "stream", "stored"); s.Stream != "LOGS" {
		t.Errorf("the message of a route that is gone: %+v", s)
	}
	js, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream("LOGS"); err != nil {
		t.Fatal(err)
	}
	told(t, d.until(r, 2, admin.TraceRemoved), "stream", "removed", "deleted the stream LOGS")
}

// A large message is several of the stream: who had some of them has not had it.
func TestTraceOfALargeMessage(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	large := make([]byte, 700<<10)
	rand.Read(large)
	d.send(wire.FrameBlock, d.block("small"))
	d.send(wire.FrameBlock, d.block(string(large)))
	d.acked()
	if s := told(t, d.until(r, 2, admin.TraceStored), "stream", "stored", "in 2 parts"); s.Seq != 2 {
		t.Errorf("stored %+v", s)
	}
	c := backEnd(t, r.connect(), "EDGE", jetstream.ConsumerConfig{Durable: "billing"})
	for range 2 {
		if err := next(t, c).DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	told(t, d.where(r, 1), "consumer", "settled", "billing")
	told(t, d.where(r, 2), "consumer", "pending", "billing", "delivered up to 2")
	if err := next(t, c).DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	told(t, d.where(r, 2), "consumer", "settled", "billing")
}

func TestTracesAtTheSameTimeAreBounded(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), func(h *Hub) { h.traces = make(chan struct{}) })
	if code, body := r.get("/v1/devices/press-7/trace?id=a"); code != 429 || !strings.Contains(body, "quota") {
		t.Errorf("%d %s", code, body)
	}
}
