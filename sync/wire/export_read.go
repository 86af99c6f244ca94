package wire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// ExportReader reads a portable file from hands that are not trusted, one block
// at a time: it never holds more than the largest block, and asks for memory
// only as bytes arrive.
type ExportReader struct {
	r     *bufio.Reader
	sum   uint32 // of everything read but the checksums
	at    int64  // bytes read
	start int64  // of the present record
	buf   []byte
	head  ExportHead
	order exportOrder
	err   error // the first error sticks; io.EOF after a complete file
}

// NewExportReader reads the head.
func NewExportReader(r io.Reader) (*ExportReader, error) {
	x := &ExportReader{r: bufio.NewReaderSize(r, 64<<10)}
	magic, err := x.bytes(len(exportMagic))
	if err != nil {
		return nil, err
	}
	switch {
	case string(magic[:3]) != exportMagic[:3]:
		return nil, x.fail(ErrCorrupt, "this is not a file of `fieldpost-agent spool export`")
	case magic[3] != ExportVersion:
		return nil, x.fail(ErrVersion, "version %d; this program reads %d, upgrade it", magic[3], ExportVersion)
	}
	kind, content, err := x.record()
	switch {
	case err != nil:
		return nil, err
	case kind != exportHead:
		return nil, x.fail(ErrCorrupt, "record type %d where the head is expected", kind)
	}
	if err := json.Unmarshal(content, &x.head); err != nil {
		return nil, x.fail(ErrCorrupt, "the head: %v", err)
	}
	if err := x.head.check(); err != nil {
		return nil, x.fail(ErrCorrupt, "the head: %v", err)
	}
	x.order.flows = x.head.Flows
	return x, nil
}

// Head is the first record.
func (x *ExportReader) Head() ExportHead { return x.head }

// Totals is what was read so far; after io.EOF, all of it.
func (x *ExportReader) Totals() ExportTotals { return x.order.totals }

// Offset is the number of bytes read so far.
func (x *ExportReader) Offset() int64 { return x.at }

// Next returns the next block, whose bytes are valid until the call after.
// io.EOF means that the file was complete; an error that is not an *ExportError
// is the underlying reader's.
func (x *ExportReader) Next() (Header, []byte, error) {
	if x.err != nil {
		return Header{}, nil, x.err
	}
	kind, content, err := x.record()
	if err != nil {
		return Header{}, nil, err
	}
	switch kind {
	case exportBlock:
		h, err := ParseHeader(content)
		switch {
		case errors.Is(err, ErrVersion):
			return Header{}, nil, x.fail(ErrVersion, "%v", err)
		case err == nil:
			err = x.order.take(&h, len(content))
		}
		if err != nil {
			return Header{}, nil, x.fail(ErrCorrupt, "%v", err)
		}
		return h, content, nil
	case exportEnd:
		return Header{}, nil, x.end(content)
	case exportHead:
		return Header{}, nil, x.fail(ErrCorrupt, "a second head")
	}
	return Header{}, nil, x.fail(ErrVersion, "record type %d; this program is too old for it, upgrade it", kind)
}

// end checks the totals, and that nothing follows.
func (x *ExportReader) end(content []byte) error {
	if want := appendTotals(nil, x.order.totals); string(content) != string(want) {
		return x.fail(ErrCorrupt, "the end record counts other blocks than came")
	}
	switch _, err := x.r.ReadByte(); {
	case err == nil:
		x.start = x.at
		return x.fail(ErrCorrupt, "there is more after the end record")
	case err != io.EOF:
		return x.keep(err)
	}
	return x.keep(io.EOF)
}

// record reads one record, whose content is valid until the next.
func (x *ExportReader) record() (kind byte, content []byte, err error) {
	x.start = x.at
	head, err := x.bytes(1)
	if err != nil {
		return 0, nil, err
	}
	kind = head[0]
	limit := uint64(maxExportBlock)
	switch kind {
	case exportHead:
		limit = maxExportHead
	case exportEnd:
		limit = 4 * binary.MaxVarintLen64
	}
	size, err := x.uvarint()
	if err != nil {
		return 0, nil, err
	}
	if size > limit {
		return 0, nil, x.fail(ErrLimit, "a record of %d bytes; the limit is %d", size, limit)
	}
	if content, err = x.bytes(int(size)); err != nil {
		return 0, nil, err
	}
	var sum [crcSize]byte
	want := x.sum
	if err := x.full(sum[:]); err != nil {
		return 0, nil, err
	}
	if x.sum = want; binary.LittleEndian.Uint32(sum[:]) != want {
		return 0, nil, x.fail(ErrCorrupt, "the checksum does not match: the file was changed or damaged here, or before")
	}
	return kind, content, nil
}

func (x *ExportReader) uvarint() (uint64, error) {
	var v uint64
	for shift := 0; ; shift += 7 {
		var b [1]byte
		if err := x.full(b[:]); err != nil {
			return 0, err
		}
		if shift > 28 || shift > 0 && b[0] == 0 {
			return 0, x.fail(ErrCorrupt, "a length has more than five bytes, or is not in its shortest form")
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return v, nil
		}
	}
}

// bytes reads n bytes; memory grows with what arrives, not with what is announced.
func (x *ExportReader) bytes(n int) ([]byte, error) {
	if cap(x.buf) > keepBuffer {
		x.buf = nil
	}
	x.buf = x.buf[:0]
	for len(x.buf) < n {
		have, step := len(x.buf), min(n-len(x.buf), 256<<10)
		x.buf = slices.Grow(x.buf, step)[:have+step]
		if err := x.full(x.buf[have:]); err != nil {
			return nil, err
		}
	}
	return x.buf, nil
}

func (x *ExportReader) full(b []byte) error {
	n, err := io.ReadFull(x.r, b)
	x.at += int64(n)
	x.sum = crc32.Update(x.sum, castagnoli, b[:n])
	switch {
	case err == nil:
		return nil
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return x.fail(ErrTruncated, "it ends after %d bytes, before its end record: the copy was interrupted or the stick was full", x.at)
	}
	return x.keep(err)
}

func (x *ExportReader) fail(kind error, format string, args ...any) error {
	return x.keep(&ExportError{Err: kind, Offset: x.start, Detail: fmt.Sprintf(format, args...)})
}

func (x *ExportReader) keep(err error) error {
	if x.err == nil {
		x.err = err
	}
	return x.err
}
