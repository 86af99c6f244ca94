package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Limits of a session's binary messages.
const (
	MaxToken    = 128 // bytes of a session token
	MaxAckFlows = 64  // flows in one ack
	maxCode     = 32  // bytes of a SessionError's code
	maxDetail   = 512
)

// Bits of a frame's first byte above its type.
const (
	frameType     = 0x1f
	frameBackfill = 0x40
	frameLazy     = 0x80
)

// AppendFrame encodes f.
func AppendFrame(dst []byte, f Frame) []byte {
	start := len(dst)
	kind := byte(f.Type)
	if f.Backfill {
		kind |= frameBackfill
	}
	if f.Lazy {
		kind |= frameLazy
	}
	dst = append(dst, kind)
	dst = appendUvarint(dst, f.Counter)
	dst = binary.LittleEndian.AppendUint32(dst, frameCheck(f.Session, dst[start:], f.Body))
	return append(dst, f.Body...)
}

// frameCheck covers the session, which does not travel, and the whole frame.
func frameCheck(s SessionID, head, body []byte) uint32 {
	sum := crc32.Update(0, castagnoli, s[:])
	return crc32.Update(crc32.Update(sum, castagnoli, head), castagnoli, body)
}

// ParseFrame decodes a frame of an agent; Of tells whose it is. A block in the
// body is not looked into.
func ParseFrame(data []byte) (Frame, error) {
	c := cursor{b: data, part: "frame"}
	var f Frame
	kind := c.u8()
	f.Type, f.Backfill, f.Lazy = FrameType(kind&frameType), kind&frameBackfill != 0, kind&frameLazy != 0
	carries := f.Type == FrameBlock || f.Type == FrameStream || f.Type == FrameChunk
	switch {
	case c.err != nil:
	case f.Type == 0 || f.Type >= FrameAck:
		c.fail(ErrCorrupt, "type %d is not an agent's", f.Type)
	case f.Type > FrameChunk || kind&^(frameType|frameBackfill|frameLazy) != 0 || !carries && kind&^frameType != 0:
		c.fail(ErrVersion, "type %#x", kind)
	}
	f.Counter = c.uvarint()
	if c.err == nil && f.Counter == 0 {
		c.fail(ErrCorrupt, "the counter is 0; it begins at 1")
	}
	f.head = data[:len(data)-c.rest()]
	if check := c.bytes(4); c.err == nil {
		f.check = binary.LittleEndian.Uint32(check)
		f.Body = c.bytes(c.rest())
		if why := f.checkBody(); why != "" {
			c.fail(ErrCorrupt, "%s", why)
		}
	}
	if c.err != nil {
		return Frame{}, c.err
	}
	return f, nil
}

// Of reports whether a decoded frame is, unharmed, one of session s.
func (f *Frame) Of(s SessionID) bool { return frameCheck(s, f.head, f.Body) == f.check }

// checkBody says what is wrong with the body, as far as the type alone tells.
func (f *Frame) checkBody() string {
	n := len(f.Body)
	switch {
	case (f.Type == FramePing || f.Type == FrameBye) && n > 0:
		return fmt.Sprintf("type %d has no body; %d bytes follow", f.Type, n)
	case (f.Type == FrameBlock || f.Type == FrameStream || f.Type == FrameChunk) && n == 0:
		return "a block frame without a block"
	case f.Type == FrameConfirm && !dotted(string(f.Body), MaxToken):
		return fmt.Sprintf("a token of %d bytes is not 1 to %d of A-Z a-z 0-9 . _ -", n, MaxToken)
	case f.Type == FrameDrained && (n != epochSize || Epoch(f.Body).IsZero()):
		return fmt.Sprintf("%d bytes are not the epoch that is drained", n)
	}
	return ""
}
