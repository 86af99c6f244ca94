package spool

import (
	"maps"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// removals is what was removed of one flow. A value is never changed once
// others can see it.
type removals struct {
	gone  goneSet // whole sequences
	noted notes   // messages inside blocks that are still there (rules.go)
}

// change is a step of the removals on its way to the disk. It is durable before
// anybody sees it: before a count is shown, a segment is removed, a void or a
// blank is sent.
type change struct {
	s     *Spool
	flows map[*flowState]*removals
	count map[wire.Reason]int64
	rules *ruleBook

	known []*facts // of blocks that the change may have to look into
	lacks []span   // what it would have to look into besides
	blind bool     // it may not: what is not known stays counted as it is
	stale bool     // the facts are older than what was noted meanwhile
}

// span is a range of a flow.
type span struct {
	wire.Flow
	wire.Range
}

// of is the flow's removals as they are being changed.
func (c *change) of(fl *flowState) *removals {
	if r := c.flows[fl]; r != nil {
		return r
	}
	r := fl.removals
	c.flows[fl] = &r
	return &r
}

// now is the flow's removals with the change, not to be changed.
func (c *change) now(fl *flowState) *removals {
	if r := c.flows[fl]; r != nil {
		return r
	}
	return &fl.removals
}

// book is the rules as they are being changed.
func (c *change) book() *ruleBook {
	if c.rules == nil {
		b := c.s.rules.clone()
		c.rules = &b
	}
	return c.rules
}

// alter makes one step of the removals: do describes it, under mu, maybe more
// than once. Nothing is written if it changes nothing. The reserve comes before
// alterMu; neither it nor mu nor the use of a segment may be held.
func (s *Spool) alter(do func(*change)) error {
	var known []*facts
	for {
		var lacks []span
		err := s.reserved(func() (err error) { lacks, err = s.tryAlter(&change{known: known}, do); return err })
		if len(lacks) == 0 {
			return err
		}
		known = append(known, s.gather(lacks)...)
	}
}

func (s *Spool) tryAlter(c *change, do func(*change)) (lacks []span, err error) {
	s.alterMu.Lock()
	defer s.alterMu.Unlock()
	c.s, c.flows, c.count = s, map[*flowState]*removals{}, map[wire.Reason]int64{}
	s.mu.Lock()
	for _, fl := range s.flows {
		c.stored(fl)
	}
	do(c)
	if len(c.lacks) > 0 || len(c.flows) == 0 && len(c.count) == 0 && c.rules == nil {
		s.mu.Unlock()
		return c.lacks, nil
	}
	for fl, r := range c.flows {
		r.gone = r.gone.brief(fl.received)
	}
	s.pending = c
	s.mu.Unlock()
	err = s.step("remove:note", s.saveMeta)
	s.mu.Lock()
	s.pending = nil
	if err == nil {
		for fl, r := range c.flows {
			fl.removals = *r
			s.freeMemory(fl)
			fl.wakeWaiters()
		}
		s.dropped = c.dropped()
		if c.rules != nil {
			s.rules = *c.rules
		}
	}
	s.mu.Unlock()
	if err == nil {
		err = s.fault("remove:done")
	}
	return nil, err
}

// dropped is the counts with the change. mu is held.
func (c *change) dropped() map[wire.Reason]uint64 {
	out := maps.Clone(c.s.dropped)
	for r, n := range c.count {
		if out[r] = uint64(max(0, int64(out[r])+n)); out[r] == 0 {
			delete(out, r)
		}
	}
	return out
}

// remove notes that r will never come. What is received or gone already does
// not count.
func (c *change) remove(fl *flowState, r wire.Range, why wire.Reason) (n uint64) {
	for _, open := range fl.received.Missing(r) {
		for _, m := range c.now(fl).gone.missing(open) {
			n += c.replace(fl, goneRange{Range: m, reason: why})
		}
	}
	return n
}

// replace makes g of what was maybe noted of its range, and returns how many
// messages that removes. What was handed out as a blank stays what it was: the
// hub may have it.
func (c *change) replace(fl *flowState, g goneRange) uint64 {
	var told goneSet
	for _, o := range c.now(fl).noted.within(g.Range) {
		for _, f := range c.looked(fl, o) {
			told = append(told, toldOf(f, notes{o})...)
		}
	}
	n := g.Len() - c.unnote(fl, g.Range)
	to := c.of(fl)
	to.gone = to.gone.put(g)
	c.count[g.reason] += int64(g.Len())
	for _, b := range told {
		to.gone = to.gone.put(b)
		c.count[g.reason] -= int64(b.Len())
		c.count[b.reason] += int64(b.Len())
	}
	return n
}

// unnote takes back what was noted and counted of r, and returns how many it is.
func (c *change) unnote(fl *flowState, r wire.Range) (n uint64) {
	old := c.now(fl).noted.within(r)
	for _, o := range old {
		for why, k := range c.counted(fl, o, o.is) {
			c.count[why] -= int64(k)
			n += k
		}
		to := c.of(fl)
		to.noted = to.noted.without(o.Range)
	}
	return n
}

// counted is what is removed of the range of a note in some state.
func (c *change) counted(fl *flowState, n note, st state) tally {
	t := tally{}
	for _, f := range c.looked(fl, n) {
		f.tally(t, n.Range, st)
	}
	return t
}

// looked is the facts about the range of a note, as far as they are known.
func (c *change) looked(fl *flowState, n note) (out []*facts) {
	left := wire.Ranges{n.Range}
	for _, f := range c.known {
		if f.flow == fl.Flow && f.rules >= n.is.rules && left.Overlaps(f.Range) {
			out = append(out, f)
			left = subtract(left, wire.Ranges{f.Range})
		}
	}
	if !c.blind {
		for _, r := range left {
			c.lacks = append(c.lacks, span{fl.Flow, r})
		}
	}
	return out
}

// stored takes back what the hub has although it was removed: it was on its way
// by then, and nothing else of it was handed out since.
func (c *change) stored(fl *flowState) {
	for _, g := range c.now(fl).gone {
		for _, r := range g.contentIn(fl.received) {
			to := c.of(fl)
			to.gone = to.gone.without(r)
			c.count[g.reason] -= int64(r.Len())
		}
	}
	for _, r := range fl.received {
		for _, n := range c.now(fl).noted.within(r) {
			c.delivered(fl, n)
		}
	}
}

// delivered: the hub has the range of a note as it was handed out. What was
// removed since is delivered after all.
func (c *change) delivered(fl *flowState, n note) {
	if n.is == n.sent {
		return
	}
	c.unnote(fl, n.Range)
	if n.sent == (state{}) {
		return
	}
	n.is, n.n = n.sent, 0
	for why, k := range c.counted(fl, n, n.is) {
		c.count[why] += int64(k)
		n.n += k
	}
	to := c.of(fl)
	to.noted = to.noted.put(n)
}

// disputed reports whether the hub has something that counts as removed, and
// nothing but its content was ever sent. mu is held.
func (fl *flowState) disputed() bool {
	if slices.ContainsFunc(fl.gone, func(g goneRange) bool { return len(g.contentIn(fl.received)) > 0 }) {
		return true
	}
	for _, r := range fl.received {
		if slices.ContainsFunc(fl.noted.within(r), func(n note) bool { return n.is != n.sent }) {
			return true
		}
	}
	return false
}

// handVoid returns the void for what is gone from seq on. That it was handed out
// becomes durable before.
func (s *Spool) handVoid(f wire.Flow, seq uint64) ([]byte, error) {
	s.mu.RLock()
	fl := s.flows[f]
	g, ok := fl.gone.holds(seq)
	numbered := g.sent == inBlock || g.sent != 0 && g.First == seq && !fl.received.Overlaps(g.Range)
	s.mu.RUnlock()
	if ok && !numbered {
		err := s.alter(func(c *change) {
			gone := c.now(fl).gone
			if g, ok = gone.holds(seq); !ok || g.sent == inBlock || g.sent != 0 && g.First == seq {
				return
			}
			g.First, g.sent = seq, gone.next()
			to := c.of(fl)
			to.gone = to.gone.put(g)
		})
		if err != nil {
			return nil, err
		}
	}
	if !ok || g.reason == 0 {
		return nil, nil // it turned out to be stored
	}
	g.First = max(g.First, seq)
	return wire.AppendVoid(nil, wire.Header{Flow: f, Kind: wire.KindVoid, Reason: g.reason,
		Base: fl.base, First: g.First, Count: g.Len(), Accepted: s.time.stamp()})
}

// goneAtOnce notes what is durable by itself, or found again at the next start:
// the void of a failed commit, damage. mu is held.
func (s *Spool) goneAtOnce(fl *flowState, g goneRange) {
	n := int64(g.Len())
	put := func(rs *removals) {
		for _, o := range rs.noted.within(g.Range) {
			n -= int64(o.n) // counted already
			rs.noted = rs.noted.without(o.Range)
		}
		rs.gone = rs.gone.put(g)
	}
	if s.pending != nil {
		if to := s.pending.flows[fl]; to != nil {
			put(to)
		}
	}
	n = int64(g.Len())
	put(&fl.removals)
	s.dropped = maps.Clone(s.dropped)
	s.dropped[g.reason] += uint64(max(0, n))
}
