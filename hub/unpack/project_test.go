package unpack

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, subject string
		want             bool
	}{
		{">", "a", true}, {">", "a.b.c", true}, {"a.>", "a.b", true}, {"a.>", "a", false}, {"a.>", "b.c", false},
		{"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.*.c", "a.b.c", true}, {"*", "a", true}, {"*", "a.b", false},
		{"a", "a", true}, {"a", "ab", false}, {"a.b", "a", false}, {"*.>", "a", false}, {"*.>", "a.b", true},
	} {
		if got := match(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("%q %q: %v", tt.pattern, tt.subject, got)
		}
	}
}

var testFlow = wire.Flow{Epoch: wire.Epoch{1, 2, 3}, Lane: wire.Urgent}

func testBlock(msgs ...wire.Message) *wire.Block {
	b := &wire.Block{Header: wire.Header{Flow: testFlow, Kind: wire.KindMessages, Base: 1, First: 10, Count: uint64(len(msgs))}, Messages: msgs}
	for _, m := range msgs {
		b.Subjects = append(b.Subjects, m.Subject)
	}
	return b
}

func TestProjection(t *testing.T) {
	b := testBlock(
		wire.Message{Subject: "a.b", Payload: []byte("one"), Time: 1_700_000_000_007, ID: "id1", Unsynced: true},
		wire.Message{Blank: wire.ReasonTTL},
		wire.Message{Subject: "other.x", Payload: []byte("no")},
		wire.Message{Subject: "a.c", Time: -1, Headers: []wire.Pair{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}}},
	)
	tables := Tables{{From: 0, Table: Table{{Match: "other.>", Stream: "X", Prefix: "x"}, {Match: ">", Stream: "EDGE", Prefix: "edge"}}}}
	outs, err := NewProjector("EDGE", tables).Project(nil, 77, wire.BlockSubject("dev", testFlow), b)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	var s slot // the same place for all, as in a batch that follows another
	for i := range outs {
		m := s.fill(&outs[i], testFlow.Epoch.String(), testFlow.Lane)
		if want := outs[i].Message(testFlow); !reflect.DeepEqual(m, want) {
			t.Errorf("a used slot differs:\n got %v\nwant %v", m, want)
		}
		got = append(got, fmt.Sprintf("%s %q %v", m.Subject, m.Data, m.Header))
	}
	want := []string{
		`edge.dev.a.b "one" map[Fieldpost-Block:[77/0] Fieldpost-Clock:[unsynced] Fieldpost-Epoch:[0102030000000000] Fieldpost-Id:[id1] Fieldpost-Lane:[urgent] Fieldpost-Seq:[10] Fieldpost-Time:[2023-11-14T22:13:20.007Z]]`,
		`edge.dev.a.c "" map[Fieldpost-Block:[77/3] Fieldpost-Epoch:[0102030000000000] Fieldpost-Lane:[urgent] Fieldpost-Seq:[13] Fieldpost-Time:[1969-12-31T23:59:59.999Z] k:[1 2]]`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
	if _, err := NewProjector("EDGE", tables).Project(nil, 77, "fp.blocks.dev.0102030000000000.normal", b); !errors.Is(err, wire.ErrCorrupt) {
		t.Errorf("a block under another flow's subject: %v", err)
	}
}

func TestLargeMessagesBecomeParts(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789"), PartBytes/4)
	b := testBlock(wire.Message{Subject: "a", Payload: payload}, wire.Message{Subject: "a", Payload: payload[:PartBytes]})
	tables := Tables{{Table: Table{{Match: ">", Stream: "EDGE", Prefix: "edge"}}}}
	outs, err := NewProjector("EDGE", tables).Project(nil, 1, wire.BlockSubject("dev", testFlow), b)
	if err != nil || len(outs) != 4 {
		t.Fatalf("%d messages, %v", len(outs), err)
	}
	var whole []byte
	for i := range 3 {
		m := outs[i].Message(testFlow)
		if got, want := m.Header.Get(HdrPart), fmt.Sprintf("%d/3", i+1); got != want || m.Header.Get(HdrSeq) != "10" {
			t.Errorf("part %q, seq %q; want %q", got, m.Header.Get(HdrSeq), want)
		}
		whole = append(whole, m.Data...)
	}
	if !bytes.Equal(whole, payload) {
		t.Error("the parts are not the payload")
	}
	if m := outs[3].Message(testFlow); m.Header.Get(HdrPart) != "" || len(m.Data) != PartBytes {
		t.Errorf("a message of the limit's size: %v", m.Header)
	}
}

func TestTablesHoldFromTheirSequence(t *testing.T) {
	old, young := Table{{Match: ">", Stream: "OLD", Prefix: "old"}}, Table{{Match: ">", Stream: "NEW", Prefix: "new"}}
	tables := Tables{{From: 0, Table: old}, {From: 10, Table: young}}
	b := testBlock(wire.Message{Subject: "a"})
	for seq, want := range map[uint64]int{1: 0, 9: 0, 10: 1, 11: 1} {
		outs, err := NewProjector("NEW", tables).Project(nil, seq, wire.BlockSubject("dev", testFlow), b)
		if err != nil || len(outs) != want {
			t.Errorf("block %d: %d messages, %v; want %d", seq, len(outs), err, want)
		}
	}
}

// Wherever a writer stops, another resumes at the same message.
func TestResumeByCounting(t *testing.T) {
	tables := Tables{{Table: Table{{Match: "a", Stream: "EDGE", Prefix: "edge"}, {Match: ">", Stream: "X", Prefix: "x"}}}}
	blocks := map[uint64][]Out{}
	var all []string
	for seq := uint64(3); seq < 12; seq++ {
		var msgs []wire.Message
		for i := range int(seq) % 4 {
			msgs = append(msgs, wire.Message{Subject: [...]string{"a", "b"}[i%2]})
		}
		b := testBlock(msgs...)
		b.First = seq * 100
		outs, err := NewProjector("EDGE", tables).Project(nil, seq, wire.BlockSubject("dev", testFlow), b)
		if err != nil {
			t.Fatal(err)
		}
		blocks[seq] = outs
		for _, o := range outs {
			all = append(all, o.block)
		}
	}
	const base = 1000 // what the stream held before
	for stored := range len(all) + 1 {
		for at := range stored + 1 { // the checkpoint says: at messages
			cp := Checkpoint{Position: Position{Block: 3}, StreamSeq: base + uint64(at)}
			for left := at; left > 0; {
				if n := len(blocks[cp.Block]); left >= n {
					left -= n
					cp.Position = Position{Block: cp.Block + 1}
				} else {
					cp.Index, left = uint64(left), 0
				}
			}
			skip, err := cp.Resume(base + uint64(stored))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			pos := cp.Position
			for seq := pos.Block; seq < 12; seq++ {
				for _, o := range Cut(&pos, &skip, seq, blocks[seq]) {
					got = append(got, o.block)
				}
			}
			if want := all[stored:]; len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("stored %d, checkpoint %+v: resumes with %q, want %q", stored, cp, got, want)
			}
		}
	}
	if _, err := (Checkpoint{StreamSeq: 5}).Resume(4); !errors.Is(err, ErrRewound) {
		t.Errorf("rewound: %v", err)
	}
}

// While a resume still skips, nothing is known of the stream at the place that
// is read.
func TestFactsWaitForTheSkip(t *testing.T) {
	old := Checkpoint{Incarnation: "i", Position: Position{Block: 5}, StreamSeq: 10}
	p := &pump{w: &worker{}, from: start{Checkpoint: old, skip: 7, last: 17}, fact: old, read: old.Position}
	p.begin(chunk{seq: 5, left: 3})
	if p.fact != old {
		t.Errorf("after the first block: %+v, want %+v", p.fact, old)
	}
	p.begin(chunk{seq: 6, left: 0, from: 3, outs: make([]Out, 2)})
	if want := (Checkpoint{Incarnation: "i", Position: Position{Block: 6, Index: 3}, StreamSeq: 17}); p.fact != want {
		t.Errorf("at the end of the skip: %+v, want %+v", p.fact, want)
	}
}
