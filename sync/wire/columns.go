package wire

// A body begins with one byte that says which columns follow; a column whose
// entries all have the default is left out. The order is that of the bits.
// Columns marked "live" have no entry for blank messages.
const (
	colFlags    = 1 << iota // a byte a message: flagUnsynced, reason << reasonShift
	colTimes                // byte planes of zigzag ms, to Accepted and then to the message before; default 0
	colTTLs                 // uvarint ms; default 0
	colSubjects             // live: byte planes of the dictionary index; default: one subject
	colHeaders              // live: dictionary of header sets, then 0 none, else 1 + its index
	colIDs                  // live: publisher ids, front-coded against the one before
	colLengths              // live, grouped by subject: zigzag difference of payload lengths; default: one length for all
	knownCols   = 1<<iota - 1
)

const (
	flagUnsynced = 1 << 0
	reasonShift  = 1
)

// idWidth is the number of byte planes of a column of subject ids, k subjects.
func idWidth(k int) int {
	if k <= 1<<8 {
		return 1
	}
	return 2
}
