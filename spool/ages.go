package spool

import "slices"

// maxAges bounds the memory of ages, per flow and segment.
const maxAges = 32

// ages tells when messages of a part were accepted: exactly of the newest block,
// ever more coarsely of those before, so that a message looks older than it is by
// a share of its age at most.
type ages []age

type age struct {
	first    uint64 // of a block
	accepted int64
}

// note adds the next block. When there is no more room, the one between first and
// last goes whose loss is the smallest share of an age.
func (a *ages) note(first uint64, accepted int64) {
	s := *a
	if len(s) == maxAges {
		least, share := 1, 2.0
		for i := 1; i < len(s)-1; i++ {
			before := s[i-1].accepted
			if loss := float64(s[i+1].accepted-before) / float64(accepted-before+1); loss < share {
				least, share = i, loss
			}
		}
		s = slices.Delete(s, least, least+1)
	}
	*a = append(s, age{first, accepted})
}

// of returns when the block of seq was accepted, or one before it; otherwise if
// nothing is known.
func (a ages) of(seq uint64, otherwise int64) int64 {
	for i := len(a) - 1; i >= 0; i-- {
		if a[i].first <= seq {
			return a[i].accepted
		}
	}
	return otherwise
}
