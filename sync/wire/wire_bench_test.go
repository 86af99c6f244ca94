package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"text/tabwriter"
)

// wireForms are the ways in which messages may travel: through a session's
// stream, one, 16 or 48 KiB a frame, or merged into blocks of so many raw bytes.
var wireForms = []struct {
	name string
	size func(tb testing.TB, ms []Message) int
}{
	{"stream of 1", func(tb testing.TB, ms []Message) int { return streamed(tb, ms, 1) }},
	{"stream of 16", func(tb testing.TB, ms []Message) int { return streamed(tb, ms, 16) }},
	{"stream of 48K", func(tb testing.TB, ms []Message) int { return streamed(tb, ms, MaxCount) }},
	{"fast 128K", func(tb testing.TB, ms []Message) int { return backlog(tb, ms, Fast, 128<<10) }},
	{"better 128K", func(tb testing.TB, ms []Message) int { return backlog(tb, ms, Better, 128<<10) }},
	{"better 512K", func(tb testing.TB, ms []Message) int { return backlog(tb, ms, Better, 512<<10) }},
	{"better 1M", func(tb testing.TB, ms []Message) int { return backlog(tb, ms, Better, 1<<20) }},
}

// BenchmarkWire reports the bytes that a message takes on the link, by corpus
// and form, beside what zstd makes of the whole: the bytes of blocks and frame
// bodies, not those of NATS. Run it once: -benchtime 1x.
func BenchmarkWire(b *testing.B) {
	var table strings.Builder
	tw := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "corpus\traw\tzstd -19 --long\t")
	logs, n := make([]float64, len(wireForms)), 0.0
	for _, f := range wireForms {
		fmt.Fprintf(tw, "%s\t", f.name)
	}
	fmt.Fprintln(tw)
	for _, name := range corpusNames(b) {
		b.Run(name, func(b *testing.B) {
			ms := corpus(b, name)
			per := func(size int) float64 { return float64(size) / float64(len(ms)) }
			text := framed(ms)
			whole := zstd19(b, text)
			fmt.Fprintf(tw, "%s\t%.1f\t%.2f\t", name, per(len(text)), per(whole))
			b.ReportMetric(per(whole), "zstd-B/msg")
			for i, f := range wireForms {
				size := f.size(b, ms)
				fmt.Fprintf(tw, "%.2f\t", per(size))
				b.ReportMetric(per(size), strings.ReplaceAll(f.name, " ", "-")+"-B/msg")
				if !strings.HasPrefix(name, "random") {
					logs[i] += math.Log(float64(size) / float64(whole))
				}
			}
			fmt.Fprintln(tw)
			if !strings.HasPrefix(name, "random") {
				n++
			}
		})
	}
	if n > 0 {
		fmt.Fprint(tw, "geometric mean to zstd, without random-200B\t\t1\t")
		for _, l := range logs {
			fmt.Fprintf(tw, "%.3f\t", math.Exp(l/n))
		}
		fmt.Fprintln(tw)
	}
	tw.Flush()
	fmt.Printf("\nbytes a message in blocks and frame bodies\n%s\n", &table) // a log of a parent is not shown
}

// framed is what a general compressor is given: for each message length and text
// of the subject, ms since the one before as a varint, length and bytes of the payload.
func framed(ms []Message) (out []byte) {
	last := int64(0)
	for i := range ms {
		out = appendUvarint(out, uint64(len(ms[i].Subject)))
		out = append(out, ms[i].Subject...)
		out = binary.AppendVarint(out, ms[i].Time-last)
		last = ms[i].Time
		out = appendUvarint(out, uint64(len(ms[i].Payload)))
		out = append(out, ms[i].Payload...)
	}
	return out
}

func zstd19(b *testing.B, text []byte) int {
	cmd := exec.Command("zstd", "-19", "--long=27", "-c")
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		b.Skip("zstd -19 --long is what all is compared with; install zstd: ", err)
	}
	return len(out)
}

// streamed is the size of ms in one session, at most n messages and 48 KiB a frame.
func streamed(tb testing.TB, ms []Message, n int) (size int) {
	e := NewStreamEncoder()
	each(ms, n, 48<<10, func(b *Block) {
		out, err := e.Append(nil, b)
		if err != nil {
			tb.Fatal(err)
		}
		size += len(out)
	})
	return size
}

// backlog is the size of ms in blocks of raw bytes.
func backlog(tb testing.TB, ms []Message, l Level, raw int) (size int) {
	e := NewEncoder(l)
	each(ms, MaxCount, raw, func(b *Block) {
		out, err := e.Append(nil, b)
		if err != nil {
			tb.Fatal(err)
		}
		size += len(out)
	})
	return size
}

// each cuts ms into blocks of at most n messages and, but for a single one, raw bytes.
func each(ms []Message, n, raw int, do func(*Block)) {
	for i := 0; i < len(ms); {
		end, sum := i, 0
		for end < len(ms) && end-i < n && (sum == 0 || sum+ms[end].Size() <= raw) {
			sum += ms[end].Size() + 4
			end++
		}
		do(block(uint64(i+1), ms[i:end]...))
		i = end
	}
}

// BenchmarkMillion reports the processor's seconds that a million messages of
// 130 bytes take in each form, written and read.
func BenchmarkMillion(b *testing.B) {
	ms := corpus(b, "synth-50-sensors")
	const raw = 48 << 10
	per := func(b *testing.B) { b.ReportMetric(b.Elapsed().Seconds()/float64(b.N*len(ms))*1e6, "s/million") }
	for _, n := range []int{1, 16, MaxCount} {
		b.Run(fmt.Sprintf("stream/write-%d", n), func(b *testing.B) {
			for b.Loop() {
				streamed(b, ms, n)
			}
			per(b)
		})
		b.Run(fmt.Sprintf("stream/read-%d", n), func(b *testing.B) {
			var frames [][]byte
			e := NewStreamEncoder()
			each(ms, n, raw, func(x *Block) {
				f, err := e.Append(nil, x)
				if err != nil {
					b.Fatal(err)
				}
				frames = append(frames, f)
			})
			for b.Loop() {
				d := NewStreamDecoder()
				for _, f := range frames {
					if _, err := d.Decode(f); err != nil {
						b.Fatal(err)
					}
				}
			}
			per(b)
		})
	}
	for l, name := range []string{"fast", "better"} {
		for _, n := range []int{16, MaxCount} {
			b.Run(fmt.Sprintf("%s/write-%d", name, n), func(b *testing.B) {
				e := NewEncoder(Level(l))
				for b.Loop() {
					each(ms, n, 128<<10, func(x *Block) {
						if _, err := e.Append(nil, x); err != nil {
							b.Fatal(err)
						}
					})
				}
				per(b)
			})
		}
	}
}
