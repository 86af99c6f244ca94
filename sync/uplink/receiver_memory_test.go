package uplink

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestReceiverMemoryOfIdleSessions: what a session keeps that has sent something
// through its stream and waits for more.
func TestReceiverMemoryOfIdleSessions(t *testing.T) {
	for _, c := range []struct {
		name             string
		sessions, frames int
		messages, size   int
		limit            uint64 // bytes a session
	}{
		{"after a small frame", 10_000, 1, 1, 50, 72 << 10},
		{"after a large frame", 300, 1, 400, 100, 80 << 10},
		{"after many frames", 300, 20, 30, 100, 80 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() {
				c.sessions /= 5
			}
			frames := streamOf(t, c.frames, c.messages, c.size)
			r := NewReceiver(ReceiverConfig{HubID: "hub1"})
			now := time.Unix(1_800_000_000, 0)
			idleSession(t, r, now, c.sessions, frames) // makes what all share
			before := heapNow()
			for i := range c.sessions {
				now = now.Add(time.Millisecond)
				idleSession(t, r, now, i, frames)
			}
			each := (heapNow() - before) / uint64(c.sessions)
			if _, sessions, queued := r.Load(); sessions != c.sessions+1 || queued != 0 {
				t.Fatalf("%d sessions, %d bytes wait", sessions, queued)
			}
			t.Logf("%d bytes a session", each)
			if each > c.limit {
				t.Errorf("%d bytes a session, want at most %d", each, c.limit)
			}
			runtime.KeepAlive(r)
		})
	}
}

// heapNow is what lives on the heap.
func heapNow() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools let go of theirs in the second
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// memoryFlow is the flow of all the devices, so that one stream does for all.
var memoryFlow = wire.Flow{Epoch: wire.Epoch{1}, Lane: wire.Normal}

// streamOf is the bodies of the first frames of a stream.
func streamOf(t *testing.T, frames, messages, size int) (out [][]byte) {
	enc := wire.NewStreamEncoder()
	seq := uint64(1)
	for range frames {
		b := &wire.Block{Header: wire.Header{Kind: wire.KindMessages, Flow: memoryFlow, Base: 1, First: seq, Accepted: 1_800_000_000_000}}
		for range messages {
			b.Messages = append(b.Messages, wire.Message{
				Subject: fmt.Sprintf("plant.%d", seq%50), Time: 1_800_000_000_000 + int64(seq), Payload: noise(size),
			})
			seq++
		}
		b.Count = uint64(messages)
		body, err := enc.Append(nil, b)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, body)
	}
	return out
}

// idleSession opens a session of a device of its own, sends what frames hold and
// has it stored.
func idleSession(t *testing.T, r *Receiver, now time.Time, i int, frames [][]byte) {
	device := fmt.Sprintf("dev-%d", i)
	id := wire.SessionID{byte(i), byte(i >> 8), byte(i >> 16), 1}
	data, err := json.Marshal(wire.Open{
		Protocol: wire.Protocol, Process: "p", Order: "fifo", Streams: []string{wire.StreamName},
		Flows: []wire.FlowHeld{{Flow: memoryFlow, Base: 1, First: 1, Last: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	acked := false
	todo := []RecvEvent{RecvOpen{Request: uint64(i), Device: device, Session: id, Data: data}}
	for n, body := range frames {
		todo = append(todo, RecvTick{}, RecvFrame{Device: device, Data: wire.AppendFrame(nil, wire.Frame{
			Type: wire.FrameStream, Session: id, Counter: uint64(n + 1), Body: body,
		})})
	}
	last := uint64(1)
	for todo = append(todo, RecvTick{}); len(todo) > 0; {
		ev := todo[0]
		todo = todo[1:]
		var answers []RecvEvent
		for _, a := range r.Step(now, ev) {
			switch a := a.(type) {
			case DoRead:
				answers = append(answers, RecvRead{Read: a.Read})
			case DoCommit:
				last += uint64(len(a.Blocks))
				answers = append(answers, RecvDone{Batch: a.Batch, Last: last}, RecvTick{})
			case DoAck:
				acked = len(a.Ack.Flows) > 0
			case DoEnd:
				t.Fatalf("%s: %v", device, a.Err)
			}
		}
		todo = append(answers, todo...)
	}
	if !acked {
		t.Fatalf("%s: nothing is acked", device)
	}
}
