package uplink

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func openAs(t *testing.T, r *Receiver, now time.Time, device, process, order string, n byte) wire.SessionID {
	t.Helper()
	id := wire.SessionID{n, 1}
	data, err := json.Marshal(wire.Open{Protocol: wire.Protocol, Process: process, Order: order})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Step(now, RecvOpen{Request: 1, Device: device, Session: id, Data: data}) {
		if a, ok := a.(DoReply); ok && a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	return id
}

// TestNobodyHoldsAllRoom: four devices hold the room for large messages with two frames of
// some bytes each, and a ping a minute, for ever.
func TestNobodyHoldsAllRoom(t *testing.T) {
	r := NewReceiver(ReceiverConfig{HubID: "h", MaxChunked: 64 << 20})
	now := time.Unix(1_800_000_000, 0)
	ids := map[string]wire.SessionID{}
	counter := map[string]uint64{}
	frame := func(device string, ty wire.FrameType, body []byte) (why string) {
		counter[device]++
		for _, a := range r.Step(now, RecvFrame{Device: device, Data: wire.AppendFrame(nil, wire.Frame{Type: ty, Session: ids[device], Counter: counter[device], Body: body})}) {
			if e, ok := a.(DoEnd); ok {
				why = e.Err.Error()
			}
		}
		return why
	}
	for i := range 4 {
		d := fmt.Sprint("bad", i)
		ids[d] = openAs(t, r, now, d, "p", "fifo", byte(i+1))
		for slot := range uint8(2 - i/3) {
			frame(d, wire.FrameChunk, wire.AppendChunk(nil, wire.Chunk{Slot: slot, First: true, Left: 9<<20 - 1, Data: []byte{1}}))
		}
		if r.sessions[ids[d]] == nil { // the fourth may have one only
			ids[d] = openAs(t, r, now, d, "p", "fifo", byte(i+101))
			counter[d] = 0
		}
	}
	t.Logf("held: %d of %d", r.chunked, r.cfg.MaxChunked)
	for range 600 { // ten hours
		now = now.Add(time.Minute)
		for i := range 4 {
			frame(fmt.Sprint("bad", i), wire.FramePing, nil)
		}
		r.Step(now, RecvTick{})
	}
	t.Logf("held ten hours later: %d", r.chunked)
	ids["good"] = openAs(t, r, now, "good", "p", "fifo", 99)
	if why := frame("good", wire.FrameChunk, wire.AppendChunk(nil, wire.Chunk{First: true, Left: 8<<20 + 2<<20/4, Data: make([]byte, 1000)})); why != "" {
		t.Errorf("a large message of another device: %s", why)
	}
}

// TestSmallBlocksAreSmall: what a device can make the hub hold with blocks that are small
// on the wire, while the ledger is slow.
func TestSmallBlocksAreSmall(t *testing.T) {
	r := NewReceiver(ReceiverConfig{HubID: "h"})
	now := time.Unix(1_800_000_000, 0)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	sent, refused := 0, false
	for p := range 4 {
		id := openAs(t, r, now, "bad", fmt.Sprint("p", p), "fresh-first", byte(p+1))
		flow := wire.Flow{Epoch: wire.Epoch{byte(p + 1)}, Lane: wire.Normal}
		for i := uint64(0); i < 60000 && !refused; i++ {
			first := 2 * (i + 1)
			if i >= 62 {
				first = 124 + i // grows the last range
			}
			block, err := wire.AppendVoid(nil, wire.Header{Flow: flow, Base: 1, First: first, Count: 1, Reason: wire.ReasonTTL})
			if err != nil {
				t.Fatal(err)
			}
			data := wire.AppendFrame(nil, wire.Frame{Type: wire.FrameBlock, Session: id, Counter: i + 1, Body: block})
			sent += len(data)
			for _, a := range append([]RecvAction(nil), r.Step(now, RecvFrame{Device: "bad", Data: data})...) {
				switch a := a.(type) {
				case DoRead:
					r.Step(now, RecvRead{Read: a.Read})
				case DoEnd:
					if a.Err.Code != wire.CodeUnavailable || p < 3 {
						t.Fatal(p, i, a.Err)
					}
					refused = true
				}
			}
			if i == 0 {
				r.Step(now, RecvTick{})
			}
		}
	}
	after := heap()
	t.Logf("%d bytes came, %d are counted as queued, %d are held", sent, r.queued, after-before)
	if held := int64(after - before); held > 2*r.queued || !refused {
		t.Errorf("the hub holds %d bytes and counts %d; refused: %t", held, r.queued, refused)
	}
	runtime.KeepAlive(r)
}
