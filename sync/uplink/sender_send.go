package uplink

import "github.com/fieldpost/fieldpost/sync/wire"

// unwrittenMost is how many bytes may wait for the socket: what is behind them an
// urgent message cannot overtake.
const unwrittenMost = 256 << 10

// natsCost is about what NATS adds to a frame and what its ack costs.
const natsCost = 64

// send fills the window. Blocks are loaded only when there is room, and choosing
// waits until every lane that has something shows it.
func (s *Sender) send() {
	s.wakeAt = never
	for !s.window.full() && s.unwritten < unwrittenMost {
		if s.load() || s.phase != phaseOpen {
			return
		}
		l, q := s.choose()
		if l == nil || !s.fits(q) {
			break
		}
		if !s.launch(l, q) {
			return
		}
	}
	s.hold()
}

// hold notes that there was more to send than the link took.
func (s *Sender) hold() {
	if !s.window.full() && s.unwritten < unwrittenMost {
		return
	}
	for i := range s.lanes {
		if fl := s.lanes[i].flights; len(fl) > 0 {
			fl[len(fl)-1].mark.limited = true
		}
	}
}

// choose is the lane that sends next, and its queue: the most urgent with
// something to send, unless one that had to wait is owed its share. What waits
// for company, or may not use the link now, does not take part.
func (s *Sender) choose() (first *lane, queue *queue) {
	for i := range s.lanes {
		l := &s.lanes[i]
		q := s.ripest(wire.Lane(i), s.chooseQueue(l))
		switch {
		case q == nil:
			l.credit = 0
		case !s.may(wire.Lane(i), q):
		case first == nil:
			first, queue = l, q
		case l.credit >= s.costOf(q):
			return l, q
		}
	}
	return first, queue
}

// chooseQueue is the lane's queue that goes next: the fresh one, unless the
// backlog is owed its share.
func (s *Sender) chooseQueue(l *lane) *queue {
	fresh, main := len(l.fresh.pieces) > 0, len(l.main.pieces) > 0
	switch {
	case fresh && main && l.share >= s.costOf(&l.main):
		return &l.main
	case fresh:
		return &l.fresh
	case main:
		return &l.main
	}
	return nil
}

// may reports whether a queue may send now; if not, it notes when to look again.
func (s *Sender) may(lane wire.Lane, q *queue) bool {
	if !s.ripe(lane, q) {
		s.wakeAt = earliest(s.wakeAt, q.since.Add(s.cfg.Flush))
		return false
	}
	if n := s.begins(q); n > 0 {
		if !s.slots.room(n) {
			return false
		}
		if s.now.Before(s.largeAt) {
			s.wakeAt = earliest(s.wakeAt, s.largeAt)
			return false
		}
	}
	if s.cfg.Policy == nil {
		return true
	}
	ok, again := s.cfg.Policy.Allow(s.now, lane)
	if !ok && !again.IsZero() {
		s.wakeAt = earliest(s.wakeAt, again)
	}
	return ok
}

// ripe reports whether a queue need not wait for company any longer.
func (s *Sender) ripe(lane wire.Lane, q *queue) bool {
	return s.cfg.Flush == 0 || lane == wire.Urgent || q.pieces[0].block == nil ||
		!s.now.Before(q.since.Add(s.cfg.Flush)) || !s.hungry(q, s.looseTarget())
}

// ripest is the lane's other queue instead of q, if that waits for company no
// longer than q.
func (s *Sender) ripest(lane wire.Lane, q *queue) *queue {
	if q == nil || s.ripe(lane, q) {
		return q
	}
	o := s.lanes[lane].other(q)
	if len(o.pieces) > 0 && (s.ripe(lane, o) || o.since.Before(q.since)) {
		return o
	}
	return q
}

// launch sends the next frame of a lane's queue; false: it cannot be made.
func (s *Sender) launch(l *lane, q *queue) bool {
	p, typ, err := s.next(q)
	if err != nil {
		return false
	}
	n := len(p.body)
	s.account(l, q, n)
	if p.gone == 0 && p.flow.sent.Overlaps(p.r) && !p.lost {
		s.do(Redelivered{})
	}
	p.flow.note(p.r)
	if s.window.inflight == 0 {
		s.owed = s.now
	}
	fl := flight{flow: p.flow, r: p.r, bytes: n, sent: s.now, lost: p.lost, more: p.more, whole: p.whole, mark: s.window.sent(s.now, n)}
	fl.lazy = s.relaxed()
	s.carry(wire.Frame{Type: typ, Body: p.body, Backfill: p.flow.freshFrom > 0 && !q.fresh || s.freshFirst() && p.flow.Epoch != s.epoch, Lazy: fl.lazy})
	fl.counter, s.lazy = s.counter, fl.lazy
	if typ == wire.FrameChunk && p.gone == 0 {
		s.begun = s.counter
	}
	l.flights = append(l.flights, fl)
	return true
}

// relaxed reports whether the frame about to leave is one of a trickle: nothing
// waits behind it, and nobody for its ack.
func (s *Sender) relaxed() bool {
	if s.window.inflight > s.window.size()/2 {
		return false
	}
	for i := range s.lanes {
		for _, q := range s.lanes[i].queues() {
			if len(q.pieces) > 0 || s.lanes[i].active(q.fresh) != nil && s.lanes[i].active(q.fresh).wanted(q.fresh) > 0 {
				return false
			}
		}
	}
	return !s.waited
}

// account gives the lanes, and the backlog, that wait behind n bytes their share.
// A lane is never owed more than one frame.
func (s *Sender) account(l *lane, q *queue, n int) {
	l.credit = max(l.credit-n, 0)
	for i := range s.lanes {
		if o := &s.lanes[i]; o != l {
			if waits := s.chooseQueue(o); waits != nil { // for long, maybe, if it may not use the link
				o.credit = min(o.credit+max(n/waitShare, 1), s.costOf(waits))
			}
		}
		if &s.lanes[i] == l && s.cfg.Policy != nil {
			s.cfg.Policy.Sent(s.now, wire.Lane(i), n+natsCost)
		}
	}
	switch {
	case !q.fresh:
		l.share = max(l.share-n, 0)
	case len(l.main.pieces) > 0:
		l.share += n * (100 - s.cfg.FreshShare) / s.cfg.FreshShare
	}
}
