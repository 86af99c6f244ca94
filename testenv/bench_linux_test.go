package testenv

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/hub/store"
)

// fill publishes n messages of the given size, as fast as the agent takes them.
func fill(b *testing.B, a *Agent, n int, payload func(i int) []byte) {
	b.Helper()
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	pending := make([]*client.Pending, 0, 4096)
	wait := func() {
		for _, p := range pending {
			if _, err := p.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		pending = pending[:0]
	}
	for i := range n {
		pending = append(pending, c.PublishAsync(client.Message{Subject: "bench.s" + strconv.Itoa(i%50), Payload: payload(i)}))
		if len(pending) == cap(pending) {
			wait()
		}
	}
	wait()
}

// reading is 200 bytes of JSON as a sensor would send it.
func reading(i int) []byte {
	return fmt.Appendf(make([]byte, 0, 200), `{"device":"esp32-%06x","seq":%d,"ts":%d,"type":"temperature","value":%.3f,"unit":"C","battery":%.2f,"rssi":%d,"ok":true,"site":"north","line":%d,"note":"within limits, calibrated"}`,
		i%50, i, 1_767_225_600_000+int64(i)*20, 20+float64(i%977)/100, 3+float64(i%89)/100, -40-i%50, i%7)
}

// BenchmarkCatchUp measures from the link's return until the last message of a
// backlog is in EDGE, against a bare JetStream server that stores the same
// messages in atomic batches of 1,000 in the same run.
func BenchmarkCatchUp(b *testing.B) {
	const n = 200_000
	for range b.N {
		w := NewWorld(b, "")
		a := w.AddAgent("press-7", "")
		a.Link.Cut(true)
		fill(b, a, n, reading)
		began := time.Now()
		a.Link.Cut(false)
		Eventually(b, 5*time.Minute, "EDGE has everything", func() error { return w.edgeHolds(n) })
		caught := float64(n) / time.Since(began).Seconds()
		w.Hub.Stop(30 * time.Second)
		a.Stop(30 * time.Second)
		bare := bareJetStream(b, n)
		b.ReportMetric(caught, "msg/s")
		b.ReportMetric(bare, "bare-msg/s")
		b.ReportMetric(caught/bare, "ratio")
	}
}

// bareJetStream stores the messages with nothing of Fieldpost's around: atomic
// batches of 1,000, several in flight, an fsync for each.
func bareJetStream(b *testing.B, n int) (perSecond float64) {
	b.Helper()
	s, err := store.Open(b.Context(), store.Config{Dir: shortDir(b), Listen: "127.0.0.1:0", MaxStore: 4 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	err = s.EnsureStreams(b.Context(), store.Layout{BlocksMaxBytes: 1 << 30, DeadMaxAge: time.Hour, DeadMaxBytes: 1 << 20,
		Routes: []store.RouteStream{{Name: "EDGE", Subjects: []string{"edge.>"}, MaxAge: time.Hour, MaxBytes: 2 << 30, Compress: true}}})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	var flying []*store.Pending
	land := func() {
		if _, err := flying[0].Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		flying = flying[1:]
	}
	msgs := make([]store.Msg, 0, 1000)
	for i := range n {
		h := nats.Header{"Fieldpost-Epoch": {"0011223344556677"}, "Fieldpost-Seq": {strconv.Itoa(i)},
			"Fieldpost-Time": {"2026-01-01T00:00:00.000Z"}, "Fieldpost-Block": {"1/" + strconv.Itoa(i)}}
		msgs = append(msgs, store.Msg{Subject: "edge.press-7.bench.s" + strconv.Itoa(i%50), Header: h, Data: reading(i)})
		if len(msgs) == cap(msgs) || i == n-1 {
			p, err := s.StartBatch(msgs)
			if err != nil {
				b.Fatal(err)
			}
			flying, msgs = append(flying, p), msgs[:0]
			if len(flying) == 4 {
				land()
			}
		}
	}
	for len(flying) > 0 {
		land()
	}
	return float64(n) / time.Since(began).Seconds()
}
