package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// record is one reading as a program would publish it: JSON of 200 bytes.
func record(dst []byte, publisher, i int) []byte {
	dst = fmt.Appendf(dst, `{"device":"press-%02d","n":%d,"ts":"2024-05-01T10:%02d:%02d.%03dZ","temp":%d.%d,"rpm":%d,"vib":[%d,%d,%d],"state":"running","note":"`,
		publisher, i, i/60%60, i%60, i%1000, 20+i%17, i%10, 1400+i%97, i%7, i%11, i%13)
	for len(dst) < 198 {
		dst = append(dst, '.')
	}
	return append(dst, '"', '}')
}

const (
	benchPublishers = 16
	benchSubjects   = 20
)

// ingest publishes b.N messages over 16 pipelined connections; each is durable
// when the last answer has come.
func ingest(b *testing.B, path string) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for p := range benchPublishers {
		c, err := client.Dial(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			subjects := make([]string, benchSubjects)
			for i := range subjects {
				subjects[i] = fmt.Sprintf("plant.press-%02d.reading.%d", p, i)
			}
			records := make([][]byte, 512)
			for i := range records {
				records[i] = record(nil, p, i)
			}
			for {
				from := next.Add(500) - 500
				if from >= int64(b.N) {
					break
				}
				for i := from; i < min(from+500, int64(b.N)); i++ {
					c.PublishAsync(client.Message{Subject: subjects[i%benchSubjects], Payload: records[i%512]})
				}
			}
			if err := c.Flush(b.Context()); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
}

// cpu is the processor time of this process so far: unlike the clock it does not
// mind what else the machine does.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkClient is the way from the SDK to a store that costs nothing.
func BenchmarkClient(b *testing.B) {
	w := start(b, nil)
	w.store.set(func() { w.store.forget = true })
	b.SetBytes(200)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	ingest(b, w.path)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkIngest is durable ingest over the SDK, then the same encoded blocks
// appended to a plain file with an fdatasync for each.
func BenchmarkIngest(b *testing.B) {
	w := startReal(b, nil)
	b.SetBytes(200)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	ingest(b, w.path)
	b.StopTimer()
	b.ReportMetric(float64(cpu(b)-before)/float64(b.N), "cpu-ns/op")
	rate := float64(b.N) / b.Elapsed().Seconds()
	b.ReportMetric(rate, "msg/s")
	plain, blocks := plainAppend(b, w)
	b.ReportMetric(float64(b.N)/plain.Seconds(), "plain-msg/s")
	b.ReportMetric(rate*plain.Seconds()/float64(b.N), "of-plain")
	b.ReportMetric(float64(b.N)/float64(blocks), "msg/block")
}

// plainAppend writes the blocks of the spool to a file, each with its sync.
func plainAppend(b *testing.B, w *world) (took time.Duration, blocks int) {
	f, err := os.Create(filepath.Join(w.a.cfg.DataDir, "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for _, held := range w.real.Flows() {
		for from := held.First; ; blocks++ {
			data, err := w.real.Read(held.Flow, from)
			if err != nil {
				break
			}
			h, err := wire.ParseHeader(data)
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			if _, err := f.Write(data); err != nil {
				b.Fatal(err)
			}
			if err := unix.Fdatasync(int(f.Fd())); err != nil {
				b.Fatal(err)
			}
			took += time.Since(began)
			from = h.Last() + 1
		}
	}
	return took, blocks
}
