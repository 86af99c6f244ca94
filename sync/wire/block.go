package wire

import "errors"

// Version is the block format this code writes (FORMAT.md).
const Version = 1

// Limits of a block. A decoder refuses anything beyond them before it allocates.
const (
	MaxCount    = 65_536   // messages in a block
	MaxSubjects = 65_536   // entries of a subject dictionary
	MaxRaw      = 17 << 20 // uncompressed body: one message of 8 MiB, doubled for safety, and its columns
)

var (
	// ErrVersion means that the data was written by a newer Fieldpost; it is not corruption.
	ErrVersion = errors.New("wire: unknown version")
	// ErrCorrupt means that the data is not what was written.
	ErrCorrupt = errors.New("wire: corrupt")
	// ErrLimit means that the data asks for more than the limits of this version.
	ErrLimit = errors.New("wire: limit exceeded")
)

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

// Encoder turns messages into blocks. It is not safe for concurrent use; it
// holds about 2 MB.
type Encoder struct{}

// Level chooses the encoder's effort.
type Level uint8

// Levels: Fast for the publish path, Better for what is re-encoded for a slow link.
const (
	Fast Level = iota
	Better
)

// NewEncoder returns an encoder of the given level.
func NewEncoder(l Level) *Encoder { panic("wire: encoder") }

// Append encodes b (Kind, Flow, Base, First, Accepted and Messages; the rest of
// the header is computed) and appends it to dst.
func (e *Encoder) Append(dst []byte, b *Block) ([]byte, error) { panic("wire: append") }

// AppendVoid appends the void block for h (Flow, Base, First, Count, Accepted, Reason).
func AppendVoid(dst []byte, h Header) ([]byte, error) { panic("wire: append void") }

// ParseHeader checks the version, every limit and the checksums of header and
// body (the stored bytes; nothing is decompressed).
func ParseHeader(data []byte) (Header, error) { panic("wire: header") }

// Decoder turns blocks into messages. It is not safe for concurrent use.
type Decoder struct{}

// NewDecoder returns a decoder whose memory is bounded by MaxRaw.
func NewDecoder() *Decoder { panic("wire: decoder") }

// Decode decodes a block. The messages alias memory that the next call reuses
// unless keep is set.
func (d *Decoder) Decode(data []byte, keep bool) (*Block, error) { panic("wire: decode") }
