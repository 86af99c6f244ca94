package wire

import (
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var benchSizes = []int{1, 16, 500}

// ndjson is what the same messages take as lines, compressed like zstd -3.
func ndjson(ms []Message) int {
	var text []byte
	for i := range ms {
		text = fmt.Appendf(text, `{"ts":%d,"subject":%q,"payload":%q}`+"\n", ms[i].Time, ms[i].Subject, ms[i].Payload)
	}
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		panic(err)
	}
	defer zw.Close()
	return len(zw.EncodeAll(text, nil))
}

// blocksOf cuts a corpus into blocks of n messages.
func blocksOf(ms []Message, n int) (out []*Block) {
	for i := 0; i+n <= len(ms) && len(out) < 1000; i += n {
		out = append(out, block(uint64(i+1), ms[i:i+n]...))
	}
	return out
}

// BenchmarkAppend also reports the bytes that a message takes: encoded, as it
// is (payload, subject, 8 bytes of time), and as compressed NDJSON.
func BenchmarkAppend(b *testing.B) {
	for _, name := range corpusNames(b) {
		ms := corpus(b, name)
		for l, level := range []string{"fast", "better"} {
			for _, n := range benchSizes {
				b.Run(fmt.Sprintf("%s/%s/%d", name, level, n), func(b *testing.B) { benchAppend(b, Level(l), blocksOf(ms, n)) })
			}
		}
	}
}

func benchAppend(b *testing.B, l Level, blocks []*Block) {
	e := NewEncoder(l)
	var dst []byte
	raw, out, lines, count := 0, 0, 0, 0
	for _, x := range blocks {
		var err error
		if dst, err = e.Append(dst[:0], x); err != nil {
			b.Fatal(err)
		}
		out += len(dst)
		lines += ndjson(x.Messages)
		count += len(x.Messages)
		for i := range x.Messages {
			raw += x.Messages[i].Size() + 8
		}
	}
	b.SetBytes(int64(raw / len(blocks)))
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		dst, _ = e.Append(dst[:0], blocks[i%len(blocks)])
	}
	per := float64(count)
	b.ReportMetric(per/float64(len(blocks))*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(float64(out)/per, "B/msg")
	b.ReportMetric(float64(raw)/per, "raw-B/msg")
	b.ReportMetric(float64(lines)/per, "ndjson-B/msg")
}

// BenchmarkDecode and BenchmarkParseHeader measure the hub's side.
func BenchmarkDecode(b *testing.B) {
	d := NewDecoder()
	benchRead(b, func(data []byte) error { _, err := d.Decode(data, false); return err })
}

func BenchmarkParseHeader(b *testing.B) {
	benchRead(b, func(data []byte) error { _, err := ParseHeader(data); return err })
}

func benchRead(b *testing.B, read func([]byte) error) {
	for _, name := range []string{"synth-50-sensors", "weather-json"} {
		ms := corpus(b, name)
		for _, n := range benchSizes {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				data := encode(b, Fast, blocksOf(ms, n)[0])
				b.ReportAllocs()
				for b.Loop() {
					if err := read(data); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}
