package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
)

const (
	magic      = "FPB\x01" // the fourth byte is Version
	epochSize  = len(Epoch{})
	crcSize    = 4
	flagZstd   = 1 << 0 // the body is one zstd frame, else it is stored as it is
	flagBlanks = 1 << 1 // some message is blank
	knownFlags = flagZstd | flagBlanks
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bodyInfo is what the header says of the stored body.
type bodyInfo struct {
	flags byte
	crc   uint32
}

// AppendVoid appends the void block for h (Flow, Base, First, Count, Accepted, Reason).
func AppendVoid(dst []byte, h Header) ([]byte, error) {
	h.Kind = KindVoid
	if err := h.check(); err != nil {
		return dst, fmt.Errorf("wire: encode void: %w", err)
	}
	if !h.Reason.Valid() {
		return dst, fmt.Errorf("wire: encode void: %s does not exist", h.Reason)
	}
	return appendHeader(dst, &h, bodyInfo{}), nil
}

// appendHeader writes the header with its length and checksum.
func appendHeader(dst []byte, h *Header, body bodyInfo) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	// Two bytes are set aside for the length and closed up below, as nearly all
	// headers of small blocks need only one.
	fields := len(dst) + 2
	dst = append(dst, 0, 0, body.flags, byte(h.Kind)|byte(h.Lane)<<4)
	dst = append(dst, h.Epoch[:]...)
	dst = appendUvarint(dst, h.Base)
	dst = appendUvarint(dst, h.First-h.Base)
	dst = appendUvarint(dst, h.Count)
	dst = appendVarint(dst, h.Accepted)
	if h.Kind == KindVoid {
		dst = append(dst, byte(h.Reason))
	} else {
		dst = appendUvarint(dst, uint64(h.RawSize))
		dst = binary.LittleEndian.AppendUint32(dst, body.crc)
		dst = appendSubjects(dst, h.Subjects)
	}
	n := len(dst) - fields
	dst = closeUp(dst, fields, n)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// closeUp writes the length n of the fields into the gap before them, which is
// made as wide as the length needs.
func closeUp(dst []byte, fields, n int) []byte {
	var buf [binary.MaxVarintLen64]byte
	w := binary.PutUvarint(buf[:], uint64(n))
	if w > 2 {
		dst = append(dst, buf[:w-2]...)
	}
	copy(dst[fields-2+w:], dst[fields:fields+n])
	copy(dst[fields-2:], buf[:w])
	return dst[:fields-2+w+n]
}

// appendSubjects writes the dictionary, each entry as what it does not share
// with the one before.
func appendSubjects(dst []byte, subjects []string) []byte {
	dst = appendUvarint(dst, uint64(len(subjects)))
	prev := ""
	for _, s := range subjects {
		p := shared(prev, s)
		dst = appendUvarint(dst, uint64(p))
		dst = appendUvarint(dst, uint64(len(s)-p))
		dst = append(dst, s[p:]...)
		prev = s
	}
	return dst
}

// ParseHeader checks the version, every limit and the checksums of header and
// body (the stored bytes; nothing is decompressed).
func ParseHeader(data []byte) (Header, error) {
	h, _, _, err := parseHeader(data)
	if err != nil {
		return Header{}, err
	}
	return h, nil
}

// parseHeader also returns the stored body.
func parseHeader(data []byte) (h Header, info bodyInfo, body []byte, err error) {
	h, info, end, err := parseFields(data)
	if err != nil {
		return h, info, nil, err
	}
	body = data[end:]
	return h, info, body, checkBody(&h, info, body)
}

// parseFields reads everything before the body, which begins at end.
func parseFields(data []byte) (h Header, info bodyInfo, end int, err error) {
	c, end, err := openHeader(data)
	if err != nil {
		return h, info, 0, err
	}
	info.flags = c.u8()
	if info.flags&^knownFlags != 0 {
		c.fail(ErrVersion, "flags %#02x", info.flags)
	}
	kl := c.u8()
	h.Kind, h.Lane = Kind(kl&0x0f), Lane(kl>>4)
	if h.Kind != KindMessages && h.Kind != KindVoid {
		c.fail(ErrVersion, "kind %d", h.Kind)
	}
	copy(h.Epoch[:], c.bytes(epochSize))
	h.Base = c.uvarint()
	ahead := c.uvarint()
	h.Count = c.uvarint()
	h.Accepted = c.varint()
	if h.First = h.Base + ahead; h.First < ahead {
		c.fail(ErrCorrupt, "base %d and first sequence %d beyond it overflow", h.Base, ahead)
	}
	if err := h.check(); err != nil {
		c.fail(ErrCorrupt, "%v", err)
	}
	if h.Kind == KindVoid {
		h.Reason = Reason(c.u8())
		if c.err == nil && !h.Reason.Valid() {
			c.fail(ErrVersion, "%s", h.Reason)
		}
		if info.flags != 0 {
			c.fail(ErrCorrupt, "a void with body flags")
		}
	} else {
		parseBodyFields(&c, &h, &info)
	}
	if c.err == nil && c.rest() > 0 {
		c.fail(ErrCorrupt, "%d bytes after the last field", c.rest())
	}
	return h, info, end, c.err
}

// openHeader checks magic, version and checksum and returns a cursor over the
// fields and the offset of the body.
func openHeader(data []byte) (c cursor, end int, err error) {
	if len(data) < len(magic) || string(data[:len(magic)-1]) != magic[:len(magic)-1] {
		return c, 0, &FormatError{ErrCorrupt, "header", 0, "this is not a block"}
	}
	if v := data[len(magic)-1]; v != Version {
		return c, 0, &FormatError{ErrVersion, "header", len(magic) - 1, fmt.Sprintf("block format %d; this program reads %d, upgrade it", v, Version)}
	}
	c = cursor{b: data, off: len(magic), part: "header"}
	n := c.uvarint()
	if c.err == nil && (n > uint64(c.rest()) || c.rest()-int(n) < crcSize) {
		c.fail(ErrCorrupt, "a header of %d bytes does not fit into the %d left", n, c.rest())
	}
	if c.err != nil {
		return c, 0, c.err
	}
	at := c.off + int(n)
	if crc32.Checksum(data[:at], castagnoli) != binary.LittleEndian.Uint32(data[at:]) {
		return c, 0, &FormatError{ErrCorrupt, "header", at, "the header's checksum does not match"}
	}
	c.b = data[:at]
	return c, at + crcSize, nil
}

func parseBodyFields(c *cursor, h *Header, info *bodyInfo) {
	if h.Count > MaxCount {
		c.fail(ErrLimit, "%d messages; the limit is %d", h.Count, MaxCount)
		return
	}
	h.Blanked = info.flags&flagBlanks != 0
	h.RawSize = c.upTo(MaxRaw, "the uncompressed size")
	if b := c.bytes(crcSize); b != nil {
		info.crc = binary.LittleEndian.Uint32(b)
	}
	h.Subjects = parseSubjects(c, int(h.Count))
}

// parseSubjects reads the dictionary of a block of count messages. All subjects
// share one string.
func parseSubjects(c *cursor, count int) []string {
	n := c.upTo(min(count, MaxSubjects), "the number of subjects")
	if n == 0 || !c.need(2*n, "subjects") {
		return nil
	}
	start := c.off
	size := skipSubjects(c, n)
	if c.err != nil {
		return nil
	}
	r := cursor{b: c.b, off: start, part: c.part}
	var text strings.Builder
	text.Grow(size)
	out := make([]string, n)
	prev := ""
	for i := range out {
		begin := text.Len()
		text.WriteString(prev[:r.uvarint()])
		text.Write(r.bytes(int(r.uvarint())))
		s := text.String()[begin:]
		if err := CheckSubject(s); err != nil {
			c.fail(ErrCorrupt, "entry %d of the dictionary: %v", i, err)
			return nil
		}
		if s <= prev {
			c.fail(ErrCorrupt, "entry %d of the dictionary is not in order", i)
			return nil
		}
		out[i], prev = s, s
	}
	return out
}

// skipSubjects checks the lengths of n entries and adds up what they are written out.
func skipSubjects(c *cursor, n int) (size int) {
	length := uint64(0) // of the entry before
	for i := range n {
		p, l := c.uvarint(), c.uvarint()
		if c.err == nil && (p > length || l > MaxSubject) {
			c.fail(ErrCorrupt, "subject %d shares %d bytes of %d and adds %d", i, p, length, l)
		}
		c.bytes(int(l))
		length = p + l
		if size += int(length); c.err == nil && size > MaxDict {
			c.fail(ErrLimit, "the subjects are longer than %d bytes together", MaxDict)
		}
		if c.err != nil {
			return 0
		}
	}
	return size
}

// checkBody verifies the stored body without decompressing it.
func checkBody(h *Header, info bodyInfo, body []byte) error {
	bad := func(detail string) error { return &FormatError{ErrCorrupt, "body", 0, detail} }
	switch {
	case h.Kind == KindVoid && len(body) > 0:
		return bad(fmt.Sprintf("%d bytes after a void", len(body)))
	case h.Kind == KindVoid:
		return nil
	case crc32.Checksum(body, castagnoli) != info.crc:
		return bad(fmt.Sprintf("the checksum of the %d bytes does not match", len(body)))
	case info.flags&flagZstd == 0 && len(body) != h.RawSize:
		return bad(fmt.Sprintf("%d bytes stored, %d announced", len(body), h.RawSize))
	}
	return nil
}
