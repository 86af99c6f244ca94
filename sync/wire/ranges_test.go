package wire

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// model is a set of sequences in which every question is answered one by one.
type model map[uint64]bool

func (m model) add(r Range) {
	for s := r.First; s <= r.Last; s++ {
		m[s] = true
	}
}

// within returns the sequences of r of which m holds what has says.
func (m model) within(r Range, has bool) (out []uint64) {
	for s := r.First; s <= r.Last; s++ {
		if m[s] == has {
			out = append(out, s)
		}
	}
	return out
}

// listed writes a set out, and fails unless it is sorted, disjoint and never touching.
func listed(t *rapid.T, s Ranges) (out []uint64) {
	for i, r := range s {
		if r.First < 1 || r.Last < r.First || i > 0 && r.First <= s[i-1].Last+1 {
			t.Fatalf("%v is not a canonical set", s)
		}
		for q := r.First; q <= r.Last; q++ {
			out = append(out, q)
		}
	}
	return out
}

func drawRange(t *rapid.T, top uint64) Range {
	first := rapid.Uint64Range(1, top).Draw(t, "first")
	return Range{first, min(top, first+rapid.Uint64Range(0, top/3).Draw(t, "more"))}
}

func TestRangesProperty(t *testing.T) {
	const top = 60
	everything := Range{1, top}
	rapid.Check(t, func(t *rapid.T) {
		var s Ranges
		m := model{}
		for range rapid.IntRange(0, 12).Draw(t, "adds") {
			r := drawRange(t, top)
			before := slices.Clone(s)
			next := s.Add(r)
			if !slices.Equal(before, s) {
				t.Fatalf("Add changed its receiver %v to %v", before, s)
			}
			s = next
			m.add(r)
		}
		if got, want := listed(t, s), m.within(everything, true); !slices.Equal(got, want) {
			t.Fatalf("%v holds %v, want %v", s, got, want)
		}
		if s.Len() != uint64(len(m)) {
			t.Fatalf("%v has %d sequences, want %d", s, s.Len(), len(m))
		}
		r := drawRange(t, top)
		absent := m.within(r, false)
		if got := listed(t, s.Missing(r)); !slices.Equal(got, absent) {
			t.Fatalf("%v lacks %v of %v, want %v", s, got, r, absent)
		}
		if got, want := s.Contains(r), len(absent) == 0; got != want {
			t.Fatalf("%v contains %v: %t, want %t", s, r, got, want)
		}
		if got, want := s.Overlaps(r), uint64(len(absent)) < r.Len(); got != want {
			t.Fatalf("%v overlaps %v: %t, want %t", s, r, got, want)
		}
		if back, err := ParseRanges(s.String()); err != nil || !slices.Equal(back, s) {
			t.Fatalf("%q reads back as %v, %v", s, back, err)
		}
		other := Ranges{}.Add(drawRange(t, top)).Add(drawRange(t, top))
		union := s.Union(other)
		for _, r := range other {
			m.add(r)
		}
		if got, want := listed(t, union), m.within(everything, true); !slices.Equal(got, want) {
			t.Fatalf("the union of %v and %v is %v", s, other, union)
		}
	})
}

func TestRangesAtTheEnd(t *testing.T) {
	const top = math.MaxUint64
	s := Ranges{{1, 5}, {top - 1, top}}
	for _, r := range []Range{{top, top}, {top - 2, top}, {top - 2, top - 2}, {6, top}, {1, top}} {
		got := s.Add(r)
		if !got.Contains(r) || !got.Contains(Range{1, 5}) || !got.Contains(Range{top - 1, top}) {
			t.Errorf("%v and %v are %v", s, r, got)
		}
		if missing := got.Missing(r); missing != nil {
			t.Errorf("%v lacks %v of %v", got, missing, r)
		}
	}
	if got := s.Missing(Range{1, top}); got.String() != "6-18446744073709551613" {
		t.Errorf("missing %v", got)
	}
	var empty Ranges
	if empty.Contains(Range{1, 1}) || empty.Overlaps(Range{1, top}) || empty.Missing(Range{3, 4}).String() != "3-4" || empty.String() != "" || empty.Len() != 0 {
		t.Error("the empty set is not empty")
	}
}

func TestParseRanges(t *testing.T) {
	for _, good := range []string{"", "1-1", "1-10", "1-10,15-20", "2-18446744073709551615"} {
		if s, err := ParseRanges(good); err != nil || s.String() != good {
			t.Errorf("%q: %v, %v", good, s, err)
		}
	}
	for _, bad := range []string{
		"1", "-", "1-", "-1", "0-1", "2-1", "1-2,", ",1-2", "1-2,3-4", "1-5,4-9", "5-6,1-2", "1-2 ", " 1-2", "1-2, 5-6",
		"01-2", "1-02", "+1-2", "1-+2", "1_0-2_0", "a-b", "1-18446744073709551616", "1-18446744073709551615,5-6", "1--2",
	} {
		if s, err := ParseRanges(bad); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
	var s Ranges
	for i := range uint64(MaxRanges) {
		s = s.Add(Range{1 + 3*i, 2 + 3*i})
	}
	if _, err := ParseRanges(s.String()); err != nil {
		t.Error(err)
	}
	if _, err := ParseRanges(s.Add(Range{1000, 1001}).String()); err == nil {
		t.Errorf("more than %d ranges are accepted", MaxRanges)
	}
}
