package unpack

import (
	"fmt"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// pieces puts blocks together that are too large for one message of the ledger.
// Those of one block follow each other, as they were stored in one atomic batch.
// The zero value is ready.
type pieces struct {
	whole store.Stored // what has come of it; Seq is that of its first piece
	n     int          // pieces that have come; 0: none is awaited
	of    int
}

// add takes in the ledger's next message. It returns the block once it is whole,
// under the sequence of its first piece and with the headers of its last. An
// error, beside that piece, means that others of it are missing.
func (p *pieces) add(m store.Stored) (whole store.Stored, ok bool, err error) {
	v := m.Header.Get(hdrPiece)
	if v == "" {
		p.n = 0
		return m, true, nil
	}
	i, of, _ := wire.ParsePart(v)
	switch {
	case i == 1 && of > 1:
		p.whole, p.n, p.of = m, 1, of
		p.whole.Data = append(make([]byte, 0, min(of*len(m.Data), wire.MaxBlock)), m.Data...)
		return m, false, nil
	case p.n > 0 && i == p.n+1 && of == p.of && m.Subject == p.whole.Subject && m.Seq == p.whole.Seq+uint64(p.n) &&
		len(p.whole.Data)+len(m.Data) <= wire.MaxBlock:
		p.n++
		p.whole.Data = append(p.whole.Data, m.Data...)
		if i < of {
			return m, false, nil
		}
		whole = p.whole
		whole.Header, whole.Time = m.Header, m.Time
		*p = pieces{}
		return whole, true, nil
	}
	*p = pieces{}
	if i < of {
		return m, false, nil // its last piece tells
	}
	return m, true, fmt.Errorf("%w: piece %.32q without the others, or of more than a block", wire.ErrCorrupt, v)
}

// open reports whether a block has begun that is not whole yet.
func (p *pieces) open() bool { return p.n > 0 }
