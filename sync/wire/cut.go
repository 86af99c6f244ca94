package wire

import (
	"bytes"
	"fmt"
	"slices"
)

// Cut re-encodes the part of a block, or of a void, that covers r. Base and the
// time of acceptance stay those of the block.
func Cut(d *Decoder, e *Encoder, data []byte, r Range) ([]byte, error) {
	b, err := d.Decode(data, false)
	if err != nil {
		return nil, fmt.Errorf("wire: cut: %w", err)
	}
	have := b.Range()
	switch {
	case r.First < have.First || r.Last > have.Last || r.Last < r.First:
		return nil, fmt.Errorf("wire: cut: %s is not a part of the block's %s", r, have)
	case r == have:
		return bytes.Clone(data), nil
	}
	part := Block{Header: b.Header}
	part.First, part.Count = r.First, r.Len()
	if b.Kind == KindMessages {
		part.Messages = b.Messages[r.First-have.First:][:r.Len()]
		part.Blanked = part.Blanked && slices.ContainsFunc(part.Messages, Message.isBlank)
	}
	out, err := e.Append(nil, &part)
	if err != nil {
		return nil, fmt.Errorf("wire: cut: %w", err)
	}
	return out, nil
}
