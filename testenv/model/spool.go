package model

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// message is one acked message: its payload is its number.
type message struct{ id int }

// spoolFlow is what a spool knows of one flow.
type spoolFlow struct {
	wire.Flow
	base     uint64
	msgs     []message // from base on, trimmed ones included
	trimmed  uint64    // everything below it is gone from the disk
	received wire.Ranges
}

func (f *spoolFlow) last() uint64 { return f.base + uint64(len(f.msgs)) - 1 }

// spool is a durable queue as DESIGN describes it: epochs, sequences that go on
// per lane, trimming of what the hub has.
type spool struct {
	flows []*spoolFlow          // oldest first
	next  [wire.NumLanes]uint64 // sequence of the lane's next message
	epoch wire.Epoch            // zero until the first message of this run
}

func newSpool() *spool {
	s := &spool{}
	for i := range s.next {
		s.next[i] = 1
	}
	return s
}

// copy is a backup, or the disk of a clone.
func (s *spool) copy() *spool {
	c := *s
	c.flows = nil
	for _, f := range s.flows {
		g := *f
		g.msgs = slices.Clone(f.msgs)
		c.flows = append(c.flows, &g)
	}
	return &c
}

// start begins a run. A run that goes on with the epoch of an earlier one breaks
// the rule that makes copies harmless.
func (s *spool) start(sameEpoch bool) {
	if !sameEpoch {
		s.epoch = wire.Epoch{}
	}
}

func (s *spool) append(rng *rand.Rand, lane wire.Lane, m message) (wire.Flow, uint64) {
	if s.epoch.IsZero() {
		for i := range s.epoch {
			s.epoch[i] = byte(rng.Uint32())
		}
	}
	w := wire.Flow{Epoch: s.epoch, Lane: lane}
	f := s.find(w)
	if f == nil {
		f = &spoolFlow{Flow: w, base: s.next[lane], trimmed: s.next[lane]}
		s.flows = append(s.flows, f)
	}
	f.msgs = append(f.msgs, m)
	s.next[lane] = f.last() + 1
	return w, f.last()
}

func (s *spool) find(w wire.Flow) *spoolFlow {
	for _, f := range s.flows {
		if f.Flow == w {
			return f
		}
	}
	return nil
}

// cutHead loses the newest n messages of the current epoch's lane.
func (s *spool) cutHead(lane wire.Lane, n int) (lost []message) {
	for i := len(s.flows) - 1; i >= 0; i-- {
		f := s.flows[i]
		if f.Lane != lane {
			continue
		}
		n = min(n, int(f.last()+1-f.trimmed))
		lost = f.msgs[len(f.msgs)-n:]
		f.msgs = f.msgs[:len(f.msgs)-n]
		s.next[lane] = f.last() + 1
		if len(f.msgs) == 0 {
			s.flows = slices.Delete(s.flows, i, i+1)
		}
		break
	}
	return lost
}

func (s *spool) held() []wire.FlowHeld {
	var out []wire.FlowHeld
	for lane := range wire.Lane(wire.NumLanes) {
		for _, f := range s.flows {
			if f.Lane == lane && f.trimmed <= f.last() {
				out = append(out, wire.FlowHeld{Flow: f.Flow, Base: f.base, First: f.trimmed, Last: f.last()})
			}
		}
	}
	return out
}

// read returns a block around from, cut at random: boundaries must not matter.
func (s *spool) read(rng *rand.Rand, enc *wire.Encoder, w wire.Flow, from uint64) ([]byte, error) {
	f := s.find(w)
	if f == nil || max(from, f.trimmed) > f.last() {
		return nil, io.EOF
	}
	first := max(from, f.trimmed)
	if back := first - f.trimmed; back > 0 && rng.IntN(2) == 0 {
		first -= rng.Uint64N(min(back, 4) + 1)
	}
	last := max(from, f.trimmed)
	last += rng.Uint64N(min(f.last()-last, 6) + 1)
	b := &wire.Block{Header: wire.Header{Flow: w, Kind: wire.KindMessages, Base: f.base, First: first, Accepted: 1}}
	for _, m := range f.msgs[first-f.base : last-f.base+1] {
		b.Messages = append(b.Messages, wire.Message{Subject: "a.b", Payload: fmt.Append(nil, m.id), Time: 1})
	}
	return enc.Append(nil, b)
}

// setReceived takes in what the hub has; some of it is trimmed now, some later.
func (s *spool) setReceived(rng *rand.Rand, w wire.Flow, set wire.Ranges) {
	f := s.find(w)
	if f == nil {
		return
	}
	f.received = f.received.Union(set)
	for f.trimmed <= f.last() && f.received.Contains(wire.Range{First: f.trimmed, Last: f.trimmed}) && rng.IntN(8) > 0 {
		f.trimmed++
	}
}

// drained reports whether the hub has everything.
func (s *spool) drained() bool {
	for _, f := range s.flows {
		if f.trimmed <= f.last() && !f.received.Contains(wire.Range{First: f.trimmed, Last: f.last()}) {
			return false
		}
	}
	return true
}
