package wire

import "fmt"

// Prefix returns the intact block at the start of data, whatever follows it:
// for finding blocks in a file whose own structure is damaged. A block does not
// say how long it is, but its body does: by its raw size, or by where the zstd
// frame ends.
func Prefix(data []byte) ([]byte, error) {
	h, info, end, err := parseFields(data)
	if err != nil {
		return nil, err
	}
	size := h.RawSize
	switch {
	case h.Kind == KindVoid:
		size = 0
	case info.flags&flagZstd != 0:
		if size, err = frameEnd(data[end:], h.RawSize); err != nil {
			return nil, err
		}
	}
	if size > len(data)-end {
		return nil, &FormatError{ErrCorrupt, "body", 0, fmt.Sprintf("%d bytes are left of %d", len(data)-end, size)}
	}
	n := end + size
	return data[:n:n], checkBody(&h, info, data[end:n])
}
