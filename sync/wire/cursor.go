package wire

import (
	"encoding/binary"
	"fmt"
)

// cursor reads one part of a block or frame. The first failure sticks: every
// later read returns zero, so that callers check err once per column.
type cursor struct {
	b    []byte
	off  int
	part string
	err  error
}

// fail records the first error and ends all reading.
func (c *cursor) fail(kind error, format string, args ...any) {
	if c.err == nil {
		c.err = &FormatError{Err: kind, Part: c.part, Offset: c.off, Detail: fmt.Sprintf(format, args...)}
	}
	c.off = len(c.b)
}

func (c *cursor) rest() int { return len(c.b) - c.off }

// uvarint reads an unsigned LEB128 number in its shortest form.
func (c *cursor) uvarint() uint64 {
	if c.off < len(c.b) && c.b[c.off] < 0x80 {
		v := c.b[c.off]
		c.off++
		return uint64(v)
	}
	return c.longUvarint()
}

func (c *cursor) longUvarint() uint64 {
	v, n := binary.Uvarint(c.b[c.off:])
	switch {
	case n == 0:
		c.fail(ErrCorrupt, "a number is cut off")
		return 0
	case n < 0:
		c.fail(ErrCorrupt, "a number has more than 64 bits")
		return 0
	case n > 1 && c.b[c.off+n-1] == 0:
		c.fail(ErrCorrupt, "a number is not in its shortest form")
		return 0
	}
	c.off += n
	return v
}

// varint reads a zigzag number.
func (c *cursor) varint() int64 {
	return unzigzag(c.uvarint())
}

// upTo reads a number that must not exceed limit.
func (c *cursor) upTo(limit int, what string) int {
	return c.within(c.uvarint(), limit, what)
}

// within is v, which must not exceed limit.
func (c *cursor) within(v uint64, limit int, what string) int {
	if v > uint64(limit) {
		c.fail(ErrLimit, "%s is %d; the limit is %d", what, v, limit)
		return 0
	}
	return int(v)
}

// u8 reads one byte.
func (c *cursor) u8() byte {
	if c.off >= len(c.b) {
		c.fail(ErrCorrupt, "one more byte is needed")
		return 0
	}
	v := c.b[c.off]
	c.off++
	return v
}

// bytes returns the next n bytes, which alias the input.
func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > c.rest() {
		c.fail(ErrCorrupt, "%d bytes are needed, %d are left", n, c.rest())
		return nil
	}
	v := c.b[c.off : c.off+n : c.off+n]
	c.off += n
	return v
}

// need reports whether at least n bytes are left: the check of a count before
// anything is allocated for it.
func (c *cursor) need(n int, what string) bool {
	if c.err == nil && n > c.rest() {
		c.fail(ErrCorrupt, "%d %s do not fit into the %d bytes left", n, what, c.rest())
	}
	return c.err == nil
}

func appendUvarint(dst []byte, v uint64) []byte {
	if v < 0x80 {
		return append(dst, byte(v))
	}
	return binary.AppendUvarint(dst, v)
}

func appendVarint(dst []byte, v int64) []byte {
	return appendUvarint(dst, zigzag(v))
}

// zigzag maps 0, −1, 1, −2 … to 0, 1, 2, 3 ….
func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// shared is the length of the common prefix.
func shared(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
