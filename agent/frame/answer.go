package frame

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// Hello is the agent's first frame, as JSON, so that it can grow.
type Hello struct {
	Version    string `json:"version"`
	Device     string `json:"device"`
	MaxPayload int64  `json:"max_payload"`
	MaxFrame   int    `json:"max_frame"` // type and body together
}

// AppendHello encodes h as a whole frame.
func AppendHello(dst []byte, h Hello) []byte {
	b, err := json.Marshal(h)
	if err != nil {
		panic("frame: " + err.Error()) // strings and numbers marshal
	}
	dst, start := begin(dst, TypeHello)
	return end(append(dst, b...), start)
}

// ParseHello parses the body of a hello frame. Unknown keys are for newer clients.
func ParseHello(body []byte) (h Hello, err error) {
	if err := json.Unmarshal(body, &h); err != nil {
		return h, fmt.Errorf("%w: hello: %v", ErrMalformed, err)
	}
	return h, nil
}

// Flags of a receipt.
const (
	flagDuplicate = 1 << 0
	flagInMemory  = 1 << 1
	flagAtHub     = 1 << 2
)

// Receipt answers Count publishes from number First on. Unless Memory is set,
// they have consecutive sequences from Seq on.
type Receipt struct {
	First, Count uint64
	Duplicate    bool // the id was accepted before; Seq is that of the first copy
	Memory       bool // accepted, not durable; no epoch, no sequence
	Hub          bool // durable at the hub
	Lane         uint8
	Epoch        [8]byte
	Seq          uint64
}

// AppendReceipt encodes x as a whole frame.
func AppendReceipt(dst []byte, x Receipt) []byte {
	dst, start := begin(dst, TypeReceipt)
	var flags byte
	if x.Duplicate {
		flags |= flagDuplicate
	}
	if x.Memory {
		flags |= flagInMemory
	}
	if x.Hub {
		flags |= flagAtHub
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, x.First)
	dst = binary.AppendUvarint(dst, x.Count)
	dst = append(dst, x.Lane)
	if !x.Memory {
		dst = append(dst, x.Epoch[:]...)
		dst = binary.AppendUvarint(dst, x.Seq)
	}
	return end(dst, start)
}

// ParseReceipt parses the body of a receipt frame.
func ParseReceipt(body []byte) (x Receipt, err error) {
	r := reader{b: body}
	flags := r.byte()
	x.First, x.Count, x.Lane = r.uvarint(), r.uvarint(), r.byte()
	x.Duplicate, x.Memory, x.Hub = flags&flagDuplicate != 0, flags&flagInMemory != 0, flags&flagAtHub != 0
	if !x.Memory {
		copy(x.Epoch[:], r.take(8))
		x.Seq = r.uvarint()
	}
	if r.bad || len(r.b) > 0 || flags > 7 || x.First == 0 || x.Count == 0 || x.First+x.Count < x.First {
		return Receipt{}, fmt.Errorf("%w: receipt", ErrMalformed)
	}
	return x, nil
}

// Error refuses Count publishes from number First on. Count 0 is the end of the
// connection: nothing from First on was taken in.
type Error struct {
	First, Count uint64
	Code         string // as in the HTTP API
	Retry        uint64 // seconds after which a retry may help; 0: unknown
	Detail       string // what to do, for a person
}

// AppendError encodes x as a whole frame.
func AppendError(dst []byte, x Error) []byte {
	dst, start := begin(dst, TypeError)
	dst = binary.AppendUvarint(dst, x.First)
	dst = binary.AppendUvarint(dst, x.Count)
	dst = appendBytes(dst, x.Code)
	dst = binary.AppendUvarint(dst, x.Retry)
	return end(append(dst, x.Detail...), start)
}

// ParseError parses the body of an error frame.
func ParseError(body []byte) (x Error, err error) {
	r := reader{b: body}
	x.First, x.Count = r.uvarint(), r.uvarint()
	x.Code = string(r.bytes())
	x.Retry = r.uvarint()
	x.Detail = string(r.b)
	if r.bad || x.First == 0 || x.First+x.Count < x.First {
		return Error{}, fmt.Errorf("%w: error", ErrMalformed)
	}
	return x, nil
}
