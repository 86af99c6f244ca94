package spool

import (
	"maps"
	"slices"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Messages that expire by their own ttl, or that an operator purged by subject,
// lie among others in one block. They are not listed one by one: a rule says
// which they are, and a note says how far the rules were applied to a range and
// counted. Read blanks what its note counts, so what is counted is what the hub
// never gets.

// rule is a purge by subject: of each flow, everything up to a sequence whose
// subject matches.
type rule struct {
	ID     uint64     `json:"id"`
	At     int64      `json:"at"` // spool clock
	Filter string     `json:"filter"`
	Upto   []flowUpto `json:"upto"`
	Done   bool       `json:"done"` // applied to everything that is held
}

type flowUpto struct {
	wire.Flow
	Last uint64 `json:"last"`
}

func (r *rule) upto(f wire.Flow) uint64 {
	for _, u := range r.Upto {
		if u.Flow == f {
			return u.Last
		}
	}
	return 0
}

// ruleBook is the rules in force, by ascending id. A value is never changed once
// others can see it.
type ruleBook struct {
	last  uint64 // id
	rules []rule
}

// maxRules bounds the purges by subject that wait for the hub at a time.
const maxRules = 64

func (b *ruleBook) clone() ruleBook { return ruleBook{b.last, slices.Clone(b.rules)} }

// covers reports whether any rule concerns f at or after seq.
func (b *ruleBook) covers(f wire.Flow, seq uint64) bool {
	return slices.ContainsFunc(b.rules, func(r rule) bool { return r.upto(f) >= seq })
}

// facts is what the rules need to know of a block.
type facts struct {
	flow wire.Flow
	wire.Range
	born  int64  // spool clock at acceptance
	rules uint64 // the newest that was looked at
	runs  []factRun
}

// factRun is neighbours that are alike.
type factRun struct {
	n      uint64
	ttl    int64  // milliseconds; 0: none
	rule   uint64 // the first that takes them; 0: none
	purged int64  // spool clock: when that was
}

// factsOf looks at a decoded block.
func (b *ruleBook) factsOf(blk *wire.Block, born int64) *facts {
	f := &facts{flow: blk.Flow, Range: blk.Range(), born: born, rules: b.last}
	bySubject := map[string][]*rule{}
	for i := range blk.Messages {
		m := &blk.Messages[i]
		run := factRun{n: 1, ttl: m.TTL}
		if len(b.rules) > 0 {
			takes, known := bySubject[m.Subject]
			if !known {
				for j := range b.rules {
					if wire.MatchFilter(b.rules[j].Filter, m.Subject) {
						takes = append(takes, &b.rules[j])
					}
				}
				bySubject[m.Subject] = takes
			}
			for _, r := range takes {
				if r.upto(blk.Flow) >= blk.First+uint64(i) {
					run.rule, run.purged = r.ID, r.At
					break
				}
			}
		}
		if n := len(f.runs); n > 0 && f.runs[n-1].ttl == run.ttl && f.runs[n-1].rule == run.rule {
			f.runs[n-1].n++
			continue
		}
		f.runs = append(f.runs, run)
	}
	if blk.Kind == wire.KindVoid {
		f.runs = []factRun{{n: blk.Count}}
	}
	return f
}

// state is how far clock and rules were applied: the clock, and the rules up to
// some id. The zero value is not at all.
type state struct {
	at    int64
	rules uint64
}

// verdict is why a message is removed in that state; 0: it is not. Of two reasons
// the one that came first counts, so that a verdict never changes any more.
func (f *facts) verdict(run factRun, st state) wire.Reason {
	if st == (state{}) {
		return 0
	}
	expired := run.ttl > 0 && f.born+run.ttl <= st.at
	purged := run.rule > 0 && run.rule <= st.rules
	switch {
	case expired && (!purged || f.born+run.ttl <= run.purged):
		return wire.ReasonTTL
	case purged:
		return wire.ReasonPurge
	}
	return 0
}

// each calls do for the runs in r that are removed in that state.
func (f *facts) each(r wire.Range, st state, do func(r wire.Range, why wire.Reason)) {
	first := f.First
	for _, run := range f.runs {
		last := first + run.n - 1
		if first <= r.Last && last >= r.First {
			if why := f.verdict(run, st); why != 0 {
				do(wire.Range{First: max(first, r.First), Last: min(last, r.Last)}, why)
			}
		}
		first = last + 1
	}
}

// due is when the next of its messages expires after at; 0: none does.
func (f *facts) due(at int64) (next int64) {
	for _, run := range f.runs {
		if end := f.born + run.ttl; run.ttl > 0 && end > at && (next == 0 || end < next) {
			next = end
		}
	}
	return next
}

// tally is how many messages are removed for which reason.
type tally map[wire.Reason]uint64

func (f *facts) tally(into tally, r wire.Range, st state) {
	f.each(r, st, func(r wire.Range, why wire.Reason) { into[why] += r.Len() })
}

// note says in which state a range was judged. What that removes is counted.
type note struct {
	wire.Range
	is   state
	sent state  // in which it was handed out the last time; zero: whole, if at all
	n    uint64 // removed; an estimate once the range was split
}

func (n note) like(o note) bool { return n.is == o.is && n.sent == o.sent }

// part is what the note says of r.
func (n note) part(r wire.Range) note {
	all := n.Len()
	n.First, n.Last = max(n.First, r.First), min(n.Last, r.Last)
	n.n = uint64(float64(n.n) * float64(n.Len()) / float64(all))
	return n
}

// notes is sorted and disjoint, and never changed: operations return new ones.
type notes []note

func (ns notes) within(r wire.Range) (out notes) {
	for _, n := range ns {
		if n.Last >= r.First && n.First <= r.Last {
			out = append(out, n.part(r))
		}
	}
	return out
}

func (ns notes) without(r wire.Range) notes {
	out := make(notes, 0, len(ns)+1)
	for _, n := range ns {
		if n.Last < r.First || n.First > r.Last {
			out = append(out, n)
			continue
		}
		if n.First < r.First {
			out = append(out, n.part(wire.Range{First: n.First, Last: r.First - 1}))
		}
		if n.Last > r.Last {
			out = append(out, n.part(wire.Range{First: r.Last + 1, Last: n.Last}))
		}
	}
	return out
}

func (ns notes) put(n note) notes {
	out := ns.without(n.Range)
	i, _ := slices.BinarySearchFunc(out, n.First, func(o note, seq uint64) int {
		if o.First < seq {
			return -1
		}
		return 1
	})
	out = slices.Insert(out, i, n)
	merged := out[:0]
	for _, n := range out {
		if k := len(merged); k > 0 && merged[k-1].Last+1 == n.First && merged[k-1].like(n) {
			merged[k-1].Last, merged[k-1].n = n.Last, merged[k-1].n+n.n
			continue
		}
		merged = append(merged, n)
	}
	return merged
}

// judge applies clock and rules to the part in of a block: counts what they
// remove, and lets go of the part if nothing is left. send: it is about to be
// handed out so.
func (c *change) judge(fl *flowState, f *facts, in wire.Range, at int64, send bool) {
	for _, open := range fl.received.Missing(in) {
		for _, m := range c.now(fl).gone.missing(open) {
			c.judgePart(fl, f, m, state{at, f.rules}, send)
		}
	}
}

// judgePart is judge for a range that is neither received nor gone.
func (c *change) judgePart(fl *flowState, f *facts, r wire.Range, to state, send bool) {
	was, is, told := tally{}, tally{}, tally{}
	old := c.now(fl).noted.within(r)
	for _, n := range old {
		if n.is.rules > to.rules {
			c.stale = true // judged by newer rules meanwhile
			return
		}
		f.tally(was, n.Range, n.is)
		f.tally(told, n.Range, n.sent)
		to.at = max(to.at, n.is.at)
	}
	f.tally(is, r, to)
	if maps.Equal(was, is) && (!send || maps.Equal(told, is)) {
		return // verdicts only ever grow: these are the same
	}
	total := uint64(0)
	for why, k := range is {
		c.count[why] += int64(k)
		total += k
	}
	for why, k := range was {
		c.count[why] -= int64(k)
	}
	rs := c.of(fl)
	if len(is) == 1 && total == r.Len() {
		var whole goneSet
		for why := range is {
			whole = append(whole, goneRange{Range: r, reason: why})
		}
		whole = append(whole, toldOf(f, old)...)
		rs.noted = rs.noted.without(r)
		for _, g := range whole {
			rs.gone = rs.gone.put(g)
		}
		return
	}
	left := wire.Ranges{r}
	for _, n := range old {
		left = subtract(left, wire.Ranges{n.Range})
		n.is = to
		c.note(fl, f, n, send)
	}
	for _, l := range left {
		c.note(fl, f, note{Range: l, is: to}, send)
	}
}

// note replaces what is noted of n's range.
func (c *change) note(fl *flowState, f *facts, n note, send bool) {
	if send {
		n.sent = n.is
	}
	t := tally{}
	f.tally(t, n.Range, n.is)
	n.n = t[wire.ReasonTTL] + t[wire.ReasonPurge]
	rs := c.of(fl)
	rs.noted = rs.noted.put(n)
}

// toldOf is what was handed out as blank.
func toldOf(f *facts, ns notes) (out goneSet) {
	for _, n := range ns {
		f.each(n.Range, n.sent, func(r wire.Range, why wire.Reason) {
			out = append(out, goneRange{r, why, inBlock})
		})
	}
	return out
}

// finish: r leaves the disk, the hub has all of it. Which of its messages were
// removed is not known any longer.
func (c *change) finish(fl *flowState, r wire.Range) {
	for _, n := range c.now(fl).noted.within(r) {
		to := c.of(fl)
		to.noted = to.noted.without(n.Range)
		to.gone = to.gone.put(goneRange{Range: n.Range})
	}
}

// forgetRules drops the rules of which everything has left the disk.
func (c *change) forgetRules() {
	over := func(r rule) bool {
		return r.Done && !slices.ContainsFunc(r.Upto, func(u flowUpto) bool {
			_, at, ok := c.s.flows[u.Flow].holder(1)
			return ok && at <= u.Last
		})
	}
	if slices.ContainsFunc(c.s.rules.rules, over) {
		b := c.book()
		b.rules = slices.DeleteFunc(b.rules, over)
	}
}
