package spool

import (
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// goneRange is sequences that will never come.
type goneRange struct {
	wire.Range
	// reason is zero for a mixture: some of it was removed, some delivered, and
	// what is known no longer, as the hub has all of it.
	reason wire.Reason
	// sent numbers the void of this range that was handed out; 0: none was. What
	// the hub turns out to have without having had a void of it is the content,
	// which was on its way when it was removed.
	sent uint64
}

// inBlock stands for what was handed out as a void or blank of a block.
const inBlock = 1 << 63

func (g goneRange) like(o goneRange) bool { return g.reason == o.reason && g.sent == o.sent }

// contentIn returns what of g the hub has as content, given all that it has: all
// of that, if no void was handed out, or if it has only a part: it stores a void
// as a whole or not at all.
func (g goneRange) contentIn(received wire.Ranges) wire.Ranges {
	if g.reason == 0 || g.sent == inBlock || !received.Overlaps(g.Range) {
		return nil
	}
	has := subtract(wire.Ranges{g.Range}, received.Missing(g.Range))
	if g.sent != 0 && has.Len() == g.Len() {
		return nil
	}
	return has
}

// next is the number of the next void.
func (s goneSet) next() (n uint64) {
	for _, g := range s {
		if g.sent != inBlock {
			n = max(n, g.sent)
		}
	}
	return n + 1
}

// goneSet is sorted and disjoint; neighbours that are alike are one. A set is
// never changed: operations return a new one.
type goneSet []goneRange

// maxGone bounds what is remembered of a flow once the hub has it.
const maxGone = 256

// search returns the index of the first range that ends at or after seq.
func (s goneSet) search(seq uint64) int {
	i, _ := slices.BinarySearchFunc(s, seq, func(g goneRange, seq uint64) int {
		switch {
		case g.Last < seq:
			return -1
		case g.Last == seq:
			return 0
		}
		return 1
	})
	return i
}

// at returns the first range that ends at or after seq and has a reason.
func (s goneSet) at(seq uint64) (g goneRange, ok bool) {
	for i := s.search(seq); i < len(s); i++ {
		if s[i].reason != 0 {
			return s[i], true
		}
	}
	return g, false
}

// holds returns the range that seq is in.
func (s goneSet) holds(seq uint64) (g goneRange, ok bool) {
	if i := s.search(seq); i < len(s) && s[i].First <= seq {
		return s[i], true
	}
	return g, false
}

// missing returns what of r is not in the set.
func (s goneSet) missing(r wire.Range) (out wire.Ranges) {
	for i := s.search(r.First); i < len(s) && s[i].First <= r.Last; i++ {
		if r.First < s[i].First {
			out = append(out, wire.Range{First: r.First, Last: s[i].First - 1})
		}
		if s[i].Last >= r.Last {
			return out
		}
		r.First = s[i].Last + 1
	}
	return append(out, r)
}

// around returns the part of r around seq of which nothing is in the set; ok is
// false if seq is.
func (s goneSet) around(seq uint64, r wire.Range) (piece wire.Range, ok bool) {
	for _, g := range s.within(r) {
		switch {
		case g.Last < seq:
			r.First = g.Last + 1
		case g.First > seq:
			return wire.Range{First: r.First, Last: g.First - 1}, true
		default:
			return r, false
		}
	}
	return r, true
}

// within returns the parts of the set that lie in r.
func (s goneSet) within(r wire.Range) (out goneSet) {
	for i := s.search(r.First); i < len(s) && s[i].First <= r.Last; i++ {
		g := s[i]
		g.First, g.Last = max(g.First, r.First), min(g.Last, r.Last)
		out = append(out, g)
	}
	return out
}

// put replaces whatever the set has of g's range by g.
func (s goneSet) put(g goneRange) goneSet {
	out := s.without(g.Range)
	i := out.search(g.First)
	return slices.Insert(out, i, g).merged()
}

// without takes r out.
func (s goneSet) without(r wire.Range) goneSet {
	out := make(goneSet, 0, len(s)+2)
	for _, g := range s {
		if g.Last < r.First || g.First > r.Last {
			out = append(out, g)
			continue
		}
		if g.First < r.First {
			left := g
			left.Last = r.First - 1
			out = append(out, left)
		}
		if g.Last > r.Last {
			g.First = r.Last + 1
			out = append(out, g)
		}
	}
	return out
}

// merged joins neighbours that are alike; s is the caller's own.
func (s goneSet) merged() goneSet {
	out := s[:0]
	for _, g := range s {
		if n := len(out); n > 0 && out[n-1].Last+1 == g.First && out[n-1].like(g) {
			out[n-1].Last = g.Last
			continue
		}
		out = append(out, g)
	}
	return out
}

// brief forgets reasons, the oldest first, until the set is no longer than
// maxGone: where the hub has everything anyway.
func (s goneSet) brief(received wire.Ranges) goneSet {
	for i := 0; len(s) > maxGone && i+1 < len(s); {
		both := wire.Range{First: s[i].First, Last: s[i+1].Last}
		if !received.Contains(both) {
			i++
			continue
		}
		s = s.put(goneRange{Range: both})
	}
	return s
}
