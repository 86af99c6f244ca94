package spool

import (
	"math"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Messages expire by their own ttl, one by one, and by max_age, block by block.
// Read never hands out what has expired. So that what waits without a link is
// counted and gives its space back too, the keeper looks when something is due,
// though not for every single message.
const (
	expireEvery = 5 * time.Second // of the keeper
	statsEvery  = 200             // milliseconds: of who looks at the counts
	statsLimit  = 2               // segments that are looked into for them
	noLimit     = math.MaxInt
)

// expects notes when a new block of g has to be looked at. mu is held.
func (s *Spool) expects(g *segment, rec record) {
	at := int64(0)
	born := s.bornAt(rec.flow.Epoch, 0)
	if rec.ttl.n > 0 {
		at = rec.ttl.first + born
		if p := partOf(g.parts, rec.flow); p.judged != 0 {
			p.judged = min(p.judged, at)
		}
	}
	if age := s.cfg.MaxAge.Milliseconds(); age > 0 && (at == 0 || rec.accepted+born+age < at) {
		at = rec.accepted + born + age
	}
	if at != 0 && (s.due == 0 || at < s.due) {
		s.due = at
		s.keeper.ask(func() {})
	}
}

// untilDue is how long the keeper may sleep.
func (s *Spool) untilDue() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.due == 0 || s.closed {
		return time.Hour
	}
	at := max(s.due, s.expired+expireEvery.Milliseconds())
	return time.Duration(at-s.time.now()) * time.Millisecond
}

// expireSoon brings the counts up to date for who looks at them.
func (s *Spool) expireSoon() {
	now := s.time.now()
	s.mu.RLock()
	due := !s.closed && s.due != 0 && s.due <= now && s.expired+statsEvery <= now
	s.mu.RUnlock()
	if due && s.expireMu.TryLock() {
		defer s.expireMu.Unlock()
		if s.expire(statsLimit) {
			s.keeper.wantTrim()
		}
	}
}

// expireAll is expire for the keeper.
func (s *Spool) expireAll() (trim bool) {
	s.expireMu.Lock()
	defer s.expireMu.Unlock()
	return s.expire(noLimit)
}

// expire removes what has expired, looking into at most limit segments, and
// reports whether segments may have to be trimmed. expireMu is held.
func (s *Spool) expire(limit int) (trim bool) {
	n, err := s.finishRules()
	if s.cfg.MaxAge > 0 && err == nil {
		var k uint64
		k, err = s.removeAllOld()
		n += k
	}
	if err == nil {
		var k uint64
		k, err = s.removeExpired(limit)
		n += k
	}
	now := s.time.now()
	s.mu.Lock()
	s.expired = now
	if s.due = s.nextDue(now); err != nil {
		s.due = now
	}
	s.mu.Unlock()
	if err != nil {
		s.cfg.Log.Warn("spool: expired messages could not be counted; trying again", "error", err)
	}
	if n > 0 {
		s.notify()
	}
	return n > 0
}

// nextDue is when something may have to be removed next. mu is held.
func (s *Spool) nextDue(now int64) (due int64) {
	note := func(at int64) {
		if due == 0 || at < due {
			due = at
		}
	}
	for _, g := range s.segments {
		if g.gone || s.covered(g) {
			continue
		}
		for i := range g.parts {
			p := &g.parts[i]
			if at := p.expiry(s.bornAt(p.flow.Epoch, 0)); at < never {
				note(max(at, now))
			}
			if age := s.cfg.MaxAge.Milliseconds(); age > 0 {
				note(max(s.bornAt(p.flow.Epoch, p.oldest)+age, now))
			}
		}
	}
	return due
}

const never = math.MaxInt64 / 4

// expiry is when the next message of the part may expire by its ttl, on the
// spool clock; never or later: none does. born is the offset of its epoch.
func (p *part) expiry(born int64) int64 {
	switch {
	case p.ttl.n == 0:
		return never
	case p.judged != 0:
		return p.judged
	}
	return p.ttl.first + born
}

// tooOld reports whether something of that stamp is beyond max_age. mu is held.
func (s *Spool) tooOld(e wire.Epoch, stamp, now int64) bool {
	return s.cfg.MaxAge > 0 && s.bornAt(e, stamp)+s.cfg.MaxAge.Milliseconds() <= now
}

// removeOld removes what of f is beyond max_age.
func (s *Spool) removeOld(f wire.Flow) (uint64, error) {
	last, err := s.olderPrefix(f, s.cfg.MaxAge)
	if err != nil || last == 0 {
		return 0, err
	}
	return s.removePrefixes([]flowUpto{{f, last}}, wire.ReasonMaxAge)
}

// removeAllOld is removeOld for every flow.
func (s *Spool) removeAllOld() (uint64, error) {
	now := s.time.now()
	var flows []wire.Flow
	s.mu.RLock()
	for f, fl := range s.flows {
		for _, g := range fl.segs {
			if p := partOf(g.parts, f); p != nil && !s.covered(g) {
				if s.tooOld(f.Epoch, p.oldest, now) {
					flows = append(flows, f)
				}
				break
			}
		}
	}
	s.mu.RUnlock()
	var upto []flowUpto
	for _, f := range flows {
		last, err := s.olderPrefix(f, s.cfg.MaxAge)
		if err != nil {
			return 0, err
		}
		if last > 0 {
			upto = append(upto, flowUpto{f, last})
		}
	}
	if len(upto) == 0 {
		return 0, nil
	}
	return s.removePrefixes(upto, wire.ReasonMaxAge)
}

// expiring is a part of a segment in which a ttl may have run out.
type expiring struct {
	g     *segment
	flow  wire.Flow
	whole bool // every message in it has expired
	open  []span
}

// removeExpired removes messages whose ttl has run out.
func (s *Spool) removeExpired(limit int) (n uint64, err error) {
	now := s.time.now()
	var todo []expiring
	s.mu.RLock()
	for _, g := range s.segments {
		if g.gone || s.covered(g) {
			continue
		}
		for i := range g.parts {
			p := &g.parts[i]
			born := s.bornAt(p.flow.Epoch, 0)
			if p.expiry(born) > now {
				continue
			}
			e := expiring{g: g, flow: p.flow, whole: p.ttl.n == p.ranges.Len() && p.ttl.last+born <= now}
			fl := s.flows[p.flow]
			for _, r := range p.ranges {
				for _, m := range fl.received.Missing(r) {
					for _, o := range fl.gone.missing(m) {
						e.open = append(e.open, span{p.flow, o})
					}
				}
			}
			todo = append(todo, e)
		}
	}
	s.mu.RUnlock()
	whole := func(c *change) {
		n = 0
		for _, e := range todo {
			for _, o := range e.open {
				if e.whole {
					n += c.remove(s.flow(e.flow), o.Range, wire.ReasonTTL)
				}
			}
		}
	}
	if err := s.alter(whole); err != nil {
		return 0, err
	}
	for _, e := range todo {
		if e.whole {
			continue
		}
		if limit--; limit < 0 {
			break
		}
		k, err := s.judgePart(e)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// judgePart looks into the blocks of a part, and notes when it has to be done again.
func (s *Spool) judgePart(e expiring) (n uint64, err error) {
	at, next, seen := s.time.now(), int64(never), wire.Ranges{}
	err = s.eachFacts(e.open, func(fs []*facts) error {
		for _, f := range fs {
			if due := f.due(at); due != 0 {
				next = min(next, due)
			}
			seen = seen.Add(f.Range)
		}
		k, err := s.judgeAll(fs, at)
		n += k
		return err
	})
	if err != nil {
		return n, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := partOf(e.g.parts, e.flow); p != nil {
		fl := s.flows[e.flow]
		for _, r := range p.ranges { // what came meanwhile was not looked at
			for _, m := range subtract(fl.received.Missing(r), seen) {
				if len(fl.gone.missing(m)) > 0 {
					next = min(next, at+1)
				}
			}
		}
		p.judged = next
	}
	return n, nil
}

// finishRules applies the purges that a stop cut off.
func (s *Spool) finishRules() (n uint64, err error) {
	s.mu.RLock()
	var ids []uint64
	for _, r := range s.rules.rules {
		if !r.Done {
			ids = append(ids, r.ID)
		}
	}
	s.mu.RUnlock()
	for _, id := range ids {
		k, err := s.applyRule(id)
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}
