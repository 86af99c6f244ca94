package wire

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// hexBlocks returns the bytes of every fenced block of a page that is marked
// hex; what follows a semicolon is a comment.
func hexBlocks(t *testing.T, page string) (out [][]byte) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	inside := false
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case line == "```hex":
			inside = true
			digits.Reset()
		case line == "```" && inside:
			inside = false
			data, err := hex.DecodeString(digits.String())
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			out = append(out, data)
		case inside:
			line, _, _ = strings.Cut(line, ";")
			digits.WriteString(strings.ReplaceAll(line, " ", ""))
		}
	}
	return out
}

// TestFormatExample holds FORMAT.md to what the code does, both ways.
func TestFormatExample(t *testing.T) {
	b := block(7, msg("a.hum", "55"), msg("a.temp", "21.5"), msg("a.hum", "56"))
	b.Base = 5
	b.Messages[1].Time += 10
	b.Messages[1].Headers = []Pair{{"u", "C"}}
	b.Messages[2].Time += 250
	b.Messages[2].ID = "k7"
	void := &Block{Header: Header{Flow: flow1, Kind: KindVoid, Reason: ReasonTTL, Base: 5, First: 10, Count: 300, Accepted: accepted1}}
	examples := hexBlocks(t, "FORMAT.md")
	if len(examples) != 2 {
		t.Fatalf("%d examples, want 2", len(examples))
	}
	for i, want := range []*Block{b, void} {
		got, err := NewDecoder().Decode(examples[i], true)
		if err != nil {
			t.Errorf("example %d: %v", i+1, err)
			continue
		}
		if diff := differ(got.Messages, want.Messages); diff != "" || got.First != want.First || got.Base != want.Base || got.Range().Last != want.First+got.Count-1 {
			t.Errorf("example %d: %+v, want %+v: %s", i+1, got, want, diff)
		}
		if data := encode(t, Plain, want); !bytes.Equal(data, examples[i]) {
			t.Errorf("example %d: encoded as\n%x, the page says\n%x", i+1, data, examples[i])
		}
	}
}

// TestProtocolExample holds PROTOCOL.md to what the code does.
func TestProtocolExample(t *testing.T) {
	examples := hexBlocks(t, "PROTOCOL.md")
	want := [][]byte{
		AppendFrame(nil, Frame{Type: FrameDrained, Session: session1, Counter: 300, Body: flow1.Epoch[:]}),
		AppendAck(nil, Ack{300, []FlowReceived{{flow1, Ranges{{1, 500}, {502, 502}}}}}),
		AppendEnd(nil, SessionError{CodeGap, "frame 7 follows 5"}),
	}
	if len(examples) != len(want) {
		t.Fatalf("%d examples, want %d", len(examples), len(want))
	}
	for i := range want {
		if !bytes.Equal(examples[i], want[i]) {
			t.Errorf("example %d: encoded as\n%x, the page says\n%x", i+1, want[i], examples[i])
		}
	}
}
