package wire

import (
	"fmt"
	"hash/crc32"
)

// MaxBlock is the largest block that travels in chunks: one message of 8 MiB, its
// headers and its columns.
const MaxBlock = 9 << 20

// MaxChunked is how many bytes of blocks a session may have on their way in chunks:
// begun, and not acked.
const MaxChunked = 2 * MaxBlock

// Chunk is a part of a block that is too large for one frame. The chunks of one
// block share a slot; others may travel between them.
type Chunk struct {
	Slot  uint8  // below MaxSlots
	First bool   // it begins a block, whatever the slot holds
	Left  uint64 // bytes of the block that follow in later chunks; 0: this is the last
	Data  []byte
}

// MaxSlots is how many blocks of one session may be on their way in chunks.
const MaxSlots = 2 * NumLanes

// ChunkHead is the most that a chunk's head takes.
const ChunkHead = 1 + 4

// chunkFirst is the bit of the slot's byte that begins a block.
const chunkFirst = 1 << 7

// AppendChunk encodes c as the body of a FrameChunk.
func AppendChunk(dst []byte, c Chunk) []byte {
	slot := c.Slot
	if c.First {
		slot |= chunkFirst
	}
	dst = append(dst, slot)
	dst = appendUvarint(dst, c.Left)
	return append(dst, c.Data...)
}

// ParseChunk decodes the body of a FrameChunk. Data aliases it.
func ParseChunk(body []byte) (Chunk, error) {
	in := cursor{b: body, part: "chunk"}
	slot := in.u8()
	c := Chunk{Slot: slot &^ chunkFirst, First: slot&chunkFirst != 0, Left: in.uvarint()}
	c.Data = in.bytes(in.rest())
	switch {
	case in.err != nil:
	case c.Slot >= MaxSlots:
		in.fail(ErrCorrupt, "slot %d of %d", c.Slot, MaxSlots)
	case len(c.Data) == 0:
		in.fail(ErrCorrupt, "it is empty")
	case c.Left > MaxBlock || c.Left+uint64(len(c.Data)) > MaxBlock:
		in.fail(ErrLimit, "a block of more than %d bytes", MaxBlock)
	}
	if in.err != nil {
		return Chunk{}, in.err
	}
	return c, nil
}

// Partial is the beginning of a block that a hub holds from chunks of an earlier
// session: who has the same block goes on from there.
type Partial struct {
	Slot  uint8  `json:"slot"`
	Bytes int    `json:"bytes"` // of the block that are there
	Size  int    `json:"size"`  // of all of it
	CRC   uint32 `json:"crc"`   // CRC-32C of what is there
}

func (p *Partial) check() error {
	if p.Slot >= MaxSlots || p.Bytes < 1 || p.Size <= p.Bytes || p.Size > MaxBlock {
		return fmt.Errorf("partial in slot %d: %d of %d bytes", p.Slot, p.Bytes, p.Size)
	}
	return nil
}

// Begins reports whether block begins with what the hub holds.
func (p *Partial) Begins(block []byte) bool {
	return len(block) == p.Size && p.CRC == UpdateCRC(0, block[:p.Bytes])
}

// UpdateCRC adds data to the checksum of a Partial.
func UpdateCRC(crc uint32, data []byte) uint32 { return crc32.Update(crc, castagnoli, data) }
