package unpack

import (
	"errors"
	"fmt"
)

// Position is a place in the projection of the ledger to one stream: everything
// before Block, and Index projected messages of it. A message above the part
// size counts once for each part.
type Position struct {
	Block uint64 `json:"block"` // ledger sequence
	Index uint64 `json:"index"`
}

// Before reports whether p lies before q.
func (p Position) Before(q Position) bool {
	return p.Block < q.Block || p.Block == q.Block && p.Index < q.Index
}

func (p Position) String() string { return fmt.Sprintf("%d/%d", p.Block, p.Index) }

// Checkpoint states a fact that stays true for ever: when the stream's last
// sequence was StreamSeq, it had taken everything before the position, and
// nothing after.
type Checkpoint struct {
	Incarnation string `json:"incarnation"` // of the ledger
	Position
	StreamSeq uint64 `json:"stream_seq"`
}

// ErrRewound means that the stream has lost messages since the checkpoint: it
// was removed, or restored from an older copy.
var ErrRewound = errors.New("unpack: the stream is older than the checkpoint")

// Resume returns how many projected messages from the checkpoint's position on
// the stream already has, purged ones included, given its last sequence.
func (c Checkpoint) Resume(streamLast uint64) (skip uint64, err error) {
	if streamLast < c.StreamSeq {
		return 0, fmt.Errorf("%w: last sequence %d, checkpoint %d", ErrRewound, streamLast, c.StreamSeq)
	}
	return streamLast - c.StreamSeq, nil
}

// Cut returns what is left of the projection of one block: pos and skip are
// those of the resume, and what this block takes of them is taken off.
func Cut(pos *Position, skip *uint64, seq uint64, outs []Out) []Out {
	if seq == pos.Block {
		outs = outs[min(pos.Index, uint64(len(outs))):]
	}
	n := min(*skip, uint64(len(outs)))
	*skip -= n
	return outs[n:]
}
