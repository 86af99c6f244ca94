package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ExportVersion is the version of the portable file of blocks (EXPORT.md).
const ExportVersion = 1

// Limits of a portable file.
const (
	MaxExportFlows = 4096
	maxExportHead  = 1 << 20
	maxExportBlock = 24 << 20 // above the largest block: its header and MaxRaw
	exportMagic    = "FPX\x01"
)

// The records of a portable file.
const (
	exportHead  = 1
	exportBlock = 2
	exportEnd   = 3
)

// ErrTruncated means that a portable file ends before its end record.
var ErrTruncated = errors.New("wire: cut off")

// ExportError says what is wrong with a portable file and where. It wraps
// ErrVersion, ErrCorrupt, ErrLimit or ErrTruncated.
type ExportError struct {
	Err    error
	Offset int64 // bytes from the start of the file to the record
	Detail string
}

func (e *ExportError) Error() string {
	return fmt.Sprintf("%v: the file at byte %d: %s", e.Err, e.Offset, e.Detail)
}

// Unwrap returns the sentinel.
func (e *ExportError) Unwrap() error { return e.Err }

// ExportHead is the first record of a portable file.
type ExportHead struct {
	Device  string     `json:"device"`
	HubID   string     `json:"hub_id,omitempty"`  // pinned; empty before the first session
	Version string     `json:"version,omitempty"` // of the agent, for people
	Created int64      `json:"created"`           // Unix milliseconds
	Flows   []FlowHeld `json:"flows"`             // what was held, in sending order: in each lane older epochs first
}

// ExportTotals is what a portable file holds.
type ExportTotals struct {
	Blocks   uint64 `json:"blocks"`
	Messages uint64 `json:"messages"` // of blocks that are not voids, blanks included
	Gone     uint64 `json:"gone"`     // sequences of voids
	Bytes    uint64 `json:"bytes"`    // of all blocks
}

func (h *ExportHead) check() error {
	switch {
	case CheckDevice(h.Device) != nil:
		return CheckDevice(h.Device)
	case h.HubID != "" && !token(h.HubID, maxName):
		return errToken("hub_id")
	case !printable(h.Version, maxText):
		return errText("version")
	case h.Created < 0 || h.Created > MaxTime:
		return fmt.Errorf("created at %d ms is not a time", h.Created)
	case len(h.Flows) > MaxExportFlows:
		return fmt.Errorf("%d flows; the limit is %d", len(h.Flows), MaxExportFlows)
	}
	return checkFlows(h.Flows)
}

// exportOrder holds the blocks of a portable file to its head: flows as listed,
// sequences ascending in each.
type exportOrder struct {
	flows  []FlowHeld
	at     int    // the present flow
	last   uint64 // its highest sequence so far
	totals ExportTotals
}

func (o *exportOrder) take(h *Header, size int) error {
	at, last := o.at, o.last
	for at < len(o.flows) && o.flows[at].Flow != h.Flow {
		at, last = at+1, 0
	}
	if at == len(o.flows) {
		return fmt.Errorf("a block of %s, which the head does not list, or not here", h.Flow)
	}
	switch f := o.flows[at]; {
	case h.Base != f.Base:
		return fmt.Errorf("%s %s has base %d, the head says %d", h.Flow, h.Range(), h.Base, f.Base)
	case h.First <= last:
		return fmt.Errorf("%s %s follows %d", h.Flow, h.Range(), last)
	case h.Last() < f.First || h.Last() > f.Last:
		return fmt.Errorf("%s %s lies outside of the %d-%d that the head says", h.Flow, h.Range(), f.First, f.Last)
	}
	o.at, o.last = at, h.Last()
	o.totals.Blocks++
	o.totals.Bytes += uint64(size)
	if h.Kind == KindVoid {
		o.totals.Gone += h.Count
	} else {
		o.totals.Messages += h.Count
	}
	return nil
}

// ExportWriter writes a portable file. It buffers nothing.
type ExportWriter struct {
	w     io.Writer
	sum   uint32 // of everything written but the checksums
	buf   []byte
	order exportOrder
}

// NewExportWriter writes the head.
func NewExportWriter(w io.Writer, h ExportHead) (*ExportWriter, error) {
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("wire: export: %w", err)
	}
	if h.Flows == nil {
		h.Flows = []FlowHeld{}
	}
	body, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("wire: export: %w", err)
	}
	x := &ExportWriter{w: w, order: exportOrder{flows: h.Flows}}
	if err := x.write([]byte(exportMagic)); err != nil {
		return nil, err
	}
	return x, x.record(exportHead, body)
}

// Block adds a block, verbatim. Blocks come in the order of the head's flows,
// and ascending in each.
func (x *ExportWriter) Block(data []byte) error {
	h, err := ParseHeader(data)
	if err == nil {
		err = x.order.take(&h, len(data))
	}
	if err != nil {
		return fmt.Errorf("wire: export: %w", err)
	}
	return x.record(exportBlock, data)
}

// End writes the end record, without which the file is not complete.
func (x *ExportWriter) End() error {
	t := x.order.totals
	return x.record(exportEnd, appendTotals(nil, t))
}

// Totals is what was written so far.
func (x *ExportWriter) Totals() ExportTotals { return x.order.totals }

func appendTotals(dst []byte, t ExportTotals) []byte {
	for _, n := range []uint64{t.Blocks, t.Messages, t.Gone, t.Bytes} {
		dst = appendUvarint(dst, n)
	}
	return dst
}

func (x *ExportWriter) record(kind byte, content []byte) error {
	x.buf = appendUvarint(append(x.buf[:0], kind), uint64(len(content)))
	if err := x.write(x.buf); err != nil {
		return err
	}
	if err := x.write(content); err != nil {
		return err
	}
	_, err := x.w.Write(binary.LittleEndian.AppendUint32(x.buf[:0], x.sum))
	return err
}

// write counts what it writes into the checksum. The checksums themselves are
// left out: a CRC over data and its CRC is the same for any data.
func (x *ExportWriter) write(b []byte) error {
	x.sum = crc32.Update(x.sum, castagnoli, b)
	_, err := x.w.Write(b)
	return err
}
