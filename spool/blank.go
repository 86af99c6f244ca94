package spool

import (
	"errors"
	"fmt"
	"sync"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// codec decodes and encodes for whoever has to look inside blocks. It is made
// when it is needed and let go when it was not for a while: it takes megabytes.
type codec struct {
	mu   sync.Mutex
	dec  *wire.Decoder // guarded by mu
	enc  *wire.Encoder // guarded by mu
	used bool          // guarded by mu
}

// with runs do while nobody else uses the codec. What is decoded must not be
// kept.
func (c *codec) with(do func(dec *wire.Decoder, enc *wire.Encoder) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dec == nil {
		c.dec, c.enc = wire.NewDecoder(), wire.NewEncoder(wire.Fast)
	}
	c.used = true
	return do(c.dec, c.enc)
}

// rest lets go of the codec if nobody has used it since the last rest.
func (c *codec) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.used {
		c.dec, c.enc = nil, nil
	}
	c.used = false
}

// fetch is tryFetch until it succeeds. ErrEnd: there is no such block in g, or
// no such segment any more.
func (s *Spool) fetch(g *segment, f wire.Flow, seq uint64) (r wire.Range, data []byte, err error) {
	for range 1000 {
		s.mu.RLock()
		p := partOf(g.parts, f)
		ok := !g.gone && p != nil
		if ok {
			seq, ok = lowest(p.ranges, seq)
		}
		s.mu.RUnlock()
		if !ok {
			return r, nil, ErrEnd
		}
		r, data, again, err := s.tryFetch(g, f, seq)
		if !again || err != nil {
			return r, data, err
		}
	}
	return r, nil, fmt.Errorf("%w: %s changes faster than it can be read", ErrDiskFault, g.dir)
}

// factsOf decodes a block.
func (s *Spool) factsOf(data []byte) (fs *facts, err error) {
	err = s.codec.with(func(dec *wire.Decoder, _ *wire.Encoder) error {
		b, err := dec.Decode(data, false)
		if err != nil {
			return err
		}
		s.mu.RLock()
		book, born := s.rules, s.bornAt(b.Epoch, b.Accepted)
		s.mu.RUnlock()
		fs = book.factsOf(b, born)
		return nil
	})
	return fs, err
}

// factsBatch is so many runs of facts that take no more memory than a block.
const factsBatch = 16 << 10

// eachFacts looks at every block that holds a part of the spans, in order, and
// calls do for a few at a time.
func (s *Spool) eachFacts(spans []span, do func([]*facts) error) error {
	var batch []*facts
	runs := 0
	for _, sp := range spans {
		for seq := sp.First; seq <= sp.Last; {
			s.mu.RLock()
			g, at, _ := s.flows[sp.Flow].holder(seq)
			s.mu.RUnlock()
			if g == nil || at > sp.Last {
				break
			}
			r, data, err := s.fetch(g, sp.Flow, at)
			if errors.Is(err, ErrEnd) {
				seq = at + 1
				continue
			}
			if err != nil {
				return err
			}
			fs, err := s.factsOf(data)
			if err != nil {
				return fmt.Errorf("look into %s %s: %w", sp.Flow, r, err)
			}
			batch, runs, seq = append(batch, fs), runs+len(fs.runs), r.Last+1
			if runs >= factsBatch {
				if err := do(batch); err != nil {
					return err
				}
				batch, runs = nil, 0
			}
		}
	}
	if len(batch) == 0 {
		return nil
	}
	return do(batch)
}

// holder is the segment with the lowest sequence ≥ seq.
func (fl *flowState) holder(seq uint64) (g *segment, at uint64, ok bool) {
	if fl == nil {
		return nil, 0, false
	}
	for _, c := range fl.segs {
		if p := partOf(c.parts, fl.Flow); p != nil {
			if low, has := lowest(p.ranges, seq); has && (g == nil || low < at) {
				g, at = c, low
			}
		}
	}
	return g, at, g != nil
}

// gather is the facts about spans. What cannot be read counts for nothing: it
// stays counted as it is.
func (s *Spool) gather(spans []span) (out []*facts) {
	err := s.eachFacts(spans, func(fs []*facts) error { out = append(out, fs...); return nil })
	if err != nil {
		s.cfg.Log.Warn("spool: a count of removed messages stays as it is", "error", err)
	}
	left := map[wire.Flow]wire.Ranges{}
	for _, f := range out {
		left[f.flow] = left[f.flow].Add(f.Range)
	}
	for _, sp := range spans {
		for _, r := range left[sp.Flow].Missing(sp.Range) {
			out = append(out, &facts{flow: sp.Flow, Range: r, rules: ^uint64(0), runs: []factRun{{n: r.Len()}}})
		}
	}
	return out
}

// touched reports whether anything in r of f was removed, or may have to be.
func (s *Spool) touched(f wire.Flow, r wire.Range) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fl := s.flows[f]
	if len(fl.gone.within(r)) > 0 || len(fl.noted.within(r)) > 0 || s.rules.covers(f, r.First) {
		return true
	}
	now := s.time.now()
	for _, g := range fl.segs {
		if p := partOf(g.parts, f); p != nil && p.ranges.Overlaps(r) {
			return p.expiry(s.bornAt(f.Epoch, 0)) <= now || s.tooOld(f.Epoch, p.oldest, now)
		}
	}
	return false
}

// handOut gives a block that was read to who wants seq of it, without what was
// removed. nil: nothing is left of seq, look again.
func (s *Spool) handOut(f wire.Flow, r wire.Range, seq uint64, data []byte) ([]byte, error) {
	if !s.touched(f, r) {
		return data, nil
	}
	fs, err := s.factsOf(data)
	if err != nil {
		return nil, fmt.Errorf("%w: look into %s %s: %w", ErrDiskFault, f, r, err)
	}
	fl, at, stale := (*flowState)(nil), s.time.now(), false
	if s.cfg.MaxAge > 0 && fs.born+s.cfg.MaxAge.Milliseconds() <= at {
		_, err := s.removeOld(f)
		return nil, err
	}
	err = s.alter(func(c *change) {
		fl = s.flow(f)
		if r, ok := c.now(fl).gone.around(seq, r); ok {
			c.judge(fl, fs, r, at, true)
		}
		stale = c.stale
	})
	if err != nil || stale {
		return nil, err
	}
	s.mu.RLock()
	r, ok := fl.gone.around(seq, r)
	noted := fl.noted.within(r)
	s.mu.RUnlock()
	if !ok {
		return nil, nil
	}
	return s.blank(data, fs, r, noted)
}

// blank re-encodes the part r of a block without the content of what was removed.
func (s *Spool) blank(data []byte, fs *facts, r wire.Range, noted notes) (out []byte, err error) {
	removed := map[uint64]wire.Reason{}
	for _, n := range noted.within(r) {
		fs.each(n.Range, n.is, func(r wire.Range, why wire.Reason) {
			for seq := r.First; seq <= r.Last; seq++ {
				removed[seq] = why
			}
		})
	}
	if len(removed) == 0 && r == fs.Range {
		return data, nil
	}
	err = s.codec.with(func(dec *wire.Decoder, enc *wire.Encoder) error {
		b, err := dec.Decode(data, false)
		if err != nil {
			return err
		}
		part := wire.Block{Header: b.Header}
		part.First, part.Count = r.First, r.Len()
		if b.Kind != wire.KindVoid {
			part.Messages = b.Messages[r.First-b.First:][:r.Len()]
		}
		for seq, why := range removed {
			m := &part.Messages[seq-r.First]
			*m = wire.Message{Time: m.Time, TTL: m.TTL, Unsynced: m.Unsynced, Blank: why}
			part.Blanked = true
		}
		out, err = enc.Append(nil, &part)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: cut %s out of %s %s: %w", ErrDiskFault, r, fs.flow, fs.Range, err)
	}
	return out, nil
}
