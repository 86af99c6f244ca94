package ingest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkIngest acks blocks durably and stores the same blocks bare, in
// turns, in one run: a client's atomic batches in the same server, several in
// flight, without sessions, judging or acks. ratio is ingest over bare.
func BenchmarkIngest(b *testing.B) {
	for _, c := range []struct {
		devices, messages, size int
	}{
		{1, 500, 200}, {8, 500, 200}, {1000, 500, 200}, {1000, 1, 200},
	} {
		b.Run(fmt.Sprintf("devices=%d/messages=%d", c.devices, c.messages), func(b *testing.B) {
			w := newBenchWorld(b, c.devices, c.messages, c.size)
			var ingest, bare time.Duration
			blocks := 0
			for b.Loop() {
				bare += w.bare()
				ingest += w.ingest()
				blocks += w.round
			}
			b.ReportMetric(float64(blocks)/ingest.Seconds(), "blocks/s")
			b.ReportMetric(float64(blocks*c.messages)/ingest.Seconds(), "msgs/s")
			b.ReportMetric(float64(blocks)/bare.Seconds(), "bare-blocks/s")
			b.ReportMetric(bare.Seconds()/ingest.Seconds(), "ratio")
			b.ReportMetric(float64(w.size), "B/block")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// benchWorld is devices on a few connections, as an agent's sender would use
// them: as many blocks in flight as the window takes.
type benchWorld struct {
	b       *testing.B
	st      *store.Store
	peer    *store.Store // the same server through TCP, as any other client
	devices []*benchDevice
	per     int // blocks of a device in a round
	round   int // blocks of all
	size    int // bytes of a block
	bares   uint64
	count   uint64 // messages of a block

	enc      *wire.Encoder
	messages []wire.Message // of every block
}

type benchDevice struct {
	nc      *nats.Conn
	name    string
	flow    wire.Flow
	open    wire.OpenReply
	counter uint64
	sent    uint64 // sequence
	acked   atomic.Uint64
	news    chan struct{}
}

func newBenchWorld(b *testing.B, devices, messages, size int) *benchWorld {
	round := 800
	if messages == 1 {
		round = 10_000
	}
	w := &benchWorld{b: b, st: openStore(b), per: max(1, round/devices), count: uint64(messages), enc: wire.NewEncoder(wire.Fast)}
	// Nobody but the hub may publish into the ledger: the bare side has a stream of its own.
	layout := store.Layout{BlocksMaxBytes: 4 << 30, DeadMaxBytes: 1 << 20, Routes: []store.RouteStream{{Name: "BARE", Subjects: []string{"bare.>"}, MaxBytes: 2 << 30}}}
	if err := w.st.EnsureStreams(b.Context(), layout); err != nil {
		b.Fatal(err)
	}
	peer, err := store.Open(b.Context(), store.Config{URLs: []string{w.st.ClientURL()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { peer.Close() })
	w.peer = peer
	for seq := range w.count {
		w.messages = append(w.messages, wire.Message{Subject: "s.t", Payload: payload(flow(1, wire.Normal), seq, size), Time: 1_800_000_000_000 + int64(seq)})
	}
	w.round = w.per * devices
	startOn(b, w.st, Config{})
	var conns []*nats.Conn
	for range min(devices, 16) {
		conns = append(conns, connect(b, w.st.ClientURL()))
	}
	for i := range devices {
		d := &benchDevice{nc: conns[i%len(conns)], name: fmt.Sprintf("d%d", i), flow: flow(1, wire.Normal), news: make(chan struct{}, 1)}
		c := &client{t: b, nc: d.nc, device: d.name}
		d.open = c.open(wire.Open{Protocol: wire.Protocol, Process: "p", Order: "fifo", Flows: []wire.FlowHeld{{Flow: d.flow, Base: 1, First: 1, Last: 1}}})
		sub, err := d.nc.Subscribe(wire.SessionSubject(d.name, wire.SessionID(*d.open.Session)), func(m *nats.Msg) { d.take(b, m.Data) })
		if err != nil {
			b.Fatal(err)
		}
		sub.SetPendingLimits(-1, -1)
		d.nc.Flush()
		w.devices = append(w.devices, d)
	}
	return w
}

func (d *benchDevice) take(b *testing.B, data []byte) {
	ack, end, err := wire.ParseReply(data)
	if err != nil || end != nil {
		b.Errorf("%s: %v %v", d.name, end, err)
		return
	}
	for _, f := range ack.Flows {
		d.acked.Store(f.Ranges[0].Last)
	}
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// blocks are the next blocks of a device.
func (w *benchWorld) blocks(d *benchDevice) [][]byte {
	out := make([][]byte, w.per)
	for i := range out {
		first := d.sent + uint64(i)*w.count + 1
		data, err := w.enc.Append(nil, &wire.Block{
			Header:   wire.Header{Kind: wire.KindMessages, Flow: d.flow, Base: 1, First: first, Accepted: 1_800_000_000_000},
			Messages: w.messages,
		})
		if err != nil {
			w.b.Fatal(err)
		}
		out[i], w.size = data, len(data)
	}
	return out
}

// ingest sends a round through sessions and waits until all is acked.
func (w *benchWorld) ingest() time.Duration {
	todo := make([][][]byte, len(w.devices))
	for i, d := range w.devices {
		todo[i] = w.blocks(d)
	}
	window := min(w.devices[0].open.Window, 4<<20)
	start := time.Now()
	var wg sync.WaitGroup
	for i, d := range w.devices {
		wg.Go(func() { w.feed(d, todo[i], window) })
	}
	wg.Wait()
	return time.Since(start)
}

func (w *benchWorld) feed(d *benchDevice, blocks [][]byte, window int) {
	first := d.sent
	end := first + uint64(len(blocks))*w.count
	subject := wire.FrameSubject(d.open.Instance, d.name)
	var frame []byte
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	for d.acked.Load() < end {
		sent := int((d.sent - first) / w.count)
		done := int((max(d.acked.Load(), first) - first) / w.count)
		if sent < len(blocks) && (sent == done || (sent-done+1)*len(blocks[0]) < window) {
			d.counter++
			d.sent += w.count
			frame = wire.AppendFrame(frame[:0], wire.Frame{Type: wire.FrameBlock, Session: wire.SessionID(*d.open.Session), Counter: d.counter, Body: blocks[sent]})
			if err := d.nc.Publish(subject, frame); err != nil {
				w.b.Error(err)
				return
			}
			continue
		}
		select {
		case <-d.news:
		case <-timeout.C:
			w.b.Errorf("%s: acked %d of %d", d.name, d.acked.Load(), end)
			return
		}
	}
}

// bare stores a round in atomic batches as large as ingest's may be, four in
// flight, from one subject each.
func (w *benchWorld) bare() time.Duration {
	d := &benchDevice{flow: flow(2, wire.Normal)}
	all := w.blocks(d)
	for len(all) < w.round {
		all = append(all, all[len(all)%w.per])
	}
	per := min(store.MaxBatch, max(1, 8<<20/len(all[0])))
	w.bares++
	start := time.Now()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i := 0; i < len(all); i += per {
		part := all[i:min(i+per, len(all))]
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			msgs := make([]store.Msg, len(part))
			for j := range part {
				msgs[j] = store.Msg{Subject: fmt.Sprintf("bare.%d.%d", w.bares, i+j), Data: part[j]}
			}
			if _, err := w.peer.PublishBatch(context.Background(), msgs); err != nil {
				w.b.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
