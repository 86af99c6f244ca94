package model

import (
	"fmt"
	"strconv"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// place is a message's identity: what the whole protocol turns on.
type place struct {
	subject
	seq uint64
}

// checker knows what publishers were promised and everything that was ever
// stored, purged or not. The first fault ends the run.
type checker struct {
	dec    *wire.Decoder
	acked  map[int]place      // by message; the first place, should copies go on alike
	atRisk map[int]bool       // a disk that held it was wiped, replaced or damaged
	ever   map[place]int      // what the ledger ever held
	where  map[int]place      // the same by message
	order  map[subject]uint64 // last sequence stored
	route  []int              // the projection, as it should be
	fault  error
}

func newChecker() *checker {
	return &checker{
		dec: wire.NewDecoder(), acked: map[int]place{}, atRisk: map[int]bool{},
		ever: map[place]int{}, where: map[int]place{}, order: map[subject]uint64{},
	}
}

func (c *checker) fail(format string, args ...any) {
	if c.fault == nil {
		c.fault = fmt.Errorf(format, args...)
	}
}

// stored looks at a block as it enters the ledger.
func (c *checker) stored(b uplink.LedgerBlock) {
	blk, err := c.dec.Decode(b.Data, false)
	if err != nil {
		c.fail("an undecodable block is stored: %v", err)
		return
	}
	s := subject{b.Device, b.Flow}
	if blk.Kind == wire.KindVoid {
		c.fail("%v %s: a void, though no hub lost anything", s, blk.Range())
		return
	}
	for i, m := range blk.Messages {
		id, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			c.fail("payload %q: %v", m.Payload, err)
			return
		}
		p := place{s, blk.First + uint64(i)}
		if old, dup := c.ever[p]; dup {
			c.fail("duplicated: %v/%d is stored twice (messages %d and %d)", s, p.seq, old, id)
		}
		if old, dup := c.where[id]; dup {
			c.fail("duplicated: message %d is stored at %v and %v", id, old, p)
		}
		if p.seq <= c.order[s] {
			c.fail("reordered: %v/%d follows %d", s, p.seq, c.order[s])
		}
		c.ever[p], c.where[id], c.order[s] = id, p, p.seq
		c.route = append(c.route, id)
	}
}

// told looks at what an agent is told to be received, before it drops it.
func (c *checker) told(device string, f *spoolFlow, set wire.Ranges) {
	for i, m := range f.msgs {
		seq := f.base + uint64(i)
		if seq < f.trimmed || !set.Contains(wire.Range{First: seq, Last: seq}) {
			continue
		}
		id, ok := c.ever[place{subject{device, f.Flow}, seq}]
		if !ok {
			c.fail("lost: %s is told that the hub has %s/%d, which it never had", device, f.Flow, seq)
		} else if id != m.id {
			c.fail("swallowed: %s is told that the hub has %s/%d, but there is message %d in the place of %d", device, f.Flow, seq, id, m.id)
		}
	}
}

// final looks at the end of a run, when every living agent is drained.
func (c *checker) final() {
	for id, p := range c.acked {
		if _, ok := c.where[id]; !ok && !c.atRisk[id] {
			c.fail("lost: message %d, promised as %v", id, p)
		}
	}
}
