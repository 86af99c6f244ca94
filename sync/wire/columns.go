package wire

// A body begins with one byte that says which columns follow; a column whose
// entries all have the default is left out. The order is that of the bits.
// Columns marked "live" have no entry for blank messages.
const (
	colFlags    = 1 << iota // a byte a message: flagUnsynced, reason << reasonShift
	colTimes                // zigzag ms, to Accepted and then to the message before; default 0
	colTTLs                 // uvarint ms; default 0
	colSubjects             // live: 0 as predicted, else 1 + dictionary index
	colHeaders              // live: dictionary of header sets, then 0 none, else 1 + its index
	colIDs                  // live: publisher ids, front-coded against the one before
	colLengths              // live, grouped by subject: payload lengths; default: one length for all
	knownCols   = 1<<iota - 1
)

const (
	flagUnsynced = 1 << 0
	reasonShift  = 1
)

// successor predicts the subject of the next message: the one that followed the
// last time, at first the next of the dictionary. Devices that report their
// sensors in turn cost nothing this way, whatever the turn is.
type successor struct {
	next []uint32
	prev uint32
}

// reset prepares for a dictionary of k entries.
func (s *successor) reset(k int) {
	if cap(s.next) < k {
		s.next = make([]uint32, k)
	}
	s.next = s.next[:k]
	for i := range s.next {
		s.next[i] = uint32(i + 1)
	}
	if k > 0 {
		s.next[k-1] = 0
	}
	s.prev = uint32(k - 1)
}

// predict is the id expected next.
func (s *successor) predict() uint32 { return s.next[s.prev] }

// see learns the id that came.
func (s *successor) see(id uint32) {
	s.next[s.prev] = id
	s.prev = id
}
