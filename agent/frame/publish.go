package frame

import (
	"encoding/binary"
	"fmt"
)

// Flags of a publish frame, in the order in which their fields follow.
const (
	flagLane    = 1 << 0 // one byte
	flagID      = 1 << 1 // bytes
	flagTTL     = 1 << 2 // uvarint, milliseconds
	flagTime    = 1 << 3 // varint, Unix milliseconds
	flagHeaders = 1 << 4 // uvarint count > 0, then key and value of each as bytes
	flagMemory  = 1 << 5 // no field: answer before it is durable
	flagHub     = 1 << 6 // uvarint, milliseconds: answer when the hub has it, or after that time
)

// Fields are the parts of a publish that need no memory of their own.
type Fields struct {
	Lane    uint8 // valid if HasLane; else the agent's rules decide
	HasLane bool
	TTL     uint64 // milliseconds; 0: none
	Time    int64  // Unix milliseconds, valid if HasTime; else the time of acceptance
	HasTime bool
	Memory  bool
	Hub     uint64 // milliseconds to wait for the hub; 0: do not
	Payload []byte
}

// Publish is one message to encode.
type Publish struct {
	Fields
	Subject string
	ID      string // empty: none
	Headers []Pair
}

// View is one message as parsed. Its slices alias the frame.
type View struct {
	Fields
	Subject []byte
	ID      []byte // empty: none
	headers []byte // as on the wire, without the count
	nheader uint64
}

// Pair is one header.
type Pair struct{ Key, Value string }

// AppendPublish encodes p as a whole frame.
func AppendPublish(dst []byte, p *Publish) []byte {
	dst, start := begin(dst, TypePublish)
	at := len(dst)
	dst = append(dst, 0)
	var flags byte
	dst = appendBytes(dst, p.Subject)
	if p.HasLane {
		flags |= flagLane
		dst = append(dst, p.Lane)
	}
	if len(p.ID) > 0 {
		flags |= flagID
		dst = appendBytes(dst, p.ID)
	}
	if p.TTL > 0 {
		flags |= flagTTL
		dst = binary.AppendUvarint(dst, p.TTL)
	}
	if p.HasTime {
		flags |= flagTime
		dst = binary.AppendVarint(dst, p.Time)
	}
	if len(p.Headers) > 0 {
		flags |= flagHeaders
		dst = binary.AppendUvarint(dst, uint64(len(p.Headers)))
		for _, h := range p.Headers {
			dst = appendBytes(appendBytes(dst, h.Key), h.Value)
		}
	}
	if p.Memory {
		flags |= flagMemory
	}
	if p.Hub > 0 {
		flags |= flagHub
		dst = binary.AppendUvarint(dst, p.Hub)
	}
	dst[at] = flags
	return end(append(dst, p.Payload...), start)
}

// ParsePublish parses the body of a publish frame into p.
func ParsePublish(body []byte, p *View) error {
	*p = View{}
	r := reader{b: body}
	flags := r.byte()
	p.Subject = r.bytes()
	if flags&flagLane != 0 {
		p.Lane, p.HasLane = r.byte(), true
	}
	if flags&flagID != 0 {
		p.ID = r.bytes()
		r.bad = r.bad || len(p.ID) == 0
	}
	if flags&flagTTL != 0 {
		p.TTL = r.uvarint()
		r.bad = r.bad || p.TTL == 0
	}
	if flags&flagTime != 0 {
		p.Time, p.HasTime = r.varint(), true
	}
	if flags&flagHeaders != 0 {
		p.nheader = r.uvarint()
		r.bad = r.bad || p.nheader == 0 || p.nheader > uint64(len(r.b))
		all := r.b
		for i := uint64(0); i < p.nheader && !r.bad; i++ {
			r.bytes()
			r.bytes()
		}
		if !r.bad {
			p.headers = all[:len(all)-len(r.b)]
		}
	}
	p.Memory = flags&flagMemory != 0
	if flags&flagHub != 0 {
		p.Hub = r.uvarint()
		r.bad = r.bad || p.Hub == 0 || p.Memory
	}
	p.Payload = r.b
	if flags&0x80 != 0 {
		return fmt.Errorf("%w: publish: unknown flag", ErrMalformed)
	}
	return r.err("publish")
}

// HeaderBytes is the size of the encoded headers: check it before Headers
// allocates for them.
func (p *View) HeaderBytes() int { return len(p.headers) }

// Headers returns the headers, or nil.
func (p *View) Headers() []Pair {
	if p.nheader == 0 {
		return nil
	}
	r := reader{b: p.headers}
	out := make([]Pair, 0, p.nheader)
	for range p.nheader {
		out = append(out, Pair{string(r.bytes()), string(r.bytes())})
	}
	return out
}

// varint refuses encodings that are longer than need be.
func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}
