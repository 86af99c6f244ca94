package spool

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Selection says which messages to purge. The zero value is all of them.
type Selection struct {
	Lanes     []wire.Lane   // none: all
	Filter    string        // of subjects, with * and >; empty or ">": all
	OlderThan time.Duration // by the spool clock; 0: any age
}

// Purge removes what is selected of everything that is held now, and returns
// how many messages these are. The hub gets voids of reason purge instead. It is
// durable when Purge returns; with an error some of it may be.
func (s *Spool) Purge(sel Selection) (removed uint64, err error) {
	if sel.Filter != "" {
		if err := wire.CheckFilter(sel.Filter); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	s.mu.RLock()
	closed := s.closed
	var picked []wire.Flow
	for f := range s.flows {
		if len(sel.Lanes) == 0 || slices.Contains(sel.Lanes, f.Lane) {
			picked = append(picked, f)
		}
	}
	s.mu.RUnlock()
	if closed {
		return 0, ErrClosed
	}
	var upto []flowUpto
	for _, f := range picked {
		last, err := s.olderPrefix(f, sel.OlderThan)
		if err != nil {
			return 0, fmt.Errorf("spool: purge: %w", err)
		}
		if last > 0 {
			upto = append(upto, flowUpto{f, last})
		}
	}
	if len(upto) == 0 {
		return 0, nil
	}
	if sel.Filter == "" || sel.Filter == ">" {
		removed, err = s.removePrefixes(upto, wire.ReasonPurge)
	} else {
		removed, err = s.purgeBySubject(sel.Filter, upto)
	}
	s.keeper.wantTrim()
	s.notify()
	if err != nil {
		return removed, fmt.Errorf("spool: purge: %w", err)
	}
	return removed, nil
}

// removePrefixes removes everything that is held of the flows up to a sequence.
func (s *Spool) removePrefixes(upto []flowUpto, why wire.Reason) (n uint64, err error) {
	err = s.alter(func(c *change) {
		n = 0
		for _, u := range upto {
			fl := s.flow(u.Flow)
			for _, r := range fl.held() {
				if r.Last = min(r.Last, u.Last); r.First <= r.Last {
					n += c.remove(fl, r, why)
				}
			}
		}
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// held is what the segments have of the flow. mu is held.
func (fl *flowState) held() (out wire.Ranges) {
	for _, g := range fl.segs {
		if p := partOf(g.parts, fl.Flow); p != nil {
			for _, r := range p.ranges {
				if n := len(out); n > 0 && out[n-1].Last+1 == r.First {
					out[n-1].Last = r.Last
				} else {
					out = out.Add(r)
				}
			}
		}
	}
	return out
}

// olderPrefix returns up to where everything of f is older than age. Blocks are
// as old as their first message.
func (s *Spool) olderPrefix(f wire.Flow, age time.Duration) (last uint64, err error) {
	limit := s.time.now() - age.Milliseconds()
	s.mu.RLock()
	fl := s.flows[f]
	if fl == nil || age <= 0 {
		defer s.mu.RUnlock()
		if fl == nil {
			return 0, nil
		}
		return fl.last, nil
	}
	var at *segment
	for _, g := range fl.segs {
		p := partOf(g.parts, f)
		if p == nil || len(p.ranges) == 0 {
			continue
		}
		if p.newest == 0 || s.bornAt(f.Epoch, p.newest) > limit {
			if s.bornAt(f.Epoch, p.oldest) <= limit {
				at = g
			}
			break
		}
		last = p.ranges[len(p.ranges)-1].Last
	}
	s.mu.RUnlock()
	if at == nil {
		return last, nil
	}
	for seq := last + 1; ; { // blocks of a segment, at most a few thousand
		s.mu.RLock()
		next, open := fl.unsettled(at, seq)
		s.mu.RUnlock()
		if !open {
			return last, nil // what is left of the segment needs no removing
		}
		last, seq = max(last, next-1), next
		r, data, err := s.fetch(at, f, seq)
		if errors.Is(err, ErrEnd) {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		h, err := wire.ParseHeader(data)
		if err != nil {
			return 0, err
		}
		s.mu.RLock()
		young := s.bornAt(f.Epoch, h.Accepted) > limit
		s.mu.RUnlock()
		if young {
			return last, nil
		}
		last, seq = r.Last, r.Last+1
	}
}

// purgeBySubject makes a rule of the purge, which holds from then on, and
// applies it to what is held.
func (s *Spool) purgeBySubject(filter string, upto []flowUpto) (uint64, error) {
	s.expireMu.Lock() // nobody else counts for it
	defer s.expireMu.Unlock()
	var id uint64
	err := s.alter(func(c *change) {
		id = 0
		if b := c.book(); len(b.rules) < maxRules {
			b.last++
			id = b.last
			b.rules = append(b.rules, rule{ID: id, At: s.time.now(), Filter: filter, Upto: upto})
		}
	})
	if err != nil {
		return 0, err
	}
	if id == 0 {
		return 0, fmt.Errorf("%w: %d purges by subject wait for the hub already; let it take some of the backlog, or purge without a filter", ErrInvalid, maxRules)
	}
	return s.applyRule(id)
}

// applyRule counts what the rule removes of everything that is held.
func (s *Spool) applyRule(id uint64) (removed uint64, err error) {
	s.mu.RLock()
	var todo []span
	for _, r := range s.rules.rules {
		if r.ID != id || r.Done {
			continue
		}
		for _, u := range r.Upto {
			if fl := s.flows[u.Flow]; fl != nil {
				for _, h := range fl.held() {
					if h.Last = min(h.Last, u.Last); h.First <= h.Last {
						todo = append(todo, span{u.Flow, h})
					}
				}
			}
		}
	}
	s.mu.RUnlock()
	err = s.eachFacts(todo, func(fs []*facts) error {
		n, err := s.judgeAll(fs, s.time.now())
		removed += n
		return err
	})
	if err != nil {
		return removed, err
	}
	return removed, s.alter(func(c *change) {
		for i, b := 0, c.book(); i < len(b.rules); i++ {
			b.rules[i].Done = b.rules[i].Done || b.rules[i].ID == id
		}
	})
}

// judgeAll applies clock and rules to blocks and returns how many messages that
// removes.
func (s *Spool) judgeAll(fs []*facts, at int64) (n uint64, err error) {
	err = s.alter(func(c *change) {
		before := c.total()
		for _, f := range fs {
			if fl := s.flows[f.flow]; fl != nil {
				c.judge(fl, f, f.Range, at, false)
			}
		}
		n = uint64(max(0, c.total()-before))
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// total is how many messages the change removes.
func (c *change) total() (n int64) {
	for _, k := range c.count {
		n += k
	}
	return n
}
