package uplink

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	readRetry  = 5 * time.Second // after the spool could not be read
	largeRetry = time.Minute     // after a message did not fit; the hub may have changed
)

// send fills the window. Blocks are loaded one a lane, only when there is room,
// and choosing waits until every lane that has something shows it.
func (s *Sender) send() {
	for !s.window.full() {
		if s.load() || s.phase != phaseOpen {
			return
		}
		l := s.choose()
		if l == nil || !s.window.room(len(l.pieces[0].body)) {
			return
		}
		s.launch(l)
	}
}

// load asks for the next block of every lane that has none; it reports whether
// any is under way.
func (s *Sender) load() (loading bool) {
	for i := range s.lanes {
		l := &s.lanes[i]
		if len(l.pieces) == 0 && !l.loading {
			s.loadNext(l)
		}
		loading = loading || l.loading
	}
	return loading
}

func (s *Sender) loadNext(l *lane) {
	var from uint64
	f := l.active()
	if f != nil {
		from = f.wanted()
	}
	if from == 0 || !s.now.Before(l.retryAt) {
		l.problem = nil
	}
	switch {
	case from == 0 || l.problem != nil:
	case !f.known && f.first > f.base && !f.received.Contains(wire.Range{First: f.base, Last: f.first - 1}):
		// Received in part, but not announced: what is neither held nor known to be
		// received must not be taken for lost.
		s.reopen(fmt.Errorf("flow %s was not announced", f.Flow))
	default:
		l.loading = true
		s.do(Load{f.Flow, from})
	}
}

// loaded cuts what the spool has to what the hub lacks.
func (s *Sender) loaded(ev Loaded) {
	l := &s.lanes[ev.Flow.Lane]
	l.loading = false
	f := s.flows[ev.Flow]
	if s.phase != phaseOpen || f == nil || f.wanted() != ev.From {
		return // of an earlier session, or acked meanwhile
	}
	if errors.Is(ev.Err, io.EOF) {
		s.lost(l, f, wire.Range{First: ev.From, Last: f.last})
		return
	}
	h, err := header(ev)
	if err != nil {
		l.wait(s.now, readRetry, err)
		return
	}
	f.last = max(f.last, h.Last())
	if h.First > ev.From && !s.lost(l, f, wire.Range{First: ev.From, Last: h.First - 1}) {
		return
	}
	for _, r := range f.received.Missing(wire.Range{First: max(h.First, ev.From), Last: h.Last()}) {
		if err := s.fit(l, f, ev.Data, &h, r); err != nil {
			l.wait(s.now, largeRetry, err)
			return
		}
	}
	f.cursor = h.Last() + 1
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
func (s *Sender) lost(l *lane, f *flow, r wire.Range) bool {
	for _, m := range f.received.Missing(r) {
		body, err := wire.AppendVoid(nil, wire.Header{
			Flow: f.Flow, Kind: wire.KindVoid, Reason: wire.ReasonHubRewound,
			Base: f.base, First: m.First, Count: m.Len(), Accepted: s.now.UnixMilli(),
		})
		if err != nil {
			l.wait(s.now, readRetry, err)
			return false
		}
		l.pieces = append(l.pieces, piece{flow: f, r: m, body: body, lost: true})
	}
	f.cursor = r.Last + 1
	return true
}

// fit prepares the part r of a block, in as many pieces as the hub's largest
// payload asks for. On an error everything before it is prepared.
func (s *Sender) fit(l *lane, f *flow, block []byte, h *wire.Header, r wire.Range) error {
	return s.cutter.Fit(block, h, r, s.maxBody, func(r wire.Range, body []byte) {
		l.pieces = append(l.pieces, piece{flow: f, r: r, body: body})
		f.cursor = r.Last + 1
	})
}

// choose is the lane that sends next: the most urgent with something to send,
// unless one that had to wait is owed its share.
func (s *Sender) choose() *lane {
	var first *lane
	for i := range s.lanes {
		l := &s.lanes[i]
		switch {
		case len(l.pieces) == 0:
			l.credit = 0
		case first == nil:
			first = l
		case l.credit >= len(l.pieces[0].body):
			return l
		}
	}
	return first
}

// launch sends the lane's next piece.
func (s *Sender) launch(l *lane) {
	p := l.pieces[0]
	l.pieces[0] = piece{} // let go of the body
	l.pieces = l.pieces[1:]
	n := len(p.body)
	l.credit = max(l.credit-n, 0)
	for i := range s.lanes {
		if o := &s.lanes[i]; o != l && len(o.pieces) > 0 {
			o.credit += max(n/waitShare, 1)
		}
	}
	if p.r.First <= p.flow.sentTo && !p.lost {
		s.do(Redelivered{})
	}
	p.flow.sentTo = max(p.flow.sentTo, p.r.Last)
	s.frame(wire.FrameBlock, p.body)
	if s.window.inflight == 0 {
		s.owed = s.now
	}
	s.window.inflight += n
	l.flights = append(l.flights, flight{
		flow: p.flow, r: p.r, bytes: n, counter: s.counter, sent: s.now, lost: p.lost, limited: s.window.full(),
	})
}
