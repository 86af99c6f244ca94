package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var flow1 = Flow{Epoch{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}, Normal}

const accepted1 = 1_767_225_600_000 // 2026-01-01T00:00:00Z

// block returns a block of ms, accepted at the time of the first.
func block(first uint64, ms ...Message) *Block {
	h := Header{Flow: flow1, Kind: KindMessages, Base: 1, First: first, Accepted: accepted1}
	if len(ms) > 0 {
		h.Accepted = ms[0].Time
	}
	return &Block{Header: h, Messages: ms}
}

func msg(subject, payload string) Message {
	return Message{Subject: subject, Payload: []byte(payload), Time: accepted1}
}

// full is one message of every sort.
func full() []Message {
	return []Message{
		{Subject: "a.b", Payload: []byte("one"), Time: accepted1 + 5, ID: "id-1", TTL: 60_000},
		{Blank: ReasonTTL, Time: accepted1 + 6, TTL: 1},
		{Subject: "a.c", Payload: []byte{}, Time: accepted1 - 9, Headers: []Pair{{"Trace", "7"}, {"trace", ""}}},
		{Subject: "a.b", Payload: []byte("three"), Time: MaxTime, Unsynced: true, ID: "id-12"},
		{Subject: "a", Payload: []byte("four"), Time: MinTime, Headers: []Pair{{"Trace", "7"}, {"trace", ""}}},
		{Blank: ReasonPurge, Unsynced: true, Time: 0},
		{Subject: "a.é", Payload: bytes.Repeat([]byte("five "), 400), Time: -1, TTL: MaxTTL, Headers: []Pair{{"X", "y"}}},
		{Subject: "a.c", Payload: []byte("six"), Time: 1, ID: "other"},
	}
}

// differ says where two lists of messages differ; nil and empty slices are alike.
func differ(got, want []Message) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		same := bytes.Equal(g.Payload, w.Payload) && slices.Equal(g.Headers, w.Headers)
		g.Payload, w.Payload, g.Headers, w.Headers = nil, nil, nil, nil
		if !same || !reflect.DeepEqual(g, w) {
			return fmt.Sprintf("message %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
	return ""
}

func encode(t testing.TB, l Level, b *Block) []byte {
	t.Helper()
	data, err := NewEncoder(l).Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestBlockOfEverySort(t *testing.T) {
	for _, l := range []Level{Fast, Better, Plain} {
		in := block(40, full()...)
		in.Base, in.Lane = 7, Urgent
		data := encode(t, l, in)
		h, err := ParseHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		want := in.Header
		want.Count, want.RawSize, want.Subjects = 8, h.RawSize, []string{"a", "a.b", "a.c", "a.é"}
		if !reflect.DeepEqual(h, want) {
			t.Errorf("header %+v, want %+v", h, want)
		}
		if h.Last() != 47 || h.Range() != (Range{40, 47}) {
			t.Errorf("range %v", h.Range())
		}
		b, err := NewDecoder().Decode(data, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := differ(b.Messages, in.Messages); diff != "" {
			t.Error(diff)
		}
		if !reflect.DeepEqual(b.Header, h) {
			t.Errorf("Decode's header %+v, ParseHeader's %+v", b.Header, h)
		}
	}
}

func TestBlockOnlyOfBlanks(t *testing.T) {
	in := []Message{{Blank: ReasonMaxAge, Time: accepted1}, {Blank: ReasonDropOldest, Time: accepted1}}
	b, err := NewDecoder().Decode(encode(t, Fast, block(1, in...)), false)
	if err != nil {
		t.Fatal(err)
	}
	if diff := differ(b.Messages, in); diff != "" {
		t.Error(diff)
	}
}

func TestVoid(t *testing.T) {
	for _, count := range []uint64{1, 1000, MaxSeq - 4} {
		in := Header{Flow: Flow{flow1.Epoch, Bulk}, Kind: KindVoid, Reason: ReasonHubRewound, Base: 2, First: 5, Count: count, Accepted: accepted1}
		data, err := AppendVoid([]byte("before"), in)
		if err != nil {
			t.Fatal(err)
		}
		data = data[len("before"):]
		h, err := ParseHeader(data)
		if err != nil || !reflect.DeepEqual(h, in) {
			t.Errorf("%+v, %v, want %+v", h, err, in)
		}
		b, err := NewDecoder().Decode(data, false)
		if err != nil || !reflect.DeepEqual(b.Header, in) || b.Messages != nil {
			t.Errorf("%+v, %v", b, err)
		}
		same, err := NewEncoder(Fast).Append(nil, &Block{Header: in})
		if err != nil || !bytes.Equal(same, data) {
			t.Errorf("Append of a void differs: %x, %v", same, err)
		}
	}
}

// TestOverhead holds what a block costs beyond its content.
func TestOverhead(t *testing.T) {
	lone := block(1_000_000, msg("plant.line.sensor", strings.Repeat("\xf3", 1)+string(noise(199))))
	if got := len(encode(t, Fast, lone)) - 200 - len("plant.line.sensor"); got > 45 {
		t.Errorf("a lone message costs %d bytes beyond subject and payload, want at most 45", got)
	}
	many := make([]Message, 500)
	for i := range many {
		many[i] = msg("s", "constant")
		many[i].Payload = noise(8)
	}
	if got := len(encode(t, Plain, block(1, many...))) - 500*8; got > 45 {
		t.Errorf("500 messages with every default cost %d bytes beyond their payloads, want at most 45", got)
	}
}

// noise returns n bytes that do not compress, the same at every call with one n.
func noise(n int) []byte {
	out, x := make([]byte, n), uint32(n)*2654435761+1
	for i := range out {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out[i] = byte(x >> 8)
	}
	return out
}

func TestStoredWhereZstdDoesNotShrink(t *testing.T) {
	for n, stored := range map[int]bool{1: true, 200: true, 100_000: true} {
		data := encode(t, Fast, block(1, msg("s", string(noise(n)))))
		_, info, _, err := parseHeader(data)
		if err != nil || (info.flags&flagZstd == 0) != stored {
			t.Errorf("%d bytes of noise: flags %#x, %v", n, info.flags, err)
		}
	}
	data := encode(t, Fast, block(1, msg("s", strings.Repeat("text ", 100))))
	if _, info, _, _ := parseHeader(data); info.flags&flagZstd == 0 {
		t.Error("text was not compressed")
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := func() *Block { return block(10, msg("a", "x"), msg("b", "y")) }
	for name, spoil := range map[string]func(b *Block){
		"kind 0":             func(b *Block) { b.Kind = 0 },
		"kind 3":             func(b *Block) { b.Kind = 3 },
		"zero epoch":         func(b *Block) { b.Epoch = Epoch{} },
		"lane 3":             func(b *Block) { b.Lane = 3 },
		"base 0":             func(b *Block) { b.Base = 0 },
		"first before base":  func(b *Block) { b.Base = 11 },
		"no messages":        func(b *Block) { b.Messages = nil },
		"overflow":           func(b *Block) { b.First = MaxSeq },
		"beyond the highest": func(b *Block) { b.First = MaxSeq + 5 },
		"accepted too late":  func(b *Block) { b.Accepted = MaxTime + 1 },
		"accepted too early": func(b *Block) { b.Accepted = math.MinInt64 },
		"time too late":      func(b *Block) { b.Messages[1].Time = MaxTime + 1 },
		"time too early":     func(b *Block) { b.Messages[1].Time = MinTime - 1 },
		"negative ttl":       func(b *Block) { b.Messages[1].TTL = -1 },
		"endless ttl":        func(b *Block) { b.Messages[1].TTL = MaxTTL + 1 },
		"unknown reason":     func(b *Block) { b.Messages[1] = Message{Blank: numReasons} },
		"blank with payload": func(b *Block) { b.Messages[1].Blank = ReasonTTL },
		"blank with header":  func(b *Block) { b.Messages[1] = Message{Blank: ReasonTTL, Headers: []Pair{{}}} },
		"wildcard":           func(b *Block) { b.Messages[1].Subject = "a.*" },
		"no subject":         func(b *Block) { b.Messages[1].Subject = "" },
		"reserved header":    func(b *Block) { b.Messages[1].Headers = []Pair{{"nAts-x", "1"}} },
		"reserved header 2":  func(b *Block) { b.Messages[1].Headers = []Pair{{"FIELDPOST-SEQ", "1"}} },
		"id with line break": func(b *Block) { b.Messages[1].ID = "a\nb" },
		"id too long":        func(b *Block) { b.Messages[1].ID = strings.Repeat("x", MaxID+1) },
		"void: no reason":    func(b *Block) { b.Kind, b.Count = KindVoid, 1 },
		"void: no count":     func(b *Block) { b.Kind, b.Reason = KindVoid, ReasonTTL },
		"void: overflow":     func(b *Block) { b.Kind, b.Reason, b.Count = KindVoid, ReasonTTL, math.MaxUint64 },
	} {
		e := NewEncoder(Plain)
		b := good()
		spoil(b)
		if out, err := e.Append([]byte("dst"), b); err == nil || string(out) != "dst" {
			t.Errorf("%s: %v, dst %q", name, err, out)
		}
		// A refused block leaves nothing behind.
		data, err := e.Append(nil, block(1, msg("b", "y"), msg("a", "x")))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := NewDecoder().Decode(data, false); err != nil || b.Messages[0].Subject != "b" {
			t.Errorf("%s: the next block is %v, %v", name, b, err)
		}
	}
}

func TestEncodeLimits(t *testing.T) {
	e := NewEncoder(Plain)
	many := slices.Repeat([]Message{msg("a", "")}, MaxCount+1)
	distinct := make([]Message, MaxDict/200+1)
	headers := slices.Clone(distinct)
	ids := slices.Clone(distinct)
	for i := range distinct {
		distinct[i] = msg(fmt.Sprintf("s.%0198d", i), "")
		headers[i] = msg("s", "")
		headers[i].Headers = []Pair{{"K", fmt.Sprintf("%0200d", i)}}
		ids[i] = msg("s", "")
		ids[i].ID = fmt.Sprintf("%0200d", i)
	}
	pairs := make([]Message, MaxPairs/1000+1)
	for i := range pairs {
		pairs[i] = msg("s", "")
		pairs[i].Headers = append(slices.Repeat([]Pair{{"a", "b"}}, 999), Pair{"n", fmt.Sprint(i)})
	}
	for name, ms := range map[string][]Message{
		"count": many, "dictionary": distinct, "headers": headers, "ids": ids, "pairs": pairs,
		"payloads": slices.Repeat([]Message{msg("a", string(make([]byte, 1<<20)))}, 18),
	} {
		if _, err := e.Append(nil, block(1, ms...)); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: %v, want ErrLimit", name, err)
		}
	}
	if data, err := e.Append(nil, block(1, many[1:]...)); err != nil {
		t.Errorf("%d messages: %v", MaxCount, err)
	} else if b, err := NewDecoder().Decode(data, false); err != nil || len(b.Messages) != MaxCount {
		t.Errorf("%d messages decode as %v, %v", MaxCount, b, err)
	}
}

// TestKeep: what was kept survives the next call, and nothing aliases the input.
func TestKeep(t *testing.T) {
	d := NewDecoder()
	for _, l := range []Level{Plain, Fast} {
		first := encode(t, l, block(1, full()...))
		kept, err := d.Decode(first, true)
		if err != nil {
			t.Fatal(err)
		}
		clear(first)
		other := slices.Repeat([]Message{{Subject: "z", Payload: []byte("ZZZZZZZZ"), Time: 1}}, 300)
		if _, err := d.Decode(encode(t, l, block(1, other...)), false); err != nil {
			t.Fatal(err)
		}
		if diff := differ(kept.Messages, full()); diff != "" {
			t.Error(diff)
		}
	}
}

// drawMessage draws from small sets, so that dictionaries and runs occur.
func drawMessage(t *rapid.T) Message {
	m := Message{Time: accepted1 + rapid.Int64Range(-3, 1<<rapid.IntRange(0, 40).Draw(t, "spread")).Draw(t, "dt")}
	m.Unsynced = rapid.IntRange(0, 9).Draw(t, "unsynced") == 0
	m.TTL = rapid.SampledFrom([]int64{0, 0, 0, 1, 60_000, MaxTTL}).Draw(t, "ttl")
	if rapid.IntRange(0, 9).Draw(t, "blank") == 0 {
		m.Blank = rapid.SampledFrom(Reasons()).Draw(t, "reason")
		return m
	}
	m.Subject = rapid.StringMatching(`[ab]{1,2}(\.[cd]{1,3}){0,2}`).Draw(t, "subject")
	m.Payload = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
	if rapid.IntRange(0, 3).Draw(t, "headers") == 0 {
		m.Headers = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Pair {
			return Pair{rapid.StringMatching(`[xy]{1,2}`).Draw(t, "key"), rapid.StringMatching(`[0-9]{0,2}`).Draw(t, "value")}
		}), 0, 3).Draw(t, "pairs")
	}
	if rapid.IntRange(0, 2).Draw(t, "id") == 0 {
		m.ID = rapid.StringMatching(`id-[0-9]{1,3}`).Draw(t, "id")
	}
	return m
}

func TestRoundTripProperty(t *testing.T) {
	encoders := []*Encoder{NewEncoder(Fast), NewEncoder(Better), NewEncoder(Plain)}
	d := NewDecoder()
	rapid.Check(t, func(t *rapid.T) {
		in := block(rapid.Uint64Range(1, MaxSeq-600).Draw(t, "first"), rapid.SliceOfN(rapid.Custom(drawMessage), 1, 60).Draw(t, "messages")...)
		in.Base = rapid.Uint64Range(1, in.First).Draw(t, "base")
		for _, e := range encoders {
			data, err := e.Append(nil, in)
			if err != nil {
				t.Fatal(err)
			}
			out, err := d.Decode(data, false)
			if err != nil {
				t.Fatal(err)
			}
			if diff := differ(out.Messages, in.Messages); diff != "" {
				t.Fatal(diff)
			}
			if out.Base != in.Base || out.First != in.First || out.Accepted != in.Accepted || out.Count != uint64(len(in.Messages)) {
				t.Fatalf("header %+v, want %+v", out.Header, in.Header)
			}
		}
	})
}
