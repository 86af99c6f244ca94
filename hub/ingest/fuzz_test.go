package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// stepped is an Ingest without NATS, driven by hand.
func stepped(t testing.TB, limits uplink.ReceiverConfig) (*Ingest, *fakeStore) {
	t.Helper()
	st := newFakeStore()
	cfg, err := Config{Conn: &nats.Conn{}, Store: st, HubID: "h", MaxPayload: 1 << 20, Limits: limits, Instance: "i0"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	in := newIngest(cfg, func(string, []byte) error { return nil })
	in.now = time.Now()
	return in, st
}

// settle handles what is at hand until nothing is on its way.
func (in *Ingest) settle(t testing.TB) {
	for range 1000 {
		in.turn(context.Background(), nil)
		in.work.Wait()
		if len(in.events) == 0 && in.core.Idle() && in.reading == 0 {
			return
		}
	}
	t.Fatal("it does not settle")
}

// FuzzIngest hands arbitrary bytes to the entry points, beside a session that
// must go on working.
func FuzzIngest(f *testing.F) {
	fl := flow(1, wire.Normal)
	open, _ := json.Marshal(wire.Open{Protocol: wire.Protocol, Process: "q", Order: "fifo", Flows: []wire.FlowHeld{{Flow: fl, Base: 1, First: 1, Last: 9}}})
	id := wire.SessionID{7}
	frame := func(t wire.FrameType, c uint64, body []byte) []byte {
		return wire.AppendFrame(nil, wire.Frame{Type: t, Session: id, Counter: c, Body: body})
	}
	f.Add("fp.open.cam", "_INBOX_cam.x", open, []byte("{"))
	f.Add("fp.in.i0.cam", "", frame(wire.FrameBlock, 1, void(f, fl, 1, 9)), frame(wire.FramePing, 2, nil))
	f.Add("fp.in.i0.cam", "", frame(wire.FrameConfirm, 1, []byte("a.b")), frame(wire.FrameDrained, 2, fl.Epoch[:]))
	f.Add("fp.in.i0.other", "x", frame(wire.FrameBye, 1, nil), []byte{})
	f.Fuzz(func(t *testing.T, subject, reply string, a, b []byte) {
		in, st := stepped(t, uplink.ReceiverConfig{})
		// The fuzzer knows the id of its own session, s; the good one's it does not.
		good, own := wire.SessionID{9}, id
		for device, s := range map[string]wire.SessionID{"good": good, "cam": own} {
			in.handle(context.Background(), event{reply: "_INBOX_" + device + ".r", in: uplink.RecvOpen{Device: device, Session: s, Data: open}})
		}
		in.settle(t)
		for _, data := range [][]byte{a, b} {
			in.onFrame(&nats.Msg{Subject: subject, Reply: reply, Data: data})
			in.onOpen(&nats.Msg{Subject: subject, Reply: reply, Data: data})
			in.settle(t)
		}
		before := len(st.stored())
		in.onFrame(&nats.Msg{Subject: "fp.in.i0.good", Data: wire.AppendFrame(nil, wire.Frame{Type: wire.FrameBlock, Session: good, Counter: 1, Body: void(t, fl, 1, 9)})})
		in.settle(t)
		if n := len(st.stored()); n != before+1 {
			t.Errorf("the other device's block is not stored: %d messages, %d before", n, before)
		}
		if len(in.replies) > 0 {
			t.Errorf("%d requests are kept", len(in.replies))
		}
	})
}

// A device that sends as much as it can while nothing is stored cannot make the
// hub hold more than its share, nor leave anything behind.
func TestHostileDevicesBounded(t *testing.T) {
	const window, total = 64 << 10, 1 << 20
	in, st := stepped(t, uplink.ReceiverConfig{Window: window, MaxQueued: total, MaxDevices: 50, Idle: time.Hour})
	st.pause = make(chan struct{})
	work, cancel := context.WithCancel(context.Background())
	defer cancel()
	enc := wire.NewEncoder(wire.Fast)
	blocks := map[wire.Flow][]byte{}
	for e := range byte(40) {
		f := flow(e+1, wire.Lane(e%3))
		blocks[f] = block(t, enc, f, 1, 1, 12<<10)
	}
	var most int64
	for i := range 3000 {
		device := fmt.Sprintf("d%d", i%70)
		s := wire.SessionID{byte(i), byte(i >> 8), 1}
		o := wire.Open{Protocol: wire.Protocol, Process: fmt.Sprint(i % 7), Order: "fifo"}
		for n := range byte(i % 4) {
			o.Flows = append(o.Flows, wire.FlowHeld{Flow: flow(byte(i%30)+n+1, wire.Bulk), Base: 1, First: 1, Last: 9})
		}
		data, _ := json.Marshal(o)
		in.handle(work, event{reply: "r", in: uplink.RecvOpen{Device: device, Session: s, Data: data}})
		for in.reading > 0 {
			in.handle(work, <-in.events)
		}
		for c := range uint64(10) {
			e := byte((i + int(c)) % 40)
			body := blocks[flow(e+1, wire.Lane(e%3))]
			in.handle(work, event{in: uplink.RecvFrame{Device: device, Data: wire.AppendFrame(nil, wire.Frame{Type: wire.FrameBlock, Session: s, Counter: c + 1, Body: body})}})
		}
		in.turn(work, nil)
		devices, sessions, queued := in.core.Load()
		most = max(most, queued)
		if devices > 50 || sessions > 200 || queued > total || len(in.replies) > sessions {
			t.Fatalf("%d devices, %d sessions, %d bytes, %d requests", devices, sessions, queued, len(in.replies))
		}
	}
	if most < total*9/10 {
		t.Errorf("never more than %d bytes were held: the test does not reach the bound", most)
	}
	cancel() // batches and reads come back without an answer
	close(st.pause)
	in.settle(t)
	in.handle(work, event{in: uplink.RecvStop{Now: true}})
	if _, sessions, queued := in.core.Load(); sessions > 0 || queued > 0 {
		t.Errorf("%d sessions and %d bytes are left", sessions, queued)
	}
}
