package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/fieldpost/fieldpost/hub"
	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// startHub runs a real hub until the test is over.
func startHub(t *testing.T) hub.Addrs {
	t.Helper()
	h, err := hub.New(hub.Config{
		DataDir: t.TempDir(), NATS: hub.NATS{Listen: "127.0.0.1:0", MaxStore: hub.Size{Bytes: 256 << 20}}, HTTP: hub.HTTP{Listen: "127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "the hub's end", done); err != nil {
			t.Error(err)
		}
	})
	receive(t, "the hub is ready", h.Ready())
	return h.Addrs()
}

// imported is a file of blocks as a device exports it: the way into a hub that
// needs no agent.
func imported(t *testing.T, addrs hub.Addrs, device string, blocks ...[]wire.Message) {
	t.Helper()
	f := wire.Flow{Epoch: testEpoch, Lane: wire.Normal}
	var datas [][]byte
	next, enc := uint64(1), newEncoder()
	for _, msgs := range blocks {
		data, err := enc.Append(nil, &wire.Block{Header: wire.Header{Flow: f, Kind: wire.KindMessages, Base: 1, First: next, Accepted: 1_700_000_000_000}, Messages: msgs})
		if err != nil {
			t.Fatal(err)
		}
		datas = append(datas, data)
		next += uint64(len(msgs))
	}
	var file bytes.Buffer
	x, err := wire.NewExportWriter(&file, wire.ExportHead{Device: device, Created: 1, Flows: []wire.FlowHeld{{Flow: f, Base: 1, First: 1, Last: next - 1}}})
	for _, data := range datas {
		err = errors.Join(err, x.Block(data))
	}
	if err = errors.Join(err, x.End()); err != nil {
		t.Fatal(err)
	}
	a, err := admin.New(addrs.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if out, err := a.Import(t.Context(), &file, false); err != nil || out.Stored.Messages != next-1 {
		t.Fatalf("%+v %v", out, err)
	}
}

// TestARealHub reads what a hub itself has written: the headers, parts and
// pieces of this package's tests are those of a hub.
func TestARealHub(t *testing.T) {
	addrs := startHub(t)
	large := msg("camera.image", "")
	large.Payload = make([]byte, 3<<20)
	if _, err := rand.Read(large.Payload); err != nil {
		t.Fatal(err)
	}
	small := msg("sensors.temp", "21.5")
	small.ID, small.Headers = "id-1", []wire.Pair{{Key: "unit", Value: "C"}}
	imported(t, addrs, "press-7", []wire.Message{small, msg("alarm", "door")}, []wire.Message{large}, []wire.Message{msg("sensors.temp", "22")})
	want := []string{"1 sensors.temp 21.5 id-1 [C]", "2 alarm door  []", fmt.Sprintf("3 camera.image %x  []", large.Payload), "4 sensors.temp 22  []"}
	show := func(m *Message) string {
		payload := string(m.Payload)
		if len(payload) > 1000 {
			payload = fmt.Sprintf("%x", payload)
		}
		if m.Malformed != nil || m.Device != "press-7" || m.Lane != "normal" || m.Epoch != testEpoch.String() || m.Time.UnixMilli() != 1_700_000_000_000 {
			t.Errorf("%.300v", m)
		}
		return fmt.Sprintf("%d %s %s %s %v", m.Seq, m.Subject, payload, m.ID, m.Header["unit"])
	}
	c := connect(t, Config{URLs: []string{"nats://" + addrs.NATS}, HTTP: addrs.HTTP})
	defer c.Close()
	check := func(what string, call func(context.Context, Handler) error) {
		t.Helper()
		got := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- call(ctx, func(_ context.Context, m *Message) error { got <- show(m); return nil }) }()
		var all []string
		for range want {
			all = append(all, receive(t, what, got))
		}
		if !slices.Equal(all, want) {
			t.Errorf("%s: %.200q, want %.200q", what, all, want)
		}
		if what != "Replay" { // which ends by itself
			cancel()
		}
		if err := receive(t, "the end of "+what, done); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
	check("Consume", func(ctx context.Context, h Handler) error {
		return c.Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 1}, h)
	})
	check("Replay", func(ctx context.Context, h Handler) error { return c.Replay(ctx, ReplayConfig{}, h) })
	check("ConsumeBatch", func(ctx context.Context, h Handler) error {
		return c.ConsumeBatch(ctx, BatchConfig{Group: "g", MaxInFlight: 1}, func(ctx context.Context, b *Batch) error {
			for m := range b.Messages() {
				if err := h(ctx, m); err != nil {
					return err
				}
			}
			return nil
		})
	})
	for d, err := range c.Devices(t.Context(), "press") {
		if err != nil || d.Device != "press-7" || d.Imported.IsZero() {
			t.Errorf("%+v %v", d, err)
		}
		want = nil
	}
	if want != nil {
		t.Error("no device")
	}
}
