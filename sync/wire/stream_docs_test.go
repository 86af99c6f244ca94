package wire

import (
	"bytes"
	"testing"
)

// TestStreamExample holds STREAM.md to what the code does: the rows, and the
// frame that the model makes of them.
func TestStreamExample(t *testing.T) {
	b := block(7, msg("a.hum", "55"), msg("a.hum", "56"))
	b.Base = 5
	b.Messages[1].Time += 250
	b.Messages[1].ID = "k7"
	e := NewStreamEncoder()
	frame, err := e.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	examples := hexBlocks(t, "STREAM.md")
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for i, is := range [][]byte{e.raw, frame} {
		if !bytes.Equal(is, examples[i]) {
			t.Errorf("example %d: written as\n% x, the page says\n% x", i+1, is, examples[i])
		}
	}
	got, err := NewStreamDecoder().Decode(examples[1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(got.Messages, b.Messages); diff != "" || got.First != 7 || got.Base != 5 || got.Accepted != accepted1 {
		t.Errorf("%+v: %s", got, diff)
	}
}
