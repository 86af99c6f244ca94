// Package frame is the codec of the framed protocol that local programs speak
// with the agent (client/FRAMES.md).
//
// It guarantees that parsing never panics and never allocates more than the
// input is long, that every byte of a frame is accounted for, and that encoding
// what was parsed gives the same bytes.
//
// Reading order: frame.go (the envelope), publish.go (to the agent), answer.go
// (from it).
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Preface opens a connection; it tells the protocol from HTTP.
const Preface = "FPF1\n"

// Type is the first byte of a frame after its length.
type Type uint8

// Frames of a program (1–15) and of the agent (16–31).
const (
	TypePublish Type = 1
	TypeHello   Type = 16
	TypeReceipt Type = 17
	TypeError   Type = 18
)

// Head is the length of a frame before its body: the length of what follows
// it (4 bytes, little endian), then the type.
const Head = 5

var (
	// ErrMalformed means that the bytes are not what this protocol writes.
	ErrMalformed = errors.New("frame: malformed")
	// ErrTooLarge means that a frame is longer than the reader allows.
	ErrTooLarge = errors.New("frame: too large")
)

// Next splits the first frame off buf. need is 0 when there is a whole frame;
// else it is how many bytes of buf there must be, as far as is known, and
// nothing else is returned. limit bounds type and body together.
func Next(buf []byte, limit int) (t Type, body, rest []byte, need int, err error) {
	if len(buf) < Head {
		return 0, nil, nil, Head, nil
	}
	n := binary.LittleEndian.Uint32(buf)
	if n == 0 {
		return 0, nil, nil, 0, fmt.Errorf("%w: a frame of no bytes", ErrMalformed)
	}
	if uint64(n) > uint64(limit) {
		return 0, nil, nil, 0, fmt.Errorf("%w: %d bytes; the limit is %d", ErrTooLarge, n, limit)
	}
	if end := 4 + int(n); len(buf) >= end {
		return Type(buf[4]), buf[Head:end:end], buf[end:], 0, nil
	} else {
		return 0, nil, nil, end, nil
	}
}

// begin appends a frame's head; end fills in the length of what follows.
func begin(dst []byte, t Type) ([]byte, int) {
	return append(dst, 0, 0, 0, 0, byte(t)), len(dst)
}

func end(dst []byte, start int) []byte {
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

func appendBytes[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// reader takes a body apart. The first fault sticks.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// uvarint refuses encodings that are longer than need be.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad = true
		r.b = nil
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) err(what string) error {
	if r.bad {
		return fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	return nil
}
