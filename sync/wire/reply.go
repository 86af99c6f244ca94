package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// replyVersion is the second byte of acks and ends.
const replyVersion = 1

// AppendAck encodes a as a complete hub message. It takes the first MaxAckFlows
// flows and the first MaxRanges ranges of each: what is left out counts as not
// yet received, so the caller splits an ack with more flows.
func AppendAck(dst []byte, a Ack) []byte {
	flows := a.Flows[:min(len(a.Flows), MaxAckFlows)]
	dst = append(dst, byte(FrameAck), replyVersion)
	dst = appendUvarint(dst, a.Counter)
	dst = appendUvarint(dst, uint64(len(flows)))
	for _, f := range flows {
		dst = append(dst, f.Epoch[:]...)
		dst = append(dst, byte(f.Lane))
		dst = appendRanges(dst, f.Ranges[:min(len(f.Ranges), MaxRanges)])
	}
	return dst
}

// appendRanges writes each range as the distance from the one before and its
// length; both less what they are at least.
func appendRanges(dst []byte, s Ranges) []byte {
	dst = appendUvarint(dst, uint64(len(s)))
	least := uint64(1)
	for _, r := range s {
		dst = appendUvarint(dst, r.First-least)
		dst = appendUvarint(dst, r.Last-r.First)
		least = r.Last + 2
	}
	return dst
}

// AppendEnd encodes e as a complete hub message. Code and detail are cut to
// their limits.
func AppendEnd(dst []byte, e SessionError) []byte {
	dst = append(dst, byte(FrameEnd), replyVersion)
	dst = appendText(dst, e.Code, maxCode)
	return appendText(dst, e.Detail, maxDetail)
}

func appendText(dst []byte, s string, limit int) []byte {
	s = printableText(s, limit)
	dst = appendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// printableText makes s fit: what cannot be printed becomes a question mark,
// and it ends with the last whole character within limit.
func printableText(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// ParseReply decodes a hub message: exactly one of the results is set.
func ParseReply(data []byte) (*Ack, *SessionError, error) {
	c := cursor{b: data, part: "reply"}
	kind, version := FrameType(c.u8()), c.u8()
	switch {
	case c.err != nil:
	case kind < FrameAck || kind > 31:
		c.fail(ErrCorrupt, "type %d is not a hub's", kind)
	case kind > FrameEnd || version != replyVersion:
		c.fail(ErrVersion, "type %d, version %d", kind, version)
	case kind == FrameAck:
		if a := parseAck(&c); c.err == nil {
			return a, nil, nil
		}
	case kind == FrameEnd:
		e := &SessionError{Code: parseText(&c, maxCode), Detail: parseText(&c, maxDetail)}
		if c.err == nil && (e.Code == "" || c.rest() > 0) {
			c.fail(ErrCorrupt, "an end without a code, or with %d bytes after it", c.rest())
		}
		if c.err == nil {
			return nil, e, nil
		}
	}
	return nil, nil, c.err
}

func parseText(c *cursor, limit int) string {
	s := string(c.bytes(c.upTo(limit, "the length of a text")))
	if c.err == nil && !printable(s, limit) {
		c.fail(ErrCorrupt, "the text %q is not printable", s)
	}
	return s
}

// printable reports whether s is UTF-8 of printable characters and fits.
func printable(s string, limit int) bool {
	return len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func parseAck(c *cursor) *Ack {
	a := &Ack{Counter: c.uvarint()}
	n := c.upTo(MaxAckFlows, "the number of flows")
	if !c.need(n*(epochSize+2), "flows") {
		return nil
	}
	for range n {
		var f FlowReceived
		copy(f.Epoch[:], c.bytes(epochSize))
		f.Lane = Lane(c.u8())
		switch {
		case c.err != nil:
		case f.Epoch.IsZero() || !f.Lane.Valid():
			c.fail(ErrCorrupt, "flow %s does not exist", f.Flow)
		case a.has(f.Flow):
			c.fail(ErrCorrupt, "flow %s comes twice", f.Flow)
		}
		f.Ranges = parseRanges(c)
		if c.err != nil {
			return nil
		}
		a.Flows = append(a.Flows, f)
	}
	if c.rest() > 0 {
		c.fail(ErrCorrupt, "%d bytes after the last flow", c.rest())
	}
	return a
}

func (a *Ack) has(f Flow) bool {
	for i := range a.Flows {
		if a.Flows[i].Flow == f {
			return true
		}
	}
	return false
}

func parseRanges(c *cursor) Ranges {
	n := c.upTo(MaxRanges, "the number of ranges")
	if n == 0 || !c.need(2*n, "ranges") {
		return nil
	}
	out := make(Ranges, 0, n)
	least := uint64(1)
	for range n {
		gap, more := c.uvarint(), c.uvarint()
		if c.err == nil && (least > MaxSeq || gap > MaxSeq-least || more > MaxSeq-least-gap) {
			c.fail(ErrCorrupt, "a range passes the highest sequence")
		}
		if c.err != nil {
			return nil
		}
		r := Range{least + gap, least + gap + more}
		out = append(out, r)
		least = r.Last + 2
	}
	return out
}
