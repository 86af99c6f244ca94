package wire

import "fmt"

// Limits of a session's binary messages.
const (
	MaxToken    = 128 // bytes of a session token
	MaxAckFlows = 64  // flows in one ack
	maxCode     = 32  // bytes of a SessionError's code
	maxDetail   = 512
)

// AppendFrame encodes f.
func AppendFrame(dst []byte, f Frame) []byte {
	dst = append(dst, byte(f.Type))
	dst = append(dst, f.Session[:]...)
	dst = appendUvarint(dst, f.Counter)
	return append(dst, f.Body...)
}

// ParseFrame decodes a frame of an agent. A block in the body is not looked into.
func ParseFrame(data []byte) (Frame, error) {
	c := cursor{b: data, part: "frame"}
	var f Frame
	f.Type = FrameType(c.u8())
	switch {
	case c.err != nil:
	case f.Type == 0 || f.Type >= FrameAck:
		c.fail(ErrCorrupt, "type %d is not an agent's", f.Type)
	case f.Type > FrameBye:
		c.fail(ErrVersion, "type %d", f.Type)
	}
	copy(f.Session[:], c.bytes(len(f.Session)))
	f.Counter = c.uvarint()
	if c.err == nil && f.Counter == 0 {
		c.fail(ErrCorrupt, "the counter is 0; it begins at 1")
	}
	if c.err == nil {
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

// checkBody says what is wrong with the body, as far as the type alone tells.
func (f *Frame) checkBody() string {
	n := len(f.Body)
	switch {
	case (f.Type == FramePing || f.Type == FrameBye) && n > 0:
		return fmt.Sprintf("type %d has no body; %d bytes follow", f.Type, n)
	case f.Type == FrameBlock && n == 0:
		return "a block frame without a block"
	case f.Type == FrameConfirm && !dotted(string(f.Body), MaxToken):
		return fmt.Sprintf("a token of %d bytes is not 1 to %d of A-Z a-z 0-9 . _ -", n, MaxToken)
	case f.Type == FrameDrained && (n != epochSize || Epoch(f.Body).IsZero()):
		return fmt.Sprintf("%d bytes are not the epoch that is drained", n)
	}
	return ""
}
