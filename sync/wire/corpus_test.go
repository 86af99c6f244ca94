package wire

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpora lie beside the repository, or where FIELDPOST_CORPORA says, and are
// absent elsewhere.
var corpora = cmp.Or(os.Getenv("FIELDPOST_CORPORA"), "../../../shared/corpora")

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

// TestCorporaRoundTrip encodes and decodes every corpus, alone and in blocks.
func TestCorporaRoundTrip(t *testing.T) {
	for _, name := range corpusNames(t) {
		ms := corpus(t, name)
		for _, l := range []Level{Fast, Better, Plain} {
			e, d := NewEncoder(l), NewDecoder()
			for _, n := range []int{1, 16, 500, len(ms)} {
				end := len(ms)
				if n == 1 {
					end = 500
				}
				for i := 0; i < end; i += n {
					part := ms[i:min(i+n, len(ms))]
					data, err := e.Append(nil, block(uint64(i+1), part...))
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					b, err := d.Decode(data, false)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					if diff := differ(b.Messages, part); diff != "" {
						t.Fatalf("%s, level %d, blocks of %d, from %d: %s", name, l, n, i, diff)
					}
				}
			}
		}
	}
}
