package wire

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"pgregory.net/rapid"
	"reflect"
	"testing"
)

// sameStream sends blocks through one stream and compares both ends.
func sameStream(t interface {
	Helper()
	Fatalf(string, ...any)
}, blocks ...*Block) (frames [][]byte) {
	t.Helper()
	e, d := NewStreamEncoder(), NewStreamDecoder()
	for i, b := range blocks {
		frame, err := e.Append(nil, b)
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		got, err := d.Decode(frame)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		data, err := NewEncoder(Plain).Append(nil, b)
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		want, err := ParseHeader(data)
		if err != nil {
			t.Fatalf("block %d: %v", i, err)
		}
		want.RawSize = 0
		if !reflect.DeepEqual(got.Header, want) {
			t.Fatalf("frame %d: header %+v, want %+v", i, got.Header, want)
		}
		if diff := differ(got.Messages, b.Messages); diff != "" {
			t.Fatalf("frame %d: %s", i, diff)
		}
		frames = append(frames, frame)
	}
	return frames
}

// streamBlocks are blocks of every sort, of two flows.
func streamBlocks() []*Block {
	other := block(9, full()...)
	other.Lane, other.Base, other.Accepted, other.Blanked = Bulk, 3, accepted1+77, true
	next := block(9, full()...)
	return []*Block{block(1, full()...), next, other, block(17, msg("a.b", "x")), block(40, full()...)}
}

func TestStreamOfEverySort(t *testing.T) {
	frames := sameStream(t, streamBlocks()...)
	if len(frames[1]) >= len(frames[0]) {
		t.Errorf("the same messages take %d bytes, then %d", len(frames[0]), len(frames[1]))
	}
}

func TestStreamOfRandomBlocks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []*Block
		first := uint64(1)
		for range rapid.IntRange(1, 12).Draw(t, "blocks") {
			ms := rapid.SliceOfN(rapid.SampledFrom(full()), 1, 20).Draw(t, "messages")
			b := block(first, ms...)
			b.Lane = Lane(rapid.IntRange(0, 2).Draw(t, "lane"))
			b.Epoch[7] = byte(rapid.IntRange(1, 20).Draw(t, "epoch"))
			b.Accepted = rapid.Int64Range(MinTime, MaxTime).Draw(t, "accepted")
			first += rapid.Uint64Range(1, 30).Draw(t, "ahead")
			blocks = append(blocks, b)
		}
		sameStream(t, blocks...)
	})
}

// TestStreamFrameIsNeverEmpty: what is foretold as a whole still takes a byte.
func TestStreamFrameIsNeverEmpty(t *testing.T) {
	blocks := make([]*Block, 400)
	for i := range blocks {
		blocks[i] = block(uint64(i+1), msg("a.b", "the same"))
	}
	frames := sameStream(t, blocks...)
	for i, f := range frames {
		if len(f) == 0 || i > 100 && len(f) > 2 {
			t.Fatalf("frame %d has %d bytes", i, len(f))
		}
	}
}

// TestStreamForgetsNoSubject passes the number of subjects that a session remembers.
func TestStreamForgetsNoSubject(t *testing.T) {
	var ms []Message
	for i := range streamSubjects + 50 {
		ms = append(ms, msg("s."+string(rune('a'+i%26))+"."+string(rune(0x4e00+i)), "p"))
	}
	sameStream(t, block(1, ms...), block(uint64(len(ms)+1), ms...))
}

func TestStreamRefusalChangesNothing(t *testing.T) {
	e, d := NewStreamEncoder(), NewStreamDecoder()
	bad := map[string]*Block{
		"subject": block(1, msg("a.b", "x"), msg("a.*", "x")),
		"id":      block(1, Message{Subject: "n", ID: " ", Time: accepted1}),
		"header":  block(1, Message{Subject: "n", Headers: []Pair{{"Nats-X", ""}}, Time: accepted1}),
		"size":    block(1, Message{Subject: "n", Payload: make([]byte, MaxStreamRaw), Time: accepted1}),
		"none":    block(1),
		"void":    {Header: Header{Flow: flow1, Kind: KindVoid, Base: 1, First: 1, Count: 1}},
	}
	for i, good := range streamBlocks() {
		for name, b := range bad {
			if out, err := e.Append([]byte("x"), b); err == nil || string(out) != "x" {
				t.Errorf("%s: %q, %v", name, out, err)
			}
		}
		frame, err := e.Append(nil, good)
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Decode(frame)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if diff := differ(b.Messages, good.Messages); diff != "" {
			t.Errorf("frame %d: %s", i, diff)
		}
	}
}

// field is a part of a frame as a hostile sender writes it.
type field struct {
	kind  uint32
	bytes []byte
}

func modelled(fields ...field) []byte {
	m := newStreamModel()
	m.start(nil, false)
	for _, f := range fields {
		if m.begin(f.kind); f.kind == fieldPayload {
			m.beginPayload(0)
		}
		for _, b := range f.bytes {
			m.code(b)
		}
	}
	return m.finish()
}

func TestStreamHostile(t *testing.T) {
	begin := []field{{fieldHead, []byte{headFlowNew, 0}}, {fieldFlow, []byte{1, 1, 2, 3, 4, 5, 6, 7, 8, 1}}}
	with := func(row ...field) []byte { return modelled(append(begin[:2:2], row...)...) }
	head := func(bytes ...byte) []byte { return modelled(field{fieldHead, bytes}) }
	at := field{fieldTime, []byte{0}}
	newRow, extraRow := field{fieldControl, []byte{refNew << 1}}, field{fieldControl, []byte{refNew<<1 | 1}}
	subject := field{fieldSubject, []byte{1, 'a'}}
	for name, c := range map[string]struct {
		body []byte
		want error
	}{
		"empty":           {nil, ErrVersion},
		"noise":           {[]byte("\xff\xff\xff\xff\xff"), ErrCorrupt},
		"cut off":         {sameStream(t, block(1, msg("a", "a rather long payload")))[0][:12], ErrCorrupt},
		"too long":        {append(sameStream(t, block(1, msg("a", "b")))[0], 0, 0, 0, 0, 0), ErrCorrupt},
		"bomb":            {with(newRow, at, subject, field{fieldLength, appendVarint(nil, MaxStreamRaw)}), ErrLimit},
		"head":            {head(0x80, 0), ErrVersion},
		"many":            {head(headFlowNew, 0x80, 0x80, 0x04), ErrLimit},
		"no flow":         {head(0, 0), ErrCorrupt},
		"flow":            {modelled(field{fieldHead, []byte{headFlowKnown, 0}}, field{fieldFlow, []byte{9}}), ErrCorrupt},
		"unknown subject": {with(field{fieldControl, []byte{0}}, at), ErrCorrupt},
		"subject number":  {with(field{fieldControl, []byte{20}}, at), ErrCorrupt},
		"wildcard":        {with(newRow, at, field{fieldSubject, []byte{1, '*'}}), ErrCorrupt},
		"extras":          {with(extraRow, field{fieldExtras, []byte{0x80}}), ErrVersion},
		"negative length": {with(newRow, at, subject, field{fieldLength, []byte{1}}), ErrCorrupt},
		"no set before":   {with(extraRow, field{fieldExtras, []byte{rowSameSet}}, at, subject), ErrCorrupt},
		"id shares":       {with(extraRow, field{fieldExtras, []byte{rowID}}, at, subject, field{fieldID, []byte{5, 0}}), ErrCorrupt},
		"blank reason":    {with(field{fieldControl, []byte{1}}, field{fieldExtras, []byte{rowBlank}}, at, field{fieldReason, []byte{99}}), ErrVersion},
	} {
		d := NewStreamDecoder()
		_, err := d.Decode(c.body)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, again := d.Decode(sameStream(t, block(1, msg("a", "b")))[0]); again != err {
			t.Errorf("%s: after the error %v, want it again", name, again)
		}
	}
}

// readings are blocks of a few sensors, longer together than the model's window.
func readings() (out []*Block) {
	noise := uint32(1)
	for i := range 500 {
		noise = noise*1664525 + 1013904223
		m := msg(fmt.Sprintf("line%d.temp", noise>>28), fmt.Sprintf(`{"seq":%d,"value":%d.%d,"unit":"C","battery":3.%d}`, i, 20+noise>>30, noise>>20&1023, noise>>27&7))
		m.Time += int64(1000*i) + int64(noise>>24)
		out = append(out, block(uint64(i+1), m))
	}
	return out
}

// TestStreamGolden reads what this version wrote once, and writes it again.
func TestStreamGolden(t *testing.T) {
	for name, blocks := range map[string][]*Block{"session": streamBlocks(), "readings": readings()} {
		var out []byte
		for _, f := range sameStream(t, blocks...) {
			out = append(appendUvarint(out, uint64(len(f))), f...)
		}
		path := "testdata/" + name + ".fps"
		if _, err := os.Stat(path); os.IsNotExist(err) && *writeGolden {
			if err := os.WriteFile(path, out, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, out) {
			t.Errorf("%s is written otherwise now: a new version of the stream needs a name and a golden of its own", name)
		}
		c, d := &cursor{b: data}, NewStreamDecoder()
		for i, want := range blocks {
			b, err := d.Decode(c.bytes(int(c.uvarint())))
			if err != nil || b.Flow != want.Flow || b.First != want.First || b.Accepted != want.Accepted {
				t.Fatalf("%s, frame %d: %+v, %v", name, i, b, err)
			}
			if diff := differ(b.Messages, want.Messages); diff != "" {
				t.Errorf("%s, frame %d: %s", name, i, diff)
			}
		}
		if c.err != nil || c.rest() > 0 {
			t.Errorf("%s: %d bytes left, %v", name, c.rest(), c.err)
		}
	}
}

func FuzzStreamDecode(f *testing.F) {
	for _, b := range streamBlocks() {
		frame, err := NewStreamEncoder().Append(nil, b)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := NewStreamDecoder()
		for range 2 {
			b, err := d.Decode(body)
			if err != nil {
				return
			}
			// What fits a frame barely may not fit one that begins a session.
			if err := checkStream(&b.Header, b.Messages, nil); err == nil {
				sameStream(t, b)
			} else if !errors.Is(err, ErrLimit) {
				t.Fatal(err)
			}
		}
	})
}
