package uplink

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestStreamsAreBounded: a device that keeps the hub busy with its stream is
// stopped, by whichever of its sessions; one that keeps to what senders do is not.
func TestStreamsAreBounded(t *testing.T) {
	r := NewReceiver(ReceiverConfig{HubID: "hub1"})
	now := time.Unix(1_800_000_000, 0)
	d := &recvDevice{}
	feed := func(frames, size int, every time.Duration) (refused int) {
		for range frames {
			now = now.Add(every)
			if r.now = now; !r.mayStream(d) {
				refused++
				continue
			}
			d.streamed += size
		}
		return refused
	}
	second := slowPace * streamRate
	if n := feed(3600, second, time.Second); n > 0 {
		t.Errorf("what a sender may send is refused %d times in an hour", n)
	}
	if n := feed(3, streamBurst, 0); n > 0 {
		t.Errorf("so is a burst")
	}
	if n := feed(1000, wire.MaxStreamRaw, time.Millisecond); n < 900 {
		t.Errorf("of 1,000 frames of %d bytes in a second %d are refused", wire.MaxStreamRaw, n)
	}
	now = now.Add(time.Hour)
	if n := feed(1, second, time.Second); n > 0 {
		t.Error("an hour later it is still refused")
	}
}

// TestFloodOfStreamFrames: the same over a session. What passes the bound ends it,
// and the device's next session begins with what is left.
func TestFloodOfStreamFrames(t *testing.T) {
	r := NewReceiver(ReceiverConfig{HubID: "hub1"})
	now := time.Unix(1_800_000_000, 0)
	flow := wire.Flow{Epoch: wire.Epoch{1}, Lane: wire.Normal}
	payload := []byte(strings.Repeat("x", 100_000))
	seq := uint64(0)
	// session sends frames at one moment until it ends, and returns how many passed.
	session := func(n byte, most int) (passed int) {
		id := openAs(t, r, now, "press-7", "p", "fresh-first", n)
		enc := wire.NewStreamEncoder()
		for counter := uint64(1); passed < most; counter++ {
			seq++
			b := &wire.Block{Header: wire.Header{Flow: flow, Kind: wire.KindMessages, Base: 1, First: seq, Count: 1},
				Messages: []wire.Message{{Subject: "a", Payload: payload}}}
			body, err := enc.Append(nil, b)
			if err != nil {
				t.Fatal(err)
			}
			data := wire.AppendFrame(nil, wire.Frame{Type: wire.FrameStream, Session: id, Counter: counter, Body: body})
			for _, a := range slices.Clone(r.Step(now, RecvFrame{Device: "press-7", Data: data})) {
				if e, ok := a.(DoEnd); ok {
					if e.Err.Code != wire.CodeRefused {
						t.Fatal(e.Err)
					}
					return passed
				}
			}
			passed++
		}
		return passed
	}
	if n := session(1, 1000); n < streamOnce/len(payload) || n > streamOnce/len(payload)+1 {
		t.Errorf("%d frames of %d bytes passed", n, len(payload))
	}
	if n := session(2, 1000); n != 0 {
		t.Errorf("%d frames passed in the next session", n)
	}
	if now = now.Add(time.Second); session(3, 1000) > streamMuch/len(payload)+1 {
		t.Error("a second later more passed than a second gives back")
	}
}
