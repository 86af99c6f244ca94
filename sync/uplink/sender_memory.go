package uplink

import "github.com/fieldpost/fieldpost/sync/wire"

const (
	spareMost  = 5       // decoded blocks whose memory waits to be used again
	spareFrame = 4 << 10 // messages of a frame for which the list is kept
)

// memory lends what decoded blocks and frames lie in: a backlog would else make
// a multiple of itself in garbage.
type memory struct {
	frame []wire.Message // of the frame that is made
	gone  []*blockMemory // of the pieces that it took to the end
	spare []*blockMemory
}

// blockMemory holds one decoded block.
type blockMemory struct {
	wire.Memory
	pieces int // that are not sent yet
}

func (m *memory) get() *blockMemory {
	n := len(m.spare)
	if n == 0 {
		return &blockMemory{}
	}
	b := m.spare[n-1]
	m.spare = m.spare[:n-1]
	return b
}

// left notes that the frame that is made has the last messages of a piece.
func (m *memory) left(b *blockMemory) {
	if b != nil {
		m.gone = append(m.gone, b)
	}
}

// recycle: the frame is encoded, nobody looks at its messages any more.
func (m *memory) recycle() {
	for _, b := range m.gone {
		if b.pieces--; b.pieces == 0 && len(m.spare) < spareMost && b.Small() {
			m.spare = append(m.spare, b)
		}
	}
	clear(m.gone)
	m.gone = m.gone[:0]
	if clear(m.frame); cap(m.frame) > spareFrame {
		m.frame = nil
	}
}

// drop: the frame was not made, and what it consists of is loaded anew.
func (m *memory) drop() {
	clear(m.gone)
	m.gone = m.gone[:0]
}
