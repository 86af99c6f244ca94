package wire

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// corpora lie beside the repository and are absent elsewhere.
const corpora = "../../../shared/corpora"

// corpus reads one real message stream.
func corpus(tb testing.TB, name string) []Message {
	f, err := os.Open(filepath.Join(corpora, name+".ndjson.gz"))
	if err != nil {
		tb.Skip("no corpora beside the repository")
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var out []Message
	for s := bufio.NewScanner(z); s.Scan(); {
		var l struct {
			TS      int64  `json:"ts"`
			Subject string `json:"subject"`
			Payload string `json:"payload"`
			B64     []byte `json:"payload_b64"`
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			tb.Fatal(err)
		}
		if l.B64 == nil {
			l.B64 = []byte(l.Payload)
		}
		out = append(out, Message{Subject: l.Subject, Payload: l.B64, Time: l.TS})
	}
	return out
}

func corpusNames(tb testing.TB) []string {
	files, _ := filepath.Glob(filepath.Join(corpora, "*.ndjson.gz"))
	if len(files) == 0 {
		tb.Skip("no corpora beside the repository")
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".ndjson.gz")
	}
	return files
}

var epoch1 = Epoch{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}

func block(first uint64, ms []Message) *Block {
	return &Block{Header: Header{Flow: Flow{epoch1, Normal}, Kind: KindMessages, Base: 1, First: first, Accepted: ms[0].Time}, Messages: ms}
}

func TestCorporaRoundTrip(t *testing.T) {
	for _, name := range corpusNames(t) {
		ms := corpus(t, name)
		for _, l := range []Level{Fast, Better, Plain} {
			e, d := NewEncoder(l), NewDecoder()
			for _, n := range []int{1, 16, 500, len(ms)} {
				in, wireBytes := 0, 0
				for i := 0; i < len(ms); i += n {
					part := ms[i:min(i+n, len(ms))]
					if n == 1 && i > 2000 {
						break
					}
					data, err := e.Append(nil, block(uint64(i+1), part))
					if err != nil {
						t.Fatal(err)
					}
					b, err := d.Decode(data, false)
					if err != nil {
						t.Fatal(err)
					}
					if len(b.Messages) != len(part) {
						t.Fatal("count")
					}
					for j := range part {
						if !reflect.DeepEqual(b.Messages[j], part[j]) {
							t.Fatalf("%s: message %d: %+v, want %+v", name, i+j, b.Messages[j], part[j])
						}
						in += part[j].Size()
					}
					wireBytes += len(data)
				}
				t.Logf("%-20s level %d n %5d: %8d -> %8d (%.2f)", name, l, n, in, wireBytes, float64(in)/float64(wireBytes))
			}
		}
	}
}
