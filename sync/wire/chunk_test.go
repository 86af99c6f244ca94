package wire

import (
	"bytes"
	"errors"
	"testing"
)

func TestChunk(t *testing.T) {
	for _, c := range []Chunk{
		{0, false, 0, []byte("x")}, {5, false, MaxBlock - 1, []byte("x")},
		{0, true, 0, []byte("x")}, {3, true, 300, bytes.Repeat([]byte("ab"), 500)},
	} {
		body := AppendChunk(nil, c)
		if len(body) > ChunkHead+len(c.Data) {
			t.Errorf("the head takes %d bytes", len(body)-len(c.Data))
		}
		frame, err := ParseFrame(AppendFrame(nil, Frame{Type: FrameChunk, Counter: 7, Body: body, Backfill: true}))
		if err != nil || frame.Type != FrameChunk || !frame.Backfill {
			t.Fatalf("%+v, %v", frame, err)
		}
		got, err := ParseChunk(frame.Body)
		if err != nil || got.Slot != c.Slot || got.First != c.First || got.Left != c.Left || !bytes.Equal(got.Data, c.Data) {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestBadChunks(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		want error
	}{
		"nothing":            {nil, ErrCorrupt},
		"no length":          {[]byte{1}, ErrCorrupt},
		"no data":            {[]byte{1, 5}, ErrCorrupt},
		"a slot too many":    {[]byte{MaxSlots, 5, 1}, ErrCorrupt},
		"and it begins":      {[]byte{MaxSlots | 0x80, 5, 1}, ErrCorrupt},
		"an unknown bit":     {[]byte{1 | 0x40, 5, 1}, ErrCorrupt},
		"a long number":      {[]byte{1, 0x80, 0, 1}, ErrCorrupt},
		"too large":          {AppendChunk(nil, Chunk{1, true, MaxBlock, []byte("x")}), ErrLimit},
		"far too large":      {AppendChunk(nil, Chunk{1, false, 1<<64 - 1, []byte("x")}), ErrLimit},
		"too large together": {AppendChunk(nil, Chunk{1, true, MaxBlock - 1, []byte("xy")}), ErrLimit},
	} {
		if got, err := ParseChunk(c.body); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestPartialBegins(t *testing.T) {
	block := []byte("a block of some bytes")
	p := Partial{Slot: 1, Bytes: 7, Size: len(block), CRC: UpdateCRC(UpdateCRC(0, block[:3]), block[3:7])}
	if !p.Begins(block) {
		t.Error("it does not begin the block that it is of")
	}
	other := bytes.Clone(block)
	other[6] ^= 1
	if p.Begins(other) || p.Begins(block[:len(block)-1]) {
		t.Error("it begins another block")
	}
}
