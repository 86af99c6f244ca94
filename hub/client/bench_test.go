package client

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	benchBlocks  = 100
	benchInBlock = 500
	benchAll     = benchBlocks * benchInBlock
)

// benchWorld holds the same messages of 200 bytes in BLOCKS and in EDGE.
func benchWorld(b *testing.B) *ledger {
	b.Helper()
	l := newLedger(b)
	for i := range benchBlocks {
		var msgs []wire.Message
		for j := range benchInBlock {
			n := i*benchInBlock + j
			m := msg(fmt.Sprintf("sensors.room%d.temperature", n%20),
				fmt.Sprintf(`{"sensor":"t-%04d","value":%d.%02d,"unit":"C","quality":"good","site":"plant 7, hall %d","seq":%d,"note":"%080d"}`, n%20, n%40, n%100, n%3, n, n*7919))
			msgs = append(msgs, m)
			for l.js.PublishAsyncPending() > 1000 {
				time.Sleep(time.Millisecond)
			}
			if _, err := l.js.PublishMsgAsync(&nats.Msg{Subject: "edge.press-7." + m.Subject, Header: head(n + 1), Data: m.Payload}); err != nil {
				b.Fatal(err)
			}
		}
		l.block("press-7", msgs...)
	}
	select {
	case <-l.js.PublishAsyncComplete():
	case <-time.After(patience):
		b.Fatal("not everything is stored")
	}
	return l
}

// bare is how fast a durable pull consumer of JetStream itself hands the messages
// out, each acked as asked for.
func bare(b *testing.B, l *ledger, name string, ack func(jetstream.Msg) error) time.Duration {
	b.Helper()
	began := time.Now()
	cons, err := l.js.CreateConsumer(b.Context(), "EDGE", jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: maxAckPending})
	if err != nil {
		b.Fatal(err)
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(500))
	if err != nil {
		b.Fatal(err)
	}
	defer it.Stop()
	for range benchAll {
		m, err := it.Next(jetstream.NextMaxWait(patience))
		if err == nil {
			err = ack(m)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := l.nc.Flush(); err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// until runs a call until it has seen all messages.
func until(b *testing.B, call func(ctx context.Context, seen func(n int)) error) time.Duration {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	seen, done := make(chan int, 1024), make(chan error, 1)
	began := time.Now()
	go func() { done <- call(ctx, func(n int) { seen <- n }) }()
	for left := benchAll; left > 0; {
		left -= receive(b, "messages", seen)
	}
	took := time.Since(began)
	cancel()
	if err := receive(b, "the end", done); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkConsume reports how many messages a second each way of this package
// hands out, as shares of what a bare pull consumer does with the same messages
// in the same run: with acks that are only sent, and for Consume, whose acks are
// confirmed, with confirmed ones too, one after the other as a simple program does.
func BenchmarkConsume(b *testing.B) {
	l := benchWorld(b)
	c := l.client()
	var sent, confirmed, single, packed time.Duration
	n := 0
	for b.Loop() {
		n++
		sent += bare(b, l, fmt.Sprint("sent-", n), jetstream.Msg.Ack)
		confirmed += bare(b, l, fmt.Sprint("confirmed-", n), func(m jetstream.Msg) error { return m.DoubleAck(b.Context()) })
		single += until(b, func(ctx context.Context, seen func(int)) error {
			return c.Consume(ctx, ConsumerConfig{Group: fmt.Sprint("single-", n)}, func(context.Context, *Message) error {
				seen(1)
				return nil
			})
		})
		packed += until(b, func(ctx context.Context, seen func(int)) error {
			return c.ConsumeBatch(ctx, BatchConfig{Group: fmt.Sprint("packed-", n)}, func(_ context.Context, batch *Batch) error {
				count := 0
				for range batch.Messages() {
					count++
				}
				seen(count)
				return nil
			})
		})
	}
	all := float64(n * benchAll)
	b.ReportMetric(all/single.Seconds(), "msg/s")
	b.ReportMetric(all/packed.Seconds(), "packed-msg/s")
	b.ReportMetric(all/sent.Seconds(), "bare-msg/s")
	b.ReportMetric(sent.Seconds()/single.Seconds(), "x-bare")
	b.ReportMetric(confirmed.Seconds()/single.Seconds(), "x-bare-confirmed")
	b.ReportMetric(sent.Seconds()/packed.Seconds(), "packed-x-bare")
	b.ReportMetric(0, "ns/op")
}
