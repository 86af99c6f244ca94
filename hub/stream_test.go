package hub

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/unpack"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestBackfillIsMarked: of what comes through a session's stream, consumers see
// which messages had newer ones of their lane before them.
func TestBackfillIsMarked(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.order, d.stream = "fresh-first", wire.NewStreamEncoder()
	d.open()
	if d.reply.Stream != wire.StreamName {
		t.Fatalf("the hub speaks stream %q", d.reply.Stream)
	}
	old := d.messages("one", "two")
	d.sendStream(d.messages("three"), false)
	d.sendStream(old, true)
	d.sendStream(d.messages("four"), false)
	d.acked()

	nc := r.connect()
	edge(t, nc, "press-7", 4)
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.SubscribeSync("edge.press-7.>", nats.OrderedConsumer(), nats.BindStream("EDGE"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 4 {
		m, err := s.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s", m.Data, m.Header.Get(unpack.HdrBackfill)))
	}
	if want := []string{"three ", "one true", "two true", "four "}; !slices.Equal(got, want) {
		t.Errorf("EDGE holds %q, want %q", got, want)
	}
}

// sendStream sends a block as the next frame of the session's stream.
func (d *fakeDevice) sendStream(b *wire.Block, backfill bool) {
	d.t.Helper()
	body, err := d.stream.Append(nil, b)
	if err != nil {
		d.t.Fatal(err)
	}
	d.sendFrame(wire.Frame{Type: wire.FrameStream, Body: body, Backfill: backfill})
}
