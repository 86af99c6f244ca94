package uplink

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	readRetry = 5 * time.Second // after the spool could not be read
	cutRetry  = time.Minute     // after a block could not be cut
)

// load asks for the next block of every queue that has too little for a frame;
// it reports whether any is under way.
func (s *Sender) load() (loading bool) {
	enough := s.looseTarget()
	for i := range s.lanes {
		l := &s.lanes[i]
		for _, q := range l.queues() {
			if !q.loading && s.hungry(q, enough) {
				s.loadNext(l, q)
			}
			loading = loading || q.loading
		}
	}
	return loading
}

// hungry reports whether a queue needs more before its next frame can be made:
// small blocks are gathered, a piece that goes as it is ends the gathering.
func (s *Sender) hungry(q *queue, enough int) bool {
	if len(q.pieces) == 0 {
		return true
	}
	return q.loose < enough && q.pieces[len(q.pieces)-1].block != nil
}

func (s *Sender) loadNext(l *lane, q *queue) {
	var from uint64
	f := l.active(q.fresh)
	if f != nil {
		from = f.wanted(q.fresh)
	}
	if from == 0 || !s.now.Before(q.retryAt) {
		q.problem = nil
	}
	switch {
	case from == 0 || q.problem != nil:
	case !f.known && f.first > f.base && !f.received.Contains(wire.Range{First: f.base, Last: f.first - 1}):
		// Received in part, but not announced: what is neither held nor known to be
		// received must not be taken for lost.
		s.reopen(fmt.Errorf("flow %s was not announced", f.Flow))
	default:
		q.loading = true
		s.do(Load{f.Flow, from})
	}
}

// loaded cuts what the spool has to what the hub lacks.
func (s *Sender) loaded(ev Loaded) {
	l := &s.lanes[ev.Flow.Lane]
	f := s.flows[ev.Flow]
	var q *queue
	for _, o := range l.queues() {
		if o.loading && f != nil && f.wanted(o.fresh) == ev.From {
			q = o
		}
	}
	if s.phase != phaseOpen || q == nil {
		l.main.loading, l.fresh.loading = false, false
		return // of an earlier session, or acked meanwhile
	}
	q.loading = false
	part := f.part(q.fresh)
	if errors.Is(ev.Err, io.EOF) {
		s.lost(q, f, wire.Range{First: ev.From, Last: part.Last})
		return
	}
	h, err := header(ev)
	if err != nil {
		q.wait(s.now, readRetry, err)
		return
	}
	if f.last = max(f.last, h.Last()); q.fresh || f.freshFrom == 0 {
		part.Last = f.last
	}
	if h.First > ev.From && !s.lost(q, f, wire.Range{First: ev.From, Last: min(h.First-1, part.Last)}) {
		return
	}
	r := wire.Range{First: max(h.First, ev.From), Last: min(h.Last(), part.Last)}
	if r.First > r.Last {
		return
	}
	if err := s.take(q, f, ev.Data, &h, f.received.Missing(r)); err != nil {
		q.wait(s.now, cutRetry, err)
		return
	}
	*f.cursorOf(q.fresh) = r.Last + 1
}

// header checks what the spool gave.
func header(ev Loaded) (wire.Header, error) {
	if ev.Err != nil {
		return wire.Header{}, ev.Err
	}
	h, err := wire.ParseHeader(ev.Data)
	switch {
	case err != nil:
		return h, fmt.Errorf("the block at %s/%d: %w", ev.Flow, ev.From, err)
	case h.Flow != ev.Flow || h.Last() < ev.From:
		return h, fmt.Errorf("the spool gave %s/%s for %s/%d", h.Flow, h.Range(), ev.Flow, ev.From)
	}
	return h, nil
}

// lost prepares voids for what of r the hub lacks: it is not held here any more,
// because a hub had acked it once.
func (s *Sender) lost(q *queue, f *flow, r wire.Range) bool {
	for _, m := range f.received.Missing(r) {
		body, err := wire.AppendVoid(nil, wire.Header{
			Flow: f.Flow, Kind: wire.KindVoid, Reason: wire.ReasonHubRewound,
			Base: f.base, First: m.First, Count: m.Len(), Accepted: s.now.UnixMilli(),
		})
		if err != nil {
			q.wait(s.now, readRetry, err)
			return false
		}
		q.add(piece{flow: f, r: m, body: body, lost: true}, s.now)
	}
	*f.cursorOf(q.fresh) = r.Last + 1
	return true
}

// take prepares the parts of a block that the hub lacks. One that fits a frame
// and is large enough goes as it is; of others the messages are sent, in frames
// of the right size.
func (s *Sender) take(q *queue, f *flow, data []byte, h *wire.Header, parts []wire.Range) error {
	if h.Kind == wire.KindMessages && s.repack(len(data), h) {
		m := s.memory.get()
		b, err := s.cutter.decode(&m.Memory, data)
		if err != nil {
			return fmt.Errorf("the block at %s/%d: %w", h.Flow, h.First, err)
		}
		for _, r := range parts {
			p := looseOf(f, b, r)
			p.memory = m
			m.pieces++
			q.add(p, s.now)
		}
		return nil
	}
	for _, r := range parts {
		err := s.cutter.Fit(data, h, r, s.maxBody, func(r wire.Range, body []byte) {
			q.add(piece{flow: f, r: r, body: body}, s.now)
			*f.cursorOf(q.fresh) = r.Last + 1
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// looseOf is the part r of a decoded block.
func looseOf(f *flow, b *wire.Block, r wire.Range) piece {
	part := &wire.Block{Header: b.Header}
	part.Messages = b.Messages[r.First-b.First:][:r.Len():r.Len()]
	part.First, part.Count = r.First, r.Len()
	return piece{flow: f, r: r, block: part, size: sizeOf(part.Messages)}
}

// messageCost is what a message counts for beside its content.
const messageCost = 8

func sizeOf(ms []wire.Message) (n int) {
	for i := range ms {
		n += ms[i].Size() + messageCost
	}
	return n
}

// blanked reports whether any message is blank.
func blanked(ms []wire.Message) bool {
	return slices.ContainsFunc(ms, func(m wire.Message) bool { return m.Blank != 0 })
}
