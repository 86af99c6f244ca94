package wire

import (
	"errors"
	"fmt"
)

// Version is the block format this code writes (FORMAT.md).
const Version = 1

// Limits of a block. A decoder refuses anything beyond them before it allocates.
const (
	MaxCount    = 65_536    // messages in a block
	MaxSubjects = 65_536    // entries of a subject dictionary
	MaxDict     = 4 << 20   // bytes of all subjects of a dictionary, written out; likewise of all header sets, of all ids
	MaxPairs    = 1 << 18   // headers in all header sets of a block
	MaxRaw      = 17 << 20  // uncompressed body: one message of 8 MiB, doubled for safety, and its columns
	MaxSeq      = 1<<63 - 1 // highest sequence, so that seq+1 never wraps
)

// Limits of a message's times. Beyond them RFC 3339 has no way to write a time.
const (
	MinTime = -62_135_596_800_000 // 0001-01-01T00:00:00Z in Unix milliseconds
	MaxTime = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
	MaxTTL  = 9_223_372_036_854   // milliseconds that fit a time.Duration, about 292 years
)

var (
	// ErrVersion means that the data was written by a newer Fieldpost; it is not corruption.
	ErrVersion = errors.New("wire: unknown version")
	// ErrCorrupt means that the data is not what was written.
	ErrCorrupt = errors.New("wire: corrupt")
	// ErrLimit means that the data asks for more than the limits of this version.
	ErrLimit = errors.New("wire: limit exceeded")
)

// FormatError says what is wrong and where. It wraps ErrVersion, ErrCorrupt or
// ErrLimit.
type FormatError struct {
	Err    error
	Part   string // "header", "body", "frame" …
	Offset int    // bytes from the start of the part
	Detail string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%v: %s at byte %d: %s", e.Err, e.Part, e.Offset, e.Detail)
}

// Unwrap returns the sentinel.
func (e *FormatError) Unwrap() error { return e.Err }

// Kind says what a block carries.
type Kind uint8

// The kinds of block.
const (
	KindMessages Kind = 1 + iota // messages, compressed
	KindVoid                     // no body: the range will never come
)

// Header is what can be known of a block without decompressing its body.
type Header struct {
	Flow
	Kind     Kind
	Reason   Reason // KindVoid only
	Base     uint64 // the first sequence of the flow, ≤ First
	First    uint64 // sequence of the first message, ≥ 1
	Count    uint64 // sequences covered; of messages ≤ MaxCount
	Accepted int64  // Unix milliseconds when the first message was accepted
	RawSize  int    // uncompressed body
	Blanked  bool   // some message is blank; known without decompressing
	Subjects []string
}

// Last is the sequence of the last message.
func (h *Header) Last() uint64 { return h.First + h.Count - 1 }

// Range is the sequences that the block covers.
func (h *Header) Range() Range { return Range{h.First, h.Last()} }

// Block is a decoded block.
type Block struct {
	Header
	Messages []Message
}

// check reports why h breaks the rules that hold for both kinds. It is what
// encoder and decoder share, so that nothing is written that cannot be read.
func (h *Header) check() error {
	switch {
	case h.Epoch.IsZero():
		return errors.New("the epoch is zero")
	case !h.Lane.Valid():
		return fmt.Errorf("%s does not exist", h.Lane)
	case h.Base < 1:
		return errors.New("base is 0; sequences begin at 1")
	case h.First < h.Base:
		return fmt.Errorf("first sequence %d lies before base %d", h.First, h.Base)
	case h.Count < 1:
		return errors.New("count is 0")
	case h.First > MaxSeq || h.Count-1 > MaxSeq-h.First:
		return fmt.Errorf("%d sequences from %d pass the highest sequence", h.Count, h.First)
	case h.Accepted < MinTime || h.Accepted > MaxTime:
		return fmt.Errorf("accepted at %d ms is not a time of the years 1 to 9999", h.Accepted)
	}
	return nil
}
