package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxRanges bounds a received set on the wire and in the ledger.
const MaxRanges = 64

// Range is the sequences First to Last, both included.
type Range struct{ First, Last uint64 }

// Len is the number of sequences in the range.
func (r Range) Len() uint64 { return r.Last - r.First + 1 }

func (r Range) String() string {
	return strconv.FormatUint(r.First, 10) + "-" + strconv.FormatUint(r.Last, 10)
}

// Ranges is a set of sequences: sorted, disjoint, never touching. The zero
// value is the empty set. Sets are immutable: operations return a new one.
type Ranges []Range

// Add returns the union of the set and r.
func (s Ranges) Add(r Range) Ranges {
	i := 0
	for i < len(s) && s[i].Last != ^uint64(0) && s[i].Last+1 < r.First {
		i++
	}
	j := i
	for j < len(s) && (r.Last == ^uint64(0) || s[j].First <= r.Last+1) {
		r.First, r.Last = min(r.First, s[j].First), max(r.Last, s[j].Last)
		j++
	}
	out := make(Ranges, 0, len(s)-(j-i)+1)
	out = append(append(out, s[:i]...), r)
	return append(out, s[j:]...)
}

// Union returns the sequences that are in either set.
func (s Ranges) Union(t Ranges) Ranges {
	for _, r := range t {
		s = s.Add(r)
	}
	return s
}

// Contains reports whether every sequence of r is in the set.
func (s Ranges) Contains(r Range) bool {
	i := s.search(r.First)
	return i < len(s) && s[i].First <= r.First && r.Last <= s[i].Last
}

// Overlaps reports whether any sequence of r is in the set.
func (s Ranges) Overlaps(r Range) bool {
	i := s.search(r.First)
	return i < len(s) && s[i].First <= r.Last
}

// Missing returns what of r is not in the set.
func (s Ranges) Missing(r Range) Ranges {
	var out Ranges
	for i := s.search(r.First); i < len(s) && s[i].First <= r.Last; i++ {
		if r.First < s[i].First {
			out = append(out, Range{r.First, s[i].First - 1})
		}
		if s[i].Last >= r.Last {
			return out
		}
		r.First = s[i].Last + 1
	}
	return append(out, r)
}

// search returns the index of the first range that ends at or after seq.
func (s Ranges) search(seq uint64) int {
	i, _ := slices.BinarySearchFunc(s, seq, func(r Range, seq uint64) int {
		switch {
		case r.Last < seq:
			return -1
		case r.Last == seq:
			return 0
		}
		return 1
	})
	return i
}

// Len is the number of sequences in the set.
func (s Ranges) Len() (n uint64) {
	for _, r := range s {
		n += r.Len()
	}
	return n
}

// String prints the set as ParseRanges reads it: "1-10,15-20".
func (s Ranges) String() string {
	var b strings.Builder
	for i, r := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(r.String())
	}
	return b.String()
}

// ParseRanges reads what String prints and refuses anything else.
func ParseRanges(text string) (Ranges, error) {
	if text == "" {
		return nil, nil
	}
	var out Ranges
	for part := range strings.SplitSeq(text, ",") {
		if len(out) == MaxRanges {
			return nil, fmt.Errorf("ranges: more than %d", MaxRanges)
		}
		a, b, ok := strings.Cut(part, "-")
		first, err1 := strconv.ParseUint(a, 10, 64)
		last, err2 := strconv.ParseUint(b, 10, 64)
		if !ok || err1 != nil || err2 != nil || first == 0 || last < first || (Range{first, last}).String() != part {
			return nil, fmt.Errorf("ranges: %q is not first-last", part)
		}
		if n := len(out); n > 0 && (out[n-1].Last == ^uint64(0) || first <= out[n-1].Last+1) {
			return nil, fmt.Errorf("ranges: %q does not follow %s", part, out[n-1])
		}
		out = append(out, Range{first, last})
	}
	return out, nil
}

// MarshalText makes a set readable in JSON: "1-10,15-20".
func (s Ranges) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (s *Ranges) UnmarshalText(b []byte) (err error) {
	*s, err = ParseRanges(string(b))
	return err
}
