package unpack

import (
	"context"
	"strings"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Unrouted counts the messages of the ledger that no route takes: they reach no
// stream, and go with their blocks. The count and the place up to which it
// counts are saved in one write, so each message is counted once.
type Unrouted struct {
	Messages uint64 `json:"messages"`
	Subject  string `json:"subject,omitempty"` // of the newest
	Block    uint64 `json:"block,omitempty"`   // ledger sequence of the newest
}

// gapsEntry is how far the ledger was looked through, and what was counted.
type gapsEntry struct {
	Checkpoint
	Unrouted Unrouted `json:"unrouted,omitzero"`
}

// Unrouted is what was counted so far.
func (u *Unpacker) Unrouted() Unrouted {
	u.gaps.mu.Lock()
	defer u.gaps.mu.Unlock()
	return u.gaps.seen
}

func (g *gaps) show(n Unrouted) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = n
}

// standby keeps Unrouted fresh while another instance counts.
func (g *gaps) standby(ctx context.Context) {
	s := saved[gapsEntry]{kv: g.state.kv, key: g.state.key}
	if found, err := s.load(ctx); err == nil && found {
		g.show(s.val.Unrouted)
	}
}

// count adds the messages of a block that no route takes. Blocks of which the
// dictionary has no such subject are not decoded.
func (g *gaps) count(n *Unrouted, tables Tables, m store.Stored) {
	table := tables.At(m.Seq)
	if table.all() || m.Header[hdrMark] != nil || m.Header[hdrVoid] != nil {
		return
	}
	h, err := wire.ParseHeader(m.Data)
	if err != nil {
		return // whoever unpacks it finds that out
	}
	left := map[string]bool{}
	for _, s := range h.Subjects {
		if table.Route(s) == nil {
			left[s] = true
		}
	}
	if len(left) == 0 {
		return
	}
	if g.dec == nil {
		g.dec = wire.NewDecoder()
	}
	b, err := g.dec.Decode(m.Data, false)
	if err != nil {
		return // as above
	}
	for i := range b.Messages {
		if msg := &b.Messages[i]; msg.Blank == 0 && left[msg.Subject] {
			n.Messages++
			n.Subject, n.Block = strings.Clone(msg.Subject), m.Seq
		}
	}
}
