package unpack

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkUnpack reports how many messages a second are unpacked, and as a
// share of what bare JetStream stores of the same messages in atomic batches of
// 1000, four in flight, in turns in the same run.
func BenchmarkUnpack(b *testing.B) {
	const perBlock, blocks = 500, 100
	w := newWorld(b)
	w.routes = Table{{Match: ">", Stream: "EDGE", Prefix: "edge"}}
	w.layout = store.Layout{BlocksMaxBytes: 900 << 20, DeadMaxBytes: 1 << 20, Routes: []store.RouteStream{
		{Name: "EDGE", Subjects: []string{"edge.>"}, Compress: true}, {Name: "BARE", Subjects: []string{"bare.>"}, Compress: true},
	}}
	w.s.Close()
	w.open()
	tables := Tables{{Table: Table{{Match: ">", Stream: "BARE", Prefix: "bare"}}}}
	fill := func() (bare []store.Msg) {
		proj := NewProjector("BARE", tables)
		for range blocks {
			subject, f, st := w.flow("device-17", 1, wire.Normal)
			blk := &wire.Block{Header: wire.Header{Flow: f, Kind: wire.KindMessages, Base: 1, First: st.next, Count: perBlock, Accepted: 1_700_000_000_000}}
			for range perBlock {
				w.n++
				blk.Messages = append(blk.Messages, wire.Message{
					Subject: fmt.Sprintf("sensors.room%d.temperature", w.n%20), Time: 1_700_000_000_000 + int64(w.n),
					Payload: fmt.Appendf(nil, `{"sensor":"t-%04d","value":%d.%02d,"unit":"C","quality":"good","site":"plant 7, hall %d","seq":%d,"note":"%080d"}`, w.n%20, w.n%40, w.n%100, w.n%3, w.n, w.n*7919),
				})
			}
			data, err := w.enc.Append(nil, blk)
			if err != nil {
				b.Fatal(err)
			}
			blk.Subjects = nil
			for i := range 20 {
				blk.Subjects = append(blk.Subjects, fmt.Sprintf("sensors.room%d.temperature", i))
			}
			outs, err := proj.Project(nil, st.last+1, subject, blk)
			if err != nil {
				b.Fatal(err)
			}
			for i := range outs {
				bare = append(bare, outs[i].Message(f))
			}
			w.put(subject, st, wire.Range{First: st.next, Last: st.next + perBlock - 1}, nats.Header{}, data)
		}
		return bare
	}
	var bareTime, unpackTime time.Duration
	for b.Loop() {
		b.StopTimer()
		bare := fill()
		b.StartTimer()
		began := time.Now()
		storeBare(b, w.s, bare)
		bareTime += time.Since(began)
		began = time.Now()
		goal := w.info("EDGE").Last + blocks*perBlock
		cfg := w.config()
		cfg.LeaseRenew, cfg.CheckpointEvery = time.Second, time.Second
		_, stop := w.start(cfg)
		for w.info("EDGE").Last < goal {
			time.Sleep(time.Millisecond)
		}
		unpackTime += time.Since(began)
		stop()
	}
	n := float64(b.N * blocks * perBlock)
	b.ReportMetric(n/unpackTime.Seconds(), "msg/s")
	b.ReportMetric(n/bareTime.Seconds(), "bare-msg/s")
	b.ReportMetric(100*bareTime.Seconds()/unpackTime.Seconds(), "%bare")
	b.ReportMetric(0, "ns/op")
}

func storeBare(b *testing.B, s *store.Store, msgs []store.Msg) {
	b.Helper()
	flying := make(chan *store.Pending, inFlight-1)
	done := make(chan error, 1)
	go func() {
		var first error
		for p := range flying {
			if _, err := p.Wait(context.Background()); err != nil && first == nil {
				first = err
			}
		}
		done <- first
	}()
	for ; len(msgs) > 0; msgs = msgs[min(len(msgs), store.MaxBatch):] {
		p, err := s.StartBatch(msgs[:min(len(msgs), store.MaxBatch)])
		if err != nil {
			b.Fatal(err)
		}
		flying <- p
	}
	close(flying)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
