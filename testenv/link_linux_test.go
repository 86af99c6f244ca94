package testenv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkLink shows how much of a link a backlog uses that does not compress,
// from the first frame until it is drained, at most half a minute; and what of
// one core agent, hub, and this process, which is the link, take meanwhile.
func BenchmarkLink(b *testing.B) {
	for _, c := range []struct {
		name           string
		shape          Shape
		messages, size int
	}{
		{"64kbit-2s", profile(8_000, 2*time.Second), 5_000, 200},
		{"128kbit-200ms", profile(16_000, 200*time.Millisecond), 5_000, 200},
		{"1Mbit-100ms", profile(125_000, 100*time.Millisecond), 20_000, 200},
		{"100Mbit-100ms", profile(12_500_000, 100*time.Millisecond), 5_000, 64 << 10},
		{"1Gbit-200ms", profile(125_000_000, 200*time.Millisecond), 6_000, 64 << 10},
		{"loopback", Shape{}, 6_000, 64 << 10}, // what hub, disk and processor allow
	} {
		b.Run(c.name, func(b *testing.B) {
			rnd := rand.NewChaCha8([32]byte{1})
			noise := func(int) []byte { p := make([]byte, c.size); rnd.Read(p); return p }
			w, a := backlogOf(b, c.messages, min(4096, 4<<20/c.size), noise)
			defer w.Hub.Kill()
			defer a.Kill()
			before := cpuOf(b, os.Getpid(), a.PID(), w.Hub.PID())
			sent, took := drainFor(b, a, c.shape, 30*time.Second)
			for i, used := range cpuOf(b, os.Getpid(), a.PID(), w.Hub.PID()) {
				b.ReportMetric(100*(used-before[i]).Seconds()/took.Seconds(), []string{"%-cpu-link", "%-cpu-agent", "%-cpu-hub"}[i])
			}
			if rate := c.shape.Rate[Up]; rate > 0 {
				b.ReportMetric(100*float64(sent)/took.Seconds()/float64(rate), "%-used")
			}
			b.ReportMetric(float64(sent)/took.Seconds(), "B/s")
		})
	}
}

// cpuOf is the processor time that each process has taken so far.
func cpuOf(b *testing.B, pids ...int) (out []time.Duration) {
	b.Helper()
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, fields, found := strings.Cut(string(text), ") ")
		at := strings.Fields(fields)
		if err != nil || !found || len(at) < 13 {
			b.Fatalf("processor time of %d: %q, %v", pid, text, err)
		}
		var ticks time.Duration
		for _, field := range at[11:13] { // in user and kernel mode
			n, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			ticks += time.Duration(n)
		}
		out = append(out, ticks*time.Second/100) // USER_HZ
	}
	return out
}

// BenchmarkLinkMessages is the rate at which 100,000 readings of 200 bytes leave
// over 128 kbit/s and 200 ms, at most a minute.
func BenchmarkLinkMessages(b *testing.B) {
	const n = 100_000
	w, a := backlogOf(b, n, 4096, reading)
	defer w.Hub.Kill()
	defer a.Kill()
	sent, took := drainFor(b, a, profile(16_000, 200*time.Millisecond), time.Minute)
	left, err := a.Backlog()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(n-left)/took.Seconds(), "msg/s")
	b.ReportMetric(float64(sent)/float64(n-left), "B/msg")
}

// BenchmarkLinkUrgent is how long an urgent message takes over a 64 kbit/s link
// that bulk fills, and what goes before it.
func BenchmarkLinkUrgent(b *testing.B) {
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	a := w.AddAgent("press-7", "")
	defer a.Kill()
	a.Link.Cut(true)
	w.publishNoise(a, "bulk", wire.Bulk, 200, 4000)
	a.Link.ShapeLike(profile(8_000, 200*time.Millisecond))
	base := a.Link.Bytes(Up)
	a.Link.Cut(false)
	Eventually(b, 30*time.Second, "bulk fills the link", func() error {
		if n := a.Link.Bytes(Up) - base; n < 60_000 {
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	before, began := a.Link.Bytes(Up), time.Now()
	r, err := c.Publish(b.Context(), client.Message{Subject: "alarm", Payload: []byte("fire"), Lane: client.Urgent, Ack: client.Hub, HubTimeout: time.Minute})
	if err != nil || !r.Hub {
		b.Fatalf("%+v, %v", r, err)
	}
	b.ReportMetric(time.Since(began).Seconds(), "s")
	b.ReportMetric(float64(a.Link.Bytes(Up)-before), "B-before")
}

// BenchmarkLinkFresh is how long new messages take, from the publish until EDGE
// has them, while a backlog of 24 h fills in behind over 128 kbit/s and 200 ms:
// 86,400 readings, one a second, with an id in each that does not compress. Five
// new ones come a second, for two minutes, and the backlog outlasts them: with
// any larger one the link would look the same all the while.
func BenchmarkLinkFresh(b *testing.B) {
	const n, every = 600, 200 * time.Millisecond
	rnd, id := rand.NewChaCha8([32]byte{1}), make([]byte, 24)
	w := NewWorld(b, "")
	defer w.Hub.Kill()
	a := w.AddAgent("press-7", "spool: {order: fresh-first}\n")
	defer a.Kill()
	linkIs(b, a, true, 20*time.Second) // it knows its hub
	a.Link.Cut(true)
	payload := func(i int) []byte { rnd.Read(id); return fmt.Appendf(reading(i), "%x", id) }
	a.publishAll(b, 86_400, 4096, payload)
	fresh := w.edgeOf(b, a, "fresh")
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	a.Link.ShapeLike(profile(16_000, 200*time.Millisecond))
	a.Link.Cut(false)
	linkIs(b, a, true, 20*time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range n {
			c.PublishAsync(client.Message{Subject: "fresh", Payload: fmt.Appendf(payload(i), "#%d %d", i, time.Now().UnixNano())})
			time.Sleep(every)
		}
	})
	took := make([]float64, n)
	for i := range took {
		m, err := fresh.NextMsg(time.Minute)
		if err != nil || m.Header.Get("Fieldpost-Backfill") != "" {
			b.Fatalf("fresh message %d: %+v, %v", i, m, err)
		}
		var number int
		var sent int64
		_, tail, _ := strings.Cut(string(m.Data), "#")
		if _, err := fmt.Sscan(tail, &number, &sent); err != nil || number != i {
			b.Fatalf("fresh message %d: %q, %v", i, m.Data, err)
		}
		took[i] = time.Since(time.Unix(0, sent)).Seconds()
	}
	left, err := a.Backlog()
	if err != nil || left == 0 {
		b.Fatalf("%d messages are left: %v", left, err)
	}
	b.ReportMetric(took[0], "s-first")
	slices.Sort(took)
	b.ReportMetric(took[n/2], "s-p50")
	b.ReportMetric(took[n*99/100], "s-p99")
	b.ReportMetric(took[n-1], "s-max")
	b.ReportMetric(float64(86_400-left)/(n*every.Seconds()), "backfill-msg/s")
}

// BenchmarkLinkResume is the time from the link's return to the first message
// in EDGE, without a new publish.
func BenchmarkLinkResume(b *testing.B) {
	for _, outage := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		b.Run(outage.String(), func(b *testing.B) {
			w, a := backlogOf(b, 10, 10, reading)
			defer w.Hub.Kill()
			defer a.Kill()
			time.Sleep(outage) // its length is the point
			a.Link.Cut(false)
			back := time.Now()
			Eventually(b, time.Minute, "EDGE has it", func() error { return w.edgeHolds(10) })
			b.ReportMetric(time.Since(back).Seconds(), "s")
		})
	}
}

// backlogOf is a world whose agent holds n messages behind a link that is cut.
func backlogOf(b *testing.B, n, window int, payload func(int) []byte) (*World, *Agent) {
	b.Helper()
	w := NewWorld(b, "")
	a := w.AddAgent("press-7", "")
	linkIs(b, a, true, 20*time.Second) // it knows its hub
	a.Link.Cut(true)
	a.publishAll(b, n, window, payload)
	return w, a
}

// drainFor lets the backlog go for a while; it returns the bytes that went up
// and the time since the first block came.
func drainFor(b *testing.B, a *Agent, s Shape, limit time.Duration) (sent int64, took time.Duration) {
	b.Helper()
	a.Link.ShapeLike(s)
	base := a.Link.Bytes(Up)
	a.Link.Cut(false)
	Eventually(b, time.Minute, "the first block", func() error {
		if n := a.Link.Bytes(Up) - base; n < 4096 { // more than it takes to connect
			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	base, began := a.Link.Bytes(Up), time.Now()
	for left := int64(1); left > 0 && time.Since(began) < limit; time.Sleep(20 * time.Millisecond) {
		now := a.Link.Bytes(Up) - base
		if now > sent { // the last acks are not transmission
			sent, took = now, time.Since(began)
		}
		var err error
		if left, err = a.Backlog(); err != nil {
			b.Fatal(err)
		}
	}
	return sent, took
}
