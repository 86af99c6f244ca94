package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime/metrics"
	"slices"
	"testing"
)

// maxDecode bounds what decoding may allocate for any input, garbage included:
// the body, the messages and their dictionaries at their limits.
const maxDecode = 64 << 20

// heapAllocs reads the bytes allocated so far; unlike ReadMemStats it stops nothing.
func heapAllocs() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// known fails unless err is one of the three kinds that callers branch on.
func known(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrLimit) {
		t.Fatalf("an error of no kind: %v", err)
	}
}

var (
	fuzzDecoder = NewDecoder()
	fuzzPlain   = NewEncoder(Plain)
	fuzzFast    = NewEncoder(Fast)
)

// checkBlock decodes data; what decodes must survive being encoded again.
func checkBlock(t *testing.T, data []byte) {
	t.Helper()
	h, herr := ParseHeader(data)
	before := heapAllocs()
	b, err := fuzzDecoder.Decode(data, true)
	if n := heapAllocs() - before; n > maxDecode {
		t.Fatalf("%d bytes allocated for %d", n, len(data))
	}
	if err != nil {
		known(t, err)
		return
	}
	if herr != nil || !reflect.DeepEqual(h, b.Header) {
		t.Fatalf("Decode accepts %+v, ParseHeader says %+v, %v", b.Header, h, herr)
	}
	for _, e := range []*Encoder{fuzzPlain, fuzzFast} {
		again, err := e.Append(nil, b)
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		c, err := fuzzDecoder.Decode(again, false)
		if err != nil {
			t.Fatalf("encoded, but not decoded: %v", err)
		}
		if diff := differ(c.Messages, b.Messages); diff != "" {
			t.Fatal(diff)
		}
		c.RawSize, c.Messages = b.RawSize, b.Messages // redundant spellings of ids and header sets shrink
		if !reflect.DeepEqual(c, b) {
			t.Fatalf("header %+v, want %+v", c.Header, b.Header)
		}
	}
	if b.Count > 1 {
		r := Range{b.First + b.Count/2, b.Last()}
		cut, err := Cut(fuzzDecoder, fuzzPlain, data, r)
		if err != nil {
			t.Fatalf("cut: %v", err)
		}
		if h, err := ParseHeader(cut); err != nil || h.Range() != r {
			t.Fatalf("cut to %v: %+v, %v", r, h, err)
		}
	}
}

// goldenFiles are the seeds of every fuzzer of blocks.
func goldenFiles(f *testing.F) [][]byte {
	paths, err := filepath.Glob("testdata/*.fpb")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	var out [][]byte
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, data)
	}
	return out
}

func FuzzBlock(f *testing.F) {
	for _, data := range goldenFiles(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkBlock(t, data) })
}

// FuzzHeader gets past the header's checksum.
func FuzzHeader(f *testing.F) {
	for _, data := range goldenFiles(f) {
		c, end, err := openHeader(data)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Clone(c.b[c.off:]), data[end:])
	}
	f.Fuzz(func(t *testing.T, fields, body []byte) { checkBlock(t, forgeFields(fields, body)) })
}

// FuzzBody gets past both checksums.
func FuzzBody(f *testing.F) {
	for _, data := range goldenFiles(f) {
		b, err := NewDecoder().Decode(data, true)
		if err != nil {
			f.Fatal(err)
		}
		if b.Kind == KindMessages {
			e := NewEncoder(Plain)
			if _, err := e.Append(nil, b); err != nil {
				f.Fatal(err)
			}
			f.Add(uint16(b.Count-1), uint8(len(b.Subjects)), e.raw)
		}
	}
	names := make([]string, 256)
	for i := range names {
		names[i] = string([]byte{'a' + byte(i/16), '.', 'a' + byte(i%16)})
	}
	f.Fuzz(func(t *testing.T, count uint16, subjects uint8, body []byte) {
		checkBlock(t, forge(0, uint64(count)+1, len(body), names[:subjects], body))
	})
}

// FuzzZstd gets past both checksums to the decompressor.
func FuzzZstd(f *testing.F) {
	for _, data := range goldenFiles(f) {
		h, info, body, err := parseHeader(data)
		if err != nil {
			f.Fatal(err)
		}
		if info.flags&flagZstd != 0 {
			f.Add(uint32(h.RawSize), body)
		}
	}
	f.Fuzz(func(t *testing.T, size uint32, frame []byte) {
		checkBlock(t, forge(flagZstd, 1, int(size%(MaxRaw+1)), []string{"a"}, frame))
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(AppendFrame(nil, Frame{Type: FrameBlock, Session: session1, Counter: 300, Body: []byte("block")}))
	f.Add(AppendFrame(nil, Frame{Type: FrameConfirm, Session: session1, Counter: 1, Body: []byte("to.ken")}))
	f.Add(AppendFrame(nil, Frame{Type: FrameDrained, Session: session1, Counter: 2, Body: flow1.Epoch[:]}))
	f.Add(AppendFrame(nil, Frame{Type: FrameBye, Session: session1, Counter: 3, Body: nil}))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := ParseFrame(data)
		if err != nil {
			known(t, err)
		} else if again := AppendFrame(nil, frame); len(again) != len(data) || frame.Of(SessionID{}) && !bytes.Equal(again, data) {
			t.Fatalf("%x encodes as %x", data, again)
		}
	})
}

func FuzzReply(f *testing.F) {
	f.Add(AppendAck(nil, ackOf(3, 3)))
	f.Add(AppendAck(nil, Ack{}))
	f.Add(AppendEnd(nil, SessionError{CodeGap, "frame 7 after 5"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		ack, end, err := ParseReply(data)
		var again []byte
		switch {
		case err != nil:
			known(t, err)
			return
		case (ack == nil) == (end == nil):
			t.Fatal("not exactly one result")
		case ack != nil:
			again = AppendAck(nil, *ack)
			for _, f := range ack.Flows {
				if back, err := ParseRanges(f.Ranges.String()); err != nil || !slices.Equal(back, f.Ranges) {
					t.Fatalf("ranges %v: %v", f.Ranges, err)
				}
			}
		default:
			again = AppendEnd(nil, *end)
		}
		if !bytes.Equal(again, data) {
			t.Fatalf("%x encodes as %x", data, again)
		}
	})
}

// checkJSON: what is accepted survives being marshalled and parsed again.
func checkJSON[T any](t *testing.T, data []byte, parse func([]byte) (*T, error)) {
	t.Helper()
	v, err := parse(data)
	if err != nil {
		known(t, err)
		return
	}
	again, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if len(again) > len(data) && errors.Is(func() error { _, err := parse(again); return err }(), ErrLimit) {
		return // written out with every key it outgrew the limit
	}
	w, err := parse(again)
	if err != nil {
		t.Fatalf("%s: %v", again, err)
	}
	if third, _ := json.Marshal(w); !bytes.Equal(again, third) {
		t.Fatalf("%s, then %s", again, third)
	}
}

func FuzzOpen(f *testing.F) {
	good, _ := json.Marshal(goodOpen())
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data, ParseOpen) })
}

func FuzzOpenReply(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"session":"0102030405060708","instance":"i","hub_id":"h","token":"t","received":[{"epoch":"1122334455667788","lane":"bulk","ranges":"1-4,6-6"}],"max_payload":1,"window":1,"time":1}`))
	f.Add([]byte(`{"protocol":1,"error":{"code":"wrong_hub","detail":"x"},"hub_id":"h","time":1}`))
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data, ParseOpenReply) })
}

func FuzzHeartbeat(f *testing.F) {
	f.Add([]byte(`{"version":"1","process":"p","epoch":"1122334455667788","every":30,"started":1,"class":"metered","backlog":{"bulk":{"messages":1,"bytes":2,"oldest":3}},"disk_used":1,"disk_max":2,"dropped":{"ttl":1},"quarantine":1,"labels":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) { checkJSON(t, data, ParseHeartbeat) })
}

func FuzzRanges(f *testing.F) {
	f.Add("1-4,6-6")
	f.Add("1-18446744073709551615")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseRanges(text); err == nil && s.String() != text {
			t.Fatalf("%q prints as %q", text, s)
		}
	})
}

// FuzzNames: names that are accepted are safe where they are used, as a token
// of a subject or a line of a header.
func FuzzNames(f *testing.F) {
	f.Add("sensors.temp", "Trace", "7", "dev-1", "id 1")
	f.Fuzz(func(t *testing.T, subject, key, value, device, id string) {
		const bad = "\r\n\x00"
		if CheckSubject(subject) == nil && (len(subject) > MaxSubject || bytes.ContainsAny([]byte(subject), bad+" \t*>")) {
			t.Fatalf("subject %q", subject)
		}
		if CheckHeaders([]Pair{{key, value}}) == nil && bytes.ContainsAny([]byte(key+value), bad) {
			t.Fatalf("header %q: %q", key, value)
		}
		if CheckDevice(device) == nil && bytes.ContainsAny([]byte(device), bad+" .*>$") {
			t.Fatalf("device %q", device)
		}
		if CheckID(id) == nil && bytes.ContainsAny([]byte(id), bad) {
			t.Fatalf("id %q", id)
		}
	})
}
