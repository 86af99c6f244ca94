package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Inspector looks at what a spool holds without consuming it: at that of a
// running agent (Spool.Inspector), or at a folder that nobody has open
// (Inspect). It holds one block at a time, whatever the backlog.
type Inspector struct {
	s   *Spool
	bad []SegmentInfo // that Inspect could not take in
}

// Inspector lets a person look at an open spool.
func (s *Spool) Inspector() *Inspector { return &Inspector{s: s} }

// SegmentInfo is what a segment holds of one flow.
type SegmentInfo struct {
	Segment  string // folder, within that of the spool
	State    string // head, sealed, unsealed (a crash left it, it is sealed later), memory, damaged
	Flow     wire.Flow
	Ranges   wire.Ranges
	Blocks   int
	Bytes    int64     // encoded
	Messages uint64    // sequences, voids included
	Waiting  uint64    // of them, what the hub has not acknowledged
	Oldest   time.Time // acceptance
	Problem  string    // of a damaged one
}

// HubID is the hub that the spool belongs to; empty before the first session.
func (in *Inspector) HubID() string { return in.s.HubID() }

// Segments lists what is held, in sending order.
func (in *Inspector) Segments() []SegmentInfo {
	s := in.s
	var out []SegmentInfo
	var of []*segment
	s.mu.RLock()
	for _, fl := range s.inOrder() {
		for _, g := range fl.segs {
			p := partOf(g.parts, fl.Flow)
			if p == nil || len(p.ranges) == 0 {
				continue
			}
			info := SegmentInfo{
				Segment: g.name(), Flow: fl.Flow, Ranges: slices.Clone(p.ranges), Blocks: p.blocks, Bytes: p.bytes,
				Messages: p.ranges.Len(), Waiting: subtract(p.ranges, fl.received).Len(), Oldest: s.wallOf(s.bornAt(fl.Epoch, p.oldest)),
			}
			out, of = append(out, info), append(of, g)
		}
	}
	s.mu.RUnlock()
	for i, g := range of {
		out[i].State, out[i].Problem = s.stateOf(g)
	}
	return append(out, in.bad...)
}

// inOrder lists the flows in sending order. mu is held.
func (s *Spool) inOrder() (out []*flowState) {
	for l := range wire.Lane(wire.NumLanes) {
		for _, e := range s.epochs {
			if fl := s.flows[wire.Flow{Epoch: e, Lane: l}]; fl != nil {
				out = append(out, fl)
			}
		}
	}
	return out
}

// Query chooses messages.
type Query struct {
	Lanes  []wire.Lane // none: all
	Filter string      // of subjects, with * and >; empty: all
	Newest bool        // begin with the newest of each lane
}

// Held is a message that the hub has not acknowledged.
type Held struct {
	Flow     wire.Flow
	Seq      uint64
	Accepted time.Time // of its block
	wire.Message
}

// ErrEnough ends Messages early, without an error.
var ErrEnough = errors.New("spool: enough")

// Messages calls each for what is chosen: the more urgent lane first, in a lane
// as it will be sent, or the other way round. What each is given is valid during
// the call.
func (in *Inspector) Messages(ctx context.Context, q Query, each func(*Held) error) error {
	p := peeker{in: in, q: q, each: each, dec: wire.NewDecoder()}
	flows := pick(in.s.Flows(), q.Lanes)
	if q.Newest { // lanes stay in order
		slices.SortStableFunc(reversed(flows), func(a, b wire.FlowHeld) int { return int(a.Lane) - int(b.Lane) })
	}
	for _, f := range flows {
		var err error
		if q.Newest {
			err = p.backwards(ctx, f)
		} else {
			err = in.blocks(ctx, f, func(h *wire.Header, data []byte) error { return p.block(h, data, wire.MaxSeq) })
		}
		if errors.Is(err, ErrEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func reversed(flows []wire.FlowHeld) []wire.FlowHeld {
	slices.Reverse(flows)
	return flows
}

func pick(flows []wire.FlowHeld, lanes []wire.Lane) []wire.FlowHeld {
	if len(lanes) == 0 {
		return flows
	}
	return slices.DeleteFunc(flows, func(f wire.FlowHeld) bool { return !slices.Contains(lanes, f.Lane) })
}

// blocks reads what is held of a flow, in order, up to what was known when f was
// taken.
func (in *Inspector) blocks(ctx context.Context, f wire.FlowHeld, each func(h *wire.Header, data []byte) error) error {
	at := visit{s: in.s}
	defer at.leave()
	for from := f.First; from <= f.Last; {
		if err := ctx.Err(); err != nil {
			return err
		}
		at.move(f.Flow, from)
		data, err := in.s.Read(f.Flow, from)
		if errors.Is(err, ErrEnd) {
			return nil
		}
		if err != nil {
			return err
		}
		h, err := wire.ParseHeader(data)
		if err != nil {
			return fmt.Errorf("%w: %s from %d: %w", ErrDiskFault, f.Flow, from, err)
		}
		if h.First > f.Last {
			return nil // accepted since
		}
		if err := each(&h, data); err != nil {
			return err
		}
		from = h.Last() + 1
	}
	return nil
}

// visit is the segment that is being read. One that was left is closed: while
// it is open, its files count as memory of the process.
type visit struct {
	s *Spool
	g *segment
}

// move is called before the sequence from is read.
func (p *visit) move(f wire.Flow, from uint64) {
	p.s.mu.RLock()
	g, _, _ := p.s.flows[f].holder(from)
	p.s.mu.RUnlock()
	if g != p.g {
		p.leave()
		p.g = g
	}
}

func (p *visit) leave() {
	if p.g == nil {
		return
	}
	p.s.mu.Lock()
	i := slices.Index(p.s.open, p.g)
	if i >= 0 {
		p.s.open = slices.Delete(slices.Clone(p.s.open), i, i+1)
	}
	p.s.mu.Unlock()
	if i >= 0 {
		p.s.closeSealed(p.g)
	}
	p.g = nil
}

// peeker shows the messages of blocks.
type peeker struct {
	in   *Inspector
	q    Query
	each func(*Held) error
	dec  *wire.Decoder
}

// block shows what is chosen of a block, up to the sequence most.
func (p *peeker) block(h *wire.Header, data []byte, most uint64) error {
	if h.Kind == wire.KindVoid || !slices.ContainsFunc(h.Subjects, p.takes) {
		return nil
	}
	b, err := p.dec.Decode(data, false)
	if err != nil {
		return fmt.Errorf("%w: %s %s: %w", ErrDiskFault, h.Flow, h.Range(), err)
	}
	waiting := p.in.waiting(h.Flow, h.Range())
	for i := range b.Messages {
		if p.q.Newest {
			i = len(b.Messages) - 1 - i
		}
		m, seq := &b.Messages[i], h.First+uint64(i)
		if seq > most || m.Blank != 0 || !p.takes(m.Subject) || !waiting.Contains(wire.Range{First: seq, Last: seq}) {
			continue
		}
		if err := p.each(&Held{h.Flow, seq, time.UnixMilli(h.Accepted), *m}); err != nil {
			return err
		}
	}
	return nil
}

func (p *peeker) takes(subject string) bool {
	return p.q.Filter == "" || wire.MatchFilter(p.q.Filter, subject)
}

// backwards shows a flow from its end.
func (p *peeker) backwards(ctx context.Context, f wire.FlowHeld) error {
	at := visit{s: p.in.s}
	defer at.leave()
	for most := f.Last; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		seq, ok := p.in.highest(f.Flow, most)
		if !ok {
			return nil
		}
		at.move(f.Flow, seq)
		data, err := p.in.s.Read(f.Flow, seq)
		if err != nil && !errors.Is(err, ErrEnd) {
			return err
		}
		if err == nil {
			h, err := wire.ParseHeader(data)
			if err != nil {
				return fmt.Errorf("%w: %s %d: %w", ErrDiskFault, f.Flow, seq, err)
			}
			if h.First <= seq { // else it has gone meanwhile
				if err := p.block(&h, data, most); err != nil {
					return err
				}
				seq = h.First
			}
		}
		if seq <= f.First {
			return nil
		}
		most = seq - 1
	}
}

// highest is the highest sequence ≤ most that is in a segment and not received.
func (in *Inspector) highest(f wire.Flow, most uint64) (seq uint64, ok bool) {
	in.s.mu.RLock()
	defer in.s.mu.RUnlock()
	fl := in.s.flows[f]
	if fl == nil {
		return 0, false
	}
	for _, g := range slices.Backward(fl.segs) {
		p := partOf(g.parts, f)
		if p == nil {
			continue
		}
		for _, r := range slices.Backward(p.ranges) {
			if r.Last = min(r.Last, most); r.First > r.Last {
				continue
			}
			if open := fl.received.Missing(r); len(open) > 0 {
				seq, ok = max(seq, open[len(open)-1].Last), true
			}
		}
	}
	return seq, ok
}

// waiting is what of r the hub has not acknowledged.
func (in *Inspector) waiting(f wire.Flow, r wire.Range) wire.Ranges {
	in.s.mu.RLock()
	defer in.s.mu.RUnlock()
	if fl := in.s.flows[f]; fl != nil {
		return fl.received.Missing(r)
	}
	return nil
}

// Export writes a portable file of what is held (sync/wire/EXPORT.md). Flows and
// hub of the head are filled in.
func (in *Inspector) Export(ctx context.Context, w io.Writer, head wire.ExportHead, lanes []wire.Lane) (wire.ExportTotals, error) {
	head.HubID, head.Flows = in.HubID(), pick(in.s.Flows(), lanes)
	x, err := wire.NewExportWriter(w, head)
	if err != nil {
		return wire.ExportTotals{}, err
	}
	for _, f := range head.Flows {
		if err := in.blocks(ctx, f, func(_ *wire.Header, data []byte) error { return x.Block(data) }); err != nil {
			return x.Totals(), err
		}
	}
	return x.Totals(), x.End()
}
