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
	n    uint64
	ttl  int64  // milliseconds; 0: none
	rule uint64 // the first that takes them; 0: none
}

// factsOf looks at a decoded block.
func (b *ruleBook) factsOf(blk *wire.Block, born int64) *facts {
	f := &facts{flow: blk.Flow, Range: blk.Range(), born: born, rules: b.last}
	bySubject := map[string][]*rule{}
	for i := range blk.Messages {
		m := &blk.Messages[i]
		run := factRun{1, m.TTL, 0}
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
					run.rule = r.ID
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

// verdict is why a message is removed by the clock and the rules up to some id;
// 0: it is not.
func (f *facts) verdict(run factRun, at int64, upto uint64) wire.Reason {
	switch {
	case run.ttl > 0 && f.born+run.ttl <= at:
		return wire.ReasonTTL
	case run.rule > 0 && run.rule <= upto:
		return wire.ReasonPurge
	}
	return 0
}

// each calls do for the runs in r, each with its verdict.
func (f *facts) each(r wire.Range, at int64, upto uint64, do func(r wire.Range, why wire.Reason)) {
	first := f.First
	for _, run := range f.runs {
		last := first + run.n - 1
		if first <= r.Last && last >= r.First {
			do(wire.Range{First: max(first, r.First), Last: min(last, r.Last)}, f.verdict(run, at, upto))
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

func (f *facts) tally(into tally, r wire.Range, at int64, upto uint64) {
	f.each(r, at, upto, func(r wire.Range, why wire.Reason) {
		if why != 0 {
			into[why] += r.Len()
		}
	})
}

// note says that a range was judged: by the clock at some time and by the rules
// up to some id. What these remove is counted.
type note struct {
	wire.Range
	at    int64
	rules uint64
	sent  bool   // handed out so; before, the hub can only have all of it
	n     uint64 // removed; an estimate once the range was split
}

func (n note) like(o note) bool { return n.at == o.at && n.rules == o.rules && n.sent == o.sent }

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

// notesOf is the notes with the change.
func (c *change) notesOf(fl *flowState) notes {
	if r := c.flows[fl]; r != nil {
		return r.noted
	}
	return fl.removals.noted
}

// judge applies clock and rules to a block: counts what they remove, and lets
// go of the block, or of a part of it, if nothing is left. send: it is about to
// be handed out so. What was handed out before is judged anew only then.
func (c *change) judge(fl *flowState, f *facts, at int64, send bool) {
	for _, open := range fl.received.Missing(f.Range) {
		for _, m := range c.now(fl).gone.missing(open) {
			left := wire.Ranges{m}
			if !send {
				for _, n := range c.now(fl).noted.within(m) {
					if n.sent {
						left = subtract(left, wire.Ranges{n.Range})
					}
				}
			}
			for _, r := range left {
				c.judgePart(fl, f, r, at, send)
			}
		}
	}
}

// judgePart is judge for a range that is neither received nor gone.
func (c *change) judgePart(fl *flowState, f *facts, r wire.Range, at int64, send bool) {
	was, is := tally{}, tally{}
	sent := true
	for _, n := range c.now(fl).noted.within(r) {
		if n.rules > f.rules {
			c.stale = true // judged by newer rules meanwhile
			return
		}
		f.tally(was, n.Range, n.at, n.rules)
		sent, at = sent && n.sent, max(at, n.at)
	}
	f.tally(is, r, at, f.rules)
	total := uint64(0)
	for _, k := range is {
		total += k
	}
	if maps.Equal(was, is) && (sent || !send) {
		return // verdicts only ever grow: these are the same
	}
	for why, k := range is {
		c.count[why] += int64(k)
	}
	for why, k := range was {
		c.count[why] -= int64(k)
	}
	to := c.of(fl)
	to.noted = to.noted.without(r)
	if len(is) == 1 && total == r.Len() {
		for why := range is {
			to.gone = to.gone.put(goneRange{Range: r, reason: why, final: send})
		}
		return
	}
	to.noted = to.noted.put(note{Range: r, at: at, rules: f.rules, sent: send, n: total})
}

// finish: r leaves the disk, the hub has all of it. Which of its messages were
// removed is not known any longer.
func (c *change) finish(fl *flowState, r wire.Range) {
	for _, n := range c.now(fl).noted.within(r) {
		to := c.of(fl)
		to.noted = to.noted.without(n.Range)
		to.gone = to.gone.put(goneRange{Range: n.Range, final: true})
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
