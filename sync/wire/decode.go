package wire

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// decodeSlack is what zstd writes beyond the end when it may.
const decodeSlack = 64

// Decoder turns blocks into messages. It is not safe for concurrent use.
type Decoder struct {
	zr  *zstd.Decoder
	raw []byte // body after decompression, reused unless the caller keeps it

	block Block
	msgs  []Message
	live  []uint32 // live messages: index in the block
	ids   []uint32 // live messages: subject
	next  []uint32 // by subject: place in ends of its next message
	ends  []int    // grouped: where payloads end
}

// NewDecoder returns a decoder whose memory is bounded by MaxRaw.
func NewDecoder() *Decoder {
	zr, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxRaw), zstd.WithDecoderMaxMemory(MaxRaw), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("wire: zstd options: " + err.Error()) // constants above, never input
	}
	return &Decoder{zr: zr}
}

// Decode decodes a block. The messages alias memory that the next call reuses
// unless keep is set; they never alias data.
func (d *Decoder) Decode(data []byte, keep bool) (*Block, error) {
	if keep {
		return d.DecodeTo(&Memory{}, data)
	}
	b, err := d.decode(&d.block, data)
	if cap(d.raw) > keepBuffer {
		d.raw = nil
	}
	if cap(d.msgs) > keepBuffer>>8 {
		d.msgs = nil
	}
	return b, err
}

// decode decodes a block into b, d.raw and d.msgs.
func (d *Decoder) decode(b *Block, data []byte) (*Block, error) {
	h, info, body, err := parseHeader(data)
	if err != nil {
		return nil, err
	}
	*b = Block{Header: h}
	if h.Kind == KindVoid {
		return b, nil
	}
	if err := d.unpack(&h, info, body); err != nil {
		return nil, err
	}
	n := int(h.Count)
	if cap(d.msgs) < n {
		d.msgs = make([]Message, n)
	}
	b.Messages = d.msgs[:n]
	clear(b.Messages)
	if err := d.columns(b); err != nil {
		return nil, err
	}
	return b, nil
}

// Memory is what a decoded block lies in.
type Memory struct {
	raw  []byte
	msgs []Message
}

// Small reports whether it is worth keeping for another block.
func (m *Memory) Small() bool { return cap(m.raw) <= keepBuffer && cap(m.msgs) <= keepBuffer>>8 }

// DecodeTo is Decode for good, in memory of the caller's: the block is valid until
// that is used again. It is replaced if it is too small.
func (d *Decoder) DecodeTo(m *Memory, data []byte) (*Block, error) {
	raw, msgs := d.raw, d.msgs
	d.raw, d.msgs = m.raw, m.msgs
	b, err := d.decode(new(Block), data)
	m.raw, m.msgs = d.raw, d.msgs
	d.raw, d.msgs = raw, msgs
	return b, err
}

// unpack puts the uncompressed body into d.raw.
func (d *Decoder) unpack(h *Header, info bodyInfo, body []byte) error {
	if info.flags&flagZstd == 0 {
		d.raw = append(d.raw[:0], body...)
		return nil
	}
	if err := checkFrame(body, h.RawSize); err != nil {
		return err
	}
	// The capacity is the limit of what may come out; with a little to spare the
	// library takes its fast path.
	limit := h.RawSize + decodeSlack
	if cap(d.raw) < limit {
		d.raw = make([]byte, 0, limit)
	}
	out, err := d.zr.DecodeAll(body, d.raw[:0:limit])
	switch {
	case err != nil:
		return &FormatError{ErrCorrupt, "body", 0, "zstd: " + err.Error()}
	case len(out) != h.RawSize:
		return &FormatError{ErrCorrupt, "body", 0, fmt.Sprintf("%d bytes uncompressed, %d announced", len(out), h.RawSize)}
	}
	d.raw = d.raw[:len(out)]
	return nil
}

// checkFrame reports why body is not exactly one zstd frame of the given
// content size with a checksum. Without it the library accepts an empty input
// and frames that follow one another.
func checkFrame(body []byte, size int) error {
	end, err := frameEnd(body, size)
	if err == nil && end != len(body) {
		err = &FormatError{ErrCorrupt, "body", end, fmt.Sprintf("zstd: %d bytes after the frame", len(body)-end)}
	}
	return err
}

// frameEnd finds where the zstd frame at the start of body ends.
func frameEnd(body []byte, size int) (int, error) {
	bad := func(at int, format string, args ...any) (int, error) {
		return 0, &FormatError{ErrCorrupt, "body", at, "zstd: " + fmt.Sprintf(format, args...)}
	}
	var f zstd.Header
	switch err := f.Decode(body); {
	case err != nil:
		return bad(0, "%v", err)
	case f.Skippable || f.DictionaryID != 0 || !f.HasFCS || !f.HasCheckSum:
		return bad(0, "the frame is skippable, has a dictionary, or lacks its content size or checksum")
	case f.FrameContentSize != uint64(size):
		return bad(0, "%d bytes uncompressed, %d announced", f.FrameContentSize, size)
	}
	at, last := f.HeaderSize, false
	for !last {
		if len(body)-at < 3 {
			return bad(at, "the frame is cut off")
		}
		v := uint32(body[at]) | uint32(body[at+1])<<8 | uint32(body[at+2])<<16
		last = v&1 != 0
		n := int(v >> 3)
		if v>>1&3 == 1 { // run length: one byte, repeated n times
			n = 1
		}
		if at += 3; n > len(body)-at {
			return bad(at, "the frame is cut off")
		}
		at += n
	}
	if len(body)-at < crcSize {
		return bad(at, "%d bytes where the %d of the checksum end the frame", len(body)-at, crcSize)
	}
	return at + crcSize, nil
}

// columns reads the body in d.raw into b.Messages.
func (d *Decoder) columns(b *Block) error {
	c := &cursor{b: d.raw, part: "body"}
	cols := c.u8()
	if cols&^knownCols != 0 {
		c.fail(ErrVersion, "columns %#02x", cols)
	}
	if cols&colFlags != 0 {
		getFlags(c, b.Messages)
	}
	getTimes(c, b, cols&colTimes != 0)
	if cols&colTTLs != 0 {
		getTTLs(c, b.Messages)
	}
	d.live = d.live[:0]
	for i := range b.Messages {
		if b.Messages[i].Blank == 0 {
			d.live = append(d.live, uint32(i))
		}
	}
	if c.err == nil && b.Blanked && len(d.live) == len(b.Messages) {
		c.fail(ErrCorrupt, "%v", errNoBlank)
	}
	if c.err == nil && len(d.live) > 0 {
		d.liveColumns(c, b, cols)
	} else if c.err == nil && (len(b.Subjects) > 0 || cols&(colSubjects|colHeaders|colIDs|colLengths) != 0) {
		c.fail(ErrCorrupt, "subjects, headers, ids or payloads, but every message is blank")
	}
	if c.err == nil && c.rest() > 0 {
		c.fail(ErrCorrupt, "%d bytes after the last column", c.rest())
	}
	return c.err
}

func (d *Decoder) liveColumns(c *cursor, b *Block, cols byte) {
	d.getSubjects(c, b, cols&colSubjects != 0)
	if c.err == nil && cols&colHeaders != 0 {
		d.getHeaders(c, b.Messages)
	}
	if c.err == nil && cols&colIDs != 0 {
		d.getIDs(c, b.Messages)
	}
	if c.err == nil {
		d.getPayloads(c, b, cols&colLengths != 0)
	}
}
