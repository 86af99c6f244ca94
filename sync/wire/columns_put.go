package wire

import (
	"fmt"
	"math/bits"
)

// Each put function appends one column to the body and reports whether any
// entry differs from the default; if none does it leaves the body as it was.

func (e *Encoder) putFlags(ms []Message) bool {
	start, any := len(e.raw), byte(0)
	for i := range ms {
		f := byte(ms[i].Blank) << reasonShift
		if ms[i].Unsynced {
			f |= flagUnsynced
		}
		any |= f
		e.raw = append(e.raw, f)
	}
	return e.keep(start, any != 0)
}

// putTimes writes the differences in byte planes: their low bytes are noise,
// their high bytes hardly change, and apart the two compress better.
func (e *Encoder) putTimes(ms []Message, accepted int64) bool {
	e.diffs = e.diffs[:0]
	any, prev := uint64(0), accepted
	for i := range ms {
		d := zigzag(ms[i].Time - prev)
		prev = ms[i].Time
		any |= d
		e.diffs = append(e.diffs, d)
	}
	if any == 0 {
		return false
	}
	width := (bits.Len64(any) + 7) / 8
	e.raw = append(e.raw, byte(width))
	for shift := 0; shift < 8*width; shift += 8 {
		for _, d := range e.diffs {
			e.raw = append(e.raw, byte(d>>shift))
		}
	}
	return true
}

func (e *Encoder) putTTLs(ms []Message) bool {
	start, used := len(e.raw), false
	for i := range ms {
		used = used || ms[i].TTL != 0
		e.raw = appendUvarint(e.raw, uint64(ms[i].TTL))
	}
	return e.keep(start, used)
}

func (e *Encoder) putSubjects() bool {
	k := len(e.subjects)
	if k == 1 {
		return false
	}
	for shift := 0; shift < 8*idWidth(k); shift += 8 {
		for _, id := range e.ids {
			e.raw = append(e.raw, byte(id>>shift))
		}
	}
	return true
}

// putHeaders writes the distinct header sets and then which message has which.
func (e *Encoder) putHeaders(ms []Message) (bool, error) {
	e.setText, e.setIDs = e.setText[:0], e.setIDs[:0]
	used, pairs := false, 0
	for _, i := range e.live {
		hs := ms[i].Headers
		if len(hs) == 0 {
			e.setIDs = append(e.setIDs, 0)
			continue
		}
		used = true
		e.scratch = appendSet(e.scratch[:0], hs)
		id, known := e.sets[string(e.scratch)]
		if !known {
			if err := CheckHeaders(hs); err != nil {
				return false, fmt.Errorf("message %d: %w", i, err)
			}
			id = uint32(len(e.sets)) + 1
			e.sets[string(e.scratch)] = id
			e.setText = append(e.setText, e.scratch...)
			if pairs += len(hs); pairs > MaxPairs || len(e.setText) > MaxDict {
				return false, fmt.Errorf("%w: message %d: the block holds %d different headers of %d bytes", ErrLimit, i, pairs, len(e.setText))
			}
		}
		e.setIDs = appendUvarint(e.setIDs, uint64(id))
	}
	if used {
		e.raw = appendUvarint(e.raw, uint64(len(e.sets)))
		e.raw = append(e.raw, e.setText...)
		e.raw = append(e.raw, e.setIDs...)
	}
	return used, nil
}

func appendSet(dst []byte, hs []Pair) []byte {
	dst = appendUvarint(dst, uint64(len(hs)))
	for _, h := range hs {
		dst = appendUvarint(dst, uint64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendUvarint(dst, uint64(len(h.Value)))
		dst = append(dst, h.Value...)
	}
	return dst
}

// putIDs writes how much each id shares with the one before, how much it adds,
// and what.
func (e *Encoder) putIDs(ms []Message) (bool, error) {
	used, size := false, 0
	for _, i := range e.live {
		id := ms[i].ID
		if id == "" {
			continue
		}
		used = true
		if err := CheckID(id); err != nil {
			return false, fmt.Errorf("message %d: %w", i, err)
		}
		if size += len(id); size > MaxDict {
			return false, fmt.Errorf("%w: the ids are longer than %d bytes together", ErrLimit, MaxDict)
		}
	}
	if !used {
		return false, nil
	}
	prev := ""
	for _, i := range e.live {
		e.raw = appendUvarint(e.raw, uint64(shared(prev, ms[i].ID)))
		prev = ms[i].ID
	}
	prev = ""
	for _, i := range e.live {
		id := ms[i].ID
		e.raw = appendUvarint(e.raw, uint64(len(id)-shared(prev, id)))
		prev = id
	}
	prev = ""
	for _, i := range e.live {
		id := ms[i].ID
		e.raw = append(e.raw, id[shared(prev, id):]...)
		prev = id
	}
	return true, nil
}

// putLengths writes the payload lengths in grouped order, or one for all.
func (e *Encoder) putLengths(ms []Message) bool {
	first, differ := len(ms[e.order[0]].Payload), false
	for _, i := range e.order {
		if len(ms[i].Payload) != first {
			differ = true
			break
		}
	}
	if !differ {
		e.raw = appendUvarint(e.raw, uint64(first))
		return false
	}
	prev := 0
	for _, i := range e.order {
		n := len(ms[i].Payload)
		e.raw = appendVarint(e.raw, int64(n-prev))
		prev = n
	}
	return true
}

func (e *Encoder) keep(start int, used bool) bool {
	if !used {
		e.raw = e.raw[:start]
	}
	return used
}
