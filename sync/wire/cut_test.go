package wire

import (
	"bytes"
	"reflect"
	"testing"
)

func TestCut(t *testing.T) {
	e, d := NewEncoder(Fast), NewDecoder()
	in := block(100, full()...)
	in.Base = 42
	data := encode(t, Fast, in)
	n := uint64(len(in.Messages))
	for first := range n {
		for last := first; last < n; last++ {
			r := Range{100 + first, 100 + last}
			out, err := Cut(d, e, data, r)
			if err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			b, err := NewDecoder().Decode(out, false)
			if err != nil {
				t.Fatalf("%v: %v", r, err)
			}
			if b.Range() != r || b.Base != 42 || b.Accepted != in.Accepted || b.Flow != in.Flow {
				t.Errorf("%v: header %+v", r, b.Header)
			}
			if diff := differ(b.Messages, in.Messages[first:last+1]); diff != "" {
				t.Errorf("%v: %s", r, diff)
			}
		}
	}
	whole, err := Cut(d, e, data, in.Header.rangeOf(n))
	if err != nil || !bytes.Equal(whole, data) || &whole[0] == &data[0] {
		t.Errorf("the whole block was not copied: %v", err)
	}
	for _, r := range []Range{{99, 101}, {100, 108}, {108, 108}, {103, 102}, {0, 0}} {
		if out, err := Cut(d, e, data, r); err == nil {
			t.Errorf("%v: cut to %d bytes", r, len(out))
		}
	}
	if _, err := Cut(d, e, data[:len(data)-1], Range{100, 101}); err == nil {
		t.Error("a damaged block was cut")
	}
}

// rangeOf is the range of n messages from h.First.
func (h *Header) rangeOf(n uint64) Range { return Range{h.First, h.First + n - 1} }

func TestCutVoid(t *testing.T) {
	in := Header{Flow: flow1, Kind: KindVoid, Reason: ReasonMaxAge, Base: 2, First: 5, Count: 1 << 40, Accepted: accepted1}
	data, err := AppendVoid(nil, in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Cut(NewDecoder(), NewEncoder(Fast), data, Range{7, 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	want := in
	want.First, want.Count = 7, 1<<30-6
	if h, err := ParseHeader(out); err != nil || !reflect.DeepEqual(h, want) {
		t.Errorf("%+v, %v, want %+v", h, err, want)
	}
}
