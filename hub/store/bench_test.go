package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// BenchmarkBlocks stores blocks of 40 KB durably: one batch at a time and four
// at once, by batch size, against plain asynchronous publishing.
func BenchmarkBlocks(b *testing.B) {
	data := []byte(strings.Repeat("0123456789", 4000))
	subject := func(i int) string { return fmt.Sprintf("fp.blocks.dev%d.0000000000000001.normal", i) }
	layout := testLayout
	layout.BlocksMaxBytes = 16 << 30
	start := func(b *testing.B) *Store {
		s, err := Open(ctx(b), Config{Dir: b.TempDir(), Listen: "127.0.0.1:-1", MaxStore: 32 << 30})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		if err := s.EnsureStreams(ctx(b), layout); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		return s
	}
	for _, size := range []int{1, 4, 16, 64, 256, 1000} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("batch=%d/writers=%d", size, writers), func(b *testing.B) {
				s := start(b)
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						for n := w * size; n < b.N; n += writers * size {
							msgs := make([]Msg, size)
							for i := range msgs {
								msgs[i] = Msg{Subject: subject(w*size + i), Header: nats.Header{"Fieldpost-Received": {"1-500"}}, Data: data}
							}
							if _, err := s.PublishBatch(ctx(b), msgs); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
			})
		}
	}
	b.Run("plain-async", func(b *testing.B) {
		s := start(b)
		nc, err := s.Connect("bench")
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000))
		if err != nil {
			b.Fatal(err)
		}
		for i := range b.N {
			if _, err := js.PublishAsync(subject(i%1000), data, jetstream.WithStallWait(time.Minute)); err != nil {
				b.Fatal(err)
			}
		}
		<-js.PublishAsyncComplete()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "blocks/s")
	})
}

// BenchmarkRead reads blocks of 40 KB in order.
func BenchmarkRead(b *testing.B) {
	data := []byte(strings.Repeat("0123456789", 4000))
	s := open(b, Config{})
	layout := testLayout
	layout.BlocksMaxBytes = 900 << 20
	if err := s.EnsureStreams(ctx(b), layout); err != nil {
		b.Fatal(err)
	}
	const held = 5000
	for range held / 100 {
		msgs := make([]Msg, 100)
		for i := range msgs {
			msgs[i] = Msg{Subject: subjectA, Data: data, Header: nats.Header{"Fieldpost-Received": {"1-500"}}}
		}
		if _, err := s.PublishBatch(ctx(b), msgs); err != nil {
			b.Fatal(err)
		}
	}
	c := ctx(b)
	b.Run("reader", func(b *testing.B) {
		for n := 0; n < b.N; {
			r, err := s.Reader(Blocks, 1)
			if err != nil {
				b.Fatal(err)
			}
			for ; n < b.N; n++ {
				if _, err := r.Next(c); err != nil {
					break
				}
			}
			r.Close()
		}
	})
	b.Run("ordered-consumer", func(b *testing.B) {
		for n := 0; n < b.N; {
			oc, err := s.js.OrderedConsumer(c, Blocks, jetstream.OrderedConsumerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			it, err := oc.Messages()
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; i < held && n < b.N; i, n = i+1, n+1 {
				if _, err := it.Next(); err != nil {
					b.Fatal(err)
				}
			}
			it.Stop()
		}
	})
}
