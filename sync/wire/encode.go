package wire

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// keepBuffer is the largest buffer that an encoder or decoder keeps between
// blocks; a rare message of megabytes must not stay in the footprint.
const keepBuffer = 1 << 20

// Level chooses the encoder's effort.
type Level uint8

// Levels: Fast for the publish path, Better for what is re-encoded for a slow
// link, Plain (not compressed) for a link that compresses as a whole.
const (
	Fast Level = iota
	Better
	Plain
)

// Encoder turns messages into blocks. It is not safe for concurrent use; it
// holds about 2.4 MB (Fast), 5.6 MB (Better) or the size of a body (Plain).
type Encoder struct {
	zw     *zstd.Encoder // nil: Plain
	raw    []byte        // body before compression
	split  int           // where the payloads begin in raw
	packed sink          // body after compression

	// One block's dictionaries and grouping, reused.
	subjects []string // in order of first appearance, then sorted
	sorted   []string // the other of the two
	rank     []uint32 // sorted: place of first appearance
	renamed  []uint32 // the inverse
	byName   map[string]uint32
	ids      []uint32          // live messages: subject
	live     []uint32          // live messages: index in Messages
	order    []uint32          // grouped by subject: index in Messages
	starts   []uint32          // first place in order, by subject
	sets     map[string]uint32 // encoded header set: 1 + index
	setText  []byte            // the encoded sets
	setIDs   []byte            // the column
	diffs    []uint64          // the column of times
	scratch  []byte
}

// NewEncoder returns an encoder of the given level.
func NewEncoder(l Level) *Encoder {
	e := &Encoder{byName: make(map[string]uint32), sets: make(map[string]uint32)}
	speed, window := zstd.SpeedDefault, 256<<10
	switch l {
	case Plain:
		return e
	case Better:
		speed, window = zstd.SpeedBetterCompression, 512<<10
	}
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithWindowSize(window),
		zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(true), zstd.WithSingleSegment(true))
	if err != nil {
		panic("wire: zstd options: " + err.Error()) // constants above, never input
	}
	e.zw = zw
	return e
}

// Append encodes b (Kind, Flow, Base, First, Accepted, Blanked and Messages; the rest of
// the header is computed) and appends it to dst. It refuses what Decode would
// refuse; dst then comes back unchanged.
func (e *Encoder) Append(dst []byte, b *Block) ([]byte, error) {
	if b.Kind == KindVoid {
		return AppendVoid(dst, b.Header)
	}
	defer e.release()
	h := b.Header
	h.Count, h.Reason = uint64(len(b.Messages)), 0
	if err := checkMessages(&h, b.Messages); err != nil {
		return dst, fmt.Errorf("wire: encode %s from %d: %w", h.Flow, h.First, err)
	}
	if err := e.body(&h, b.Messages); err != nil {
		return dst, fmt.Errorf("wire: encode %s from %d: %w", h.Flow, h.First, err)
	}
	h.RawSize, h.Subjects = len(e.raw), e.subjects
	body, info := e.raw, bodyInfo{}
	if e.zw != nil {
		if err := e.pack(); err != nil {
			return dst, fmt.Errorf("wire: encode %s from %d: %w", h.Flow, h.First, err)
		}
		if len(e.packed.b) < len(e.raw) {
			body, info.flags = e.packed.b, flagZstd
		}
	}
	if h.Blanked {
		info.flags |= flagBlanks
	}
	info.crc = crc32.Checksum(body, castagnoli)
	return append(appendHeader(dst, &h, info), body...), nil
}

// splitFrom is the size of columns from which they get a zstd block of their
// own, given twice as much payload. Numbers and payloads then have separate
// entropy tables, which saves 3 to 10 % of a block of 500 messages; below it
// costs. A frame of less than 256 bytes that is written in two steps would lack
// its content size.
const splitFrom = 128

// pack compresses e.raw into one zstd frame.
func (e *Encoder) pack() error {
	e.packed.b = e.packed.b[:0]
	e.zw.ResetContentSize(&e.packed, int64(len(e.raw)))
	head := 0
	if e.split >= splitFrom && len(e.raw)-e.split >= 2*splitFrom {
		head = e.split
		if _, err := e.zw.Write(e.raw[:head]); err != nil {
			return err
		}
		if err := e.zw.Flush(); err != nil {
			return err
		}
	}
	if _, err := e.zw.Write(e.raw[head:]); err != nil {
		return err
	}
	return e.zw.Close()
}

// sink is the io.Writer that collects a frame.
type sink struct{ b []byte }

func (s *sink) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// release forgets the messages and lets go of oversized buffers.
func (e *Encoder) release() {
	clear(e.subjects)
	clear(e.sorted)
	if cap(e.raw) > keepBuffer {
		e.raw = nil
	}
	if cap(e.packed.b) > keepBuffer {
		e.packed.b = nil
	}
	e.byName = emptied(e.byName)
	e.sets = emptied(e.sets)
}

// emptied clears m; a map that grew large is replaced, as clearing costs its capacity.
func emptied(m map[string]uint32) map[string]uint32 {
	if len(m) > 4096 {
		return make(map[string]uint32)
	}
	clear(m)
	return m
}

// checkMessages refuses what a decoder would, except subjects, header sets and
// ids, which are checked once each where they enter a dictionary.
func checkMessages(h *Header, ms []Message) error {
	if h.Kind != KindMessages {
		return fmt.Errorf("kind %d does not exist", h.Kind)
	}
	if h.Blanked && !slices.ContainsFunc(ms, Message.isBlank) {
		return errNoBlank
	}
	if len(ms) > MaxCount {
		return fmt.Errorf("%w: %d messages; a block holds %d", ErrLimit, len(ms), MaxCount)
	}
	if err := h.check(); err != nil {
		return err
	}
	size := 0
	for i := range ms {
		m := &ms[i]
		size += len(m.Payload)
		switch {
		case m.Time < MinTime || m.Time > MaxTime:
			return fmt.Errorf("message %d: time %d ms is not in the years 1 to 9999", i, m.Time)
		case m.TTL < 0 || m.TTL > MaxTTL:
			return fmt.Errorf("message %d: ttl %d ms is not in 0 to %d", i, m.TTL, int64(MaxTTL))
		case m.Blank == 0:
		case !m.Blank.Valid():
			return fmt.Errorf("message %d: blank for %s, which does not exist", i, m.Blank)
		case m.Size() > 0 || len(m.Headers) > 0:
			return fmt.Errorf("message %d: blank, but not empty", i)
		}
	}
	if size > MaxRaw {
		return fmt.Errorf("%w: %d payload bytes; a block holds %d", ErrLimit, size, MaxRaw)
	}
	return nil
}

// body writes the columns into e.raw.
func (e *Encoder) body(h *Header, ms []Message) error {
	if err := e.intern(ms); err != nil {
		return err
	}
	e.raw, e.split = append(e.raw[:0], 0), 0
	var cols byte
	e.column(&cols, colFlags, e.putFlags(ms))
	e.column(&cols, colTimes, e.putTimes(ms, h.Accepted))
	e.column(&cols, colTTLs, e.putTTLs(ms))
	if len(e.live) > 0 {
		e.column(&cols, colSubjects, e.putSubjects())
		used, err := e.putHeaders(ms)
		if err != nil {
			return err
		}
		e.column(&cols, colHeaders, used)
		if used, err = e.putIDs(ms); err != nil {
			return err
		}
		e.column(&cols, colIDs, used)
		e.group()
		e.column(&cols, colLengths, e.putLengths(ms))
		e.split = len(e.raw)
		for _, i := range e.order {
			e.raw = append(e.raw, ms[i].Payload...)
		}
	}
	e.raw[0] = cols
	if len(e.raw) > MaxRaw {
		return fmt.Errorf("%w: a body of %d bytes; the limit is %d", ErrLimit, len(e.raw), MaxRaw)
	}
	return nil
}

// column marks a column as present.
func (e *Encoder) column(cols *byte, bit byte, used bool) {
	if used {
		*cols |= bit
	}
}

// intern lists the live messages and numbers their subjects in sorted order.
func (e *Encoder) intern(ms []Message) error {
	e.subjects, e.ids, e.live = e.subjects[:0], e.ids[:0], e.live[:0]
	size := 0
	for i := range ms {
		if ms[i].Blank != 0 {
			continue
		}
		s := ms[i].Subject
		id, known := e.lookup(s)
		if !known {
			if err := CheckSubject(s); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			if size += len(s); size > MaxDict {
				return fmt.Errorf("%w: the subjects are longer than %d bytes together", ErrLimit, MaxDict)
			}
			id = uint32(len(e.subjects))
			e.subjects = append(e.subjects, s)
			e.byName[s] = id
		}
		e.ids = append(e.ids, id)
		e.live = append(e.live, uint32(i))
	}
	e.sortSubjects()
	return nil
}

// sortSubjects turns the order of first appearance into the sorted one, in which
// neighbours share the most.
func (e *Encoder) sortSubjects() {
	if slices.IsSorted(e.subjects) {
		return
	}
	e.rank = e.rank[:0]
	for i := range e.subjects {
		e.rank = append(e.rank, uint32(i))
	}
	slices.SortFunc(e.rank, func(a, b uint32) int { return strings.Compare(e.subjects[a], e.subjects[b]) })
	e.sorted, e.subjects = e.subjects, e.sorted[:0]
	e.renamed = append(e.renamed[:0], e.rank...)
	for to, from := range e.rank {
		e.subjects = append(e.subjects, e.sorted[from])
		e.renamed[from] = uint32(to)
	}
	for i, id := range e.ids {
		e.ids[i] = e.renamed[id]
	}
}

// lookup tries the subject before and its successor before it asks the map.
func (e *Encoder) lookup(s string) (id uint32, known bool) {
	if n := len(e.ids); n > 0 {
		last := e.ids[n-1]
		if e.subjects[last] == s {
			return last, true
		}
		if next := int(last) + 1; next < len(e.subjects) && e.subjects[next] == s {
			return uint32(next), true
		}
	}
	id, known = e.byName[s]
	return id, known
}

// group sorts the live messages by subject, keeping the order within each.
func (e *Encoder) group() {
	k := len(e.subjects)
	e.starts = append(e.starts[:0], make([]uint32, k+1)...)
	for _, id := range e.ids {
		e.starts[id+1]++
	}
	for i := range k {
		e.starts[i+1] += e.starts[i]
	}
	if cap(e.order) < len(e.ids) {
		e.order = make([]uint32, len(e.ids))
	}
	e.order = e.order[:len(e.ids)]
	for i, id := range e.ids {
		e.order[e.starts[id]] = e.live[i]
		e.starts[id]++
	}
}
