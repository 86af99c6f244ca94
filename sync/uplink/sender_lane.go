package uplink

import (
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// waitShare: a lane that waits is owed one byte in so many that pass ahead of it.
const waitShare = 8

// lane sends its flows one after another, the oldest epoch first. In fresh-first
// what has come since the session opened is a queue of its own and goes ahead.
type lane struct {
	flows   []*flow // in sending order
	main    queue
	fresh   queue
	flights []flight // sent, not received yet, in order
	credit  int      // bytes that it may send ahead of more urgent lanes
	share   int      // bytes of backlog that are owed a place before fresh ones
}

// queue is what a lane sends in order.
type queue struct {
	fresh   bool
	loading bool      // a Load is under way
	pieces  []piece   // ready to be sent, in order
	loose   int       // bytes of messages among them that are not encoded yet
	since   time.Time // when the first of them came
	problem error     // why it waits until retryAt
	retryAt time.Time
}

// flow is one epoch's part of a lane.
type flow struct {
	wire.Flow
	base, first, last uint64 // as the spool says: held is first to last
	listed            bool   // the spool still holds some of it

	received  wire.Ranges // by the hub, as it said in this session
	known     bool        // announced when the session was opened, so received is all there is
	cursor    uint64      // of this session: everything below, up to freshFrom, is sent or received
	freshFrom uint64      // from there on it belongs to the lane's fresh queue; 0: all to main
	freshNext uint64      // the cursor there
	sent      wire.Ranges // of all sessions: what was ever sent
}

// piece is a part of a block that the hub lacks: encoded, or its messages.
type piece struct {
	flow  *flow
	r     wire.Range
	body  []byte
	gone  int  // bytes of the body that went before, in chunks
	slot  int  // of the chunks, if some went
	more  bool // of a frame: the body is a chunk, and others follow
	whole int  // of a frame: it is the last chunk of so many bytes
	lost  bool // a void for what the hub has lost and the spool no longer holds

	block  *wire.Block  // instead of body: Header's Accepted and Base, and Messages of r
	size   int          // of the messages
	memory *blockMemory // where they lie
}

// flight is a piece on its way.
type flight struct {
	flow    *flow
	r       wire.Range
	bytes   int
	counter uint64
	sent    time.Time
	mark    mark
	lost    bool
	lazy    bool // its ack may have waited
	more    bool // a chunk that others follow: it has landed when it is taken in
	whole   int  // the last chunk of a block of so many bytes
}

// drain is how far an epoch is reported drained.
type drain struct {
	epoch   wire.Epoch
	counter uint64 // of this session's frame; 0: none sent
	done    bool   // the hub took it in
}

func (f *flow) all() wire.Range { return wire.Range{First: f.base, Last: f.last} }

// complete reports whether the hub has everything of the flow so far.
func (f *flow) complete() bool { return f.last < f.base || f.received.Contains(f.all()) }

// part is what of the flow a queue sends; empty (Last < First) if nothing.
func (f *flow) part(fresh bool) wire.Range {
	switch {
	case fresh && f.freshFrom == 0:
		return wire.Range{First: 1}
	case fresh:
		return wire.Range{First: f.freshFrom, Last: f.last}
	case f.freshFrom > 0:
		return wire.Range{First: f.base, Last: min(f.last, f.freshFrom-1)}
	}
	return f.all()
}

// cursorOf is the queue's cursor in the flow.
func (f *flow) cursorOf(fresh bool) *uint64 {
	if fresh {
		return &f.freshNext
	}
	return &f.cursor
}

// wanted is the lowest sequence for a queue that is neither sent nor received;
// 0: none.
func (f *flow) wanted(fresh bool) uint64 {
	r := f.part(fresh)
	r.First = max(r.First, *f.cursorOf(fresh))
	if r.First > r.Last {
		return 0
	}
	if miss := f.received.Missing(r); len(miss) > 0 {
		return miss[0].First
	}
	return 0
}

// note takes in that r leaves. Of a flow that was sent in very many parts only
// the ends are kept: it is for a count.
func (f *flow) note(r wire.Range) {
	if f.sent = f.sent.Add(r); len(f.sent) > wire.MaxRanges {
		f.sent = wire.Ranges{{First: f.sent[0].First, Last: f.sent[len(f.sent)-1].Last}}
	}
}

// active is the flow whose turn it is in a queue: older epochs are complete,
// newer ones have not begun.
func (l *lane) active(fresh bool) *flow {
	for _, f := range l.flows {
		if r := f.part(fresh); r.First <= r.Last && !f.received.Contains(r) {
			return f
		}
	}
	return nil
}

// queues in the order in which they go.
func (l *lane) queues() [2]*queue { return [2]*queue{&l.fresh, &l.main} }

func (l *lane) other(q *queue) *queue {
	if q == &l.main {
		return &l.fresh
	}
	return &l.main
}

func (q *queue) wait(now time.Time, d time.Duration, err error) {
	q.problem, q.retryAt = err, now.Add(d)
}

func (q *queue) add(p piece, now time.Time) {
	if len(q.pieces) == 0 {
		q.since = now
	}
	q.pieces = append(q.pieces, p)
	q.loose += p.size
}

// spooled brings the flows up to date. What the spool no longer lists is gone
// there, but a flow stays as long as the hub may lack some of it, or more may
// come.
func (s *Sender) spooled(ev Spooled) {
	s.epoch, s.epochKnown = ev.Current, ev.Known
	var lists [wire.NumLanes][]*flow
	for _, f := range s.flows {
		f.listed = false
	}
	for _, h := range ev.Flows {
		if !h.Lane.Valid() {
			continue
		}
		f := s.flows[h.Flow]
		if f == nil {
			f = &flow{Flow: h.Flow, cursor: h.Base}
			if s.phase == phaseOpen && s.freshFirst() && h.Epoch == s.epoch {
				f.freshFrom, f.freshNext = h.Base, h.Base
			}
			s.flows[h.Flow] = f
			s.seen(h.Epoch)
		}
		f.base, f.first, f.last, f.listed = h.Base, h.First, max(f.last, h.Last), true
		lists[h.Lane] = append(lists[h.Lane], f)
	}
	for i := range s.lanes {
		var older, current []*flow
		for _, f := range s.lanes[i].flows {
			switch {
			case f.listed:
			case f.Epoch == s.epoch || !s.epochKnown:
				current = append(current, f)
			case !f.complete():
				older = append(older, f)
			default:
				delete(s.flows, f.Flow)
			}
		}
		s.lanes[i].flows = slices.Concat(older, lists[i], current)
	}
	switch {
	case s.phase == phaseOpen:
		s.settle()
	case s.phase == phaseOpening && s.listing:
		s.ask()
	}
}

// seen starts to watch an epoch until it is drained.
func (s *Sender) seen(e wire.Epoch) {
	if !slices.ContainsFunc(s.epochs, func(d *drain) bool { return d.epoch == e }) {
		s.epochs = append(s.epochs, &drain{epoch: e})
	}
}

// announce lists the flows for an open request: if they are too many, the
// first of each lane, as the others come later anyway.
func (s *Sender) announce() []wire.FlowHeld {
	n, share := 0, [wire.NumLanes]int{}
	for more := true; more && n < wire.MaxFlows; {
		more = false
		for i := range s.lanes {
			if share[i] < len(s.lanes[i].flows) && n < wire.MaxFlows {
				share[i]++
				n++
				more = true
			}
		}
	}
	out := make([]wire.FlowHeld, 0, n)
	for i := range s.lanes {
		for j, f := range s.lanes[i].flows {
			f.known = j < share[i]
			if f.known { // one of which nothing is held any more still needs its received set
				out = append(out, wire.FlowHeld{Flow: f.Flow, Base: f.base, First: min(f.first, f.last), Last: f.last})
			}
		}
	}
	return out
}

// begin takes the hub's received sets as the one truth of the new session.
func (s *Sender) begin(sets []wire.FlowReceived) {
	for _, f := range s.flows {
		f.received, f.cursor, f.freshFrom, f.freshNext = nil, f.base, 0, 0
	}
	for _, fr := range sets {
		if f := s.flows[fr.Flow]; f != nil && len(fr.Ranges) > 0 {
			f.received = fr.Ranges
			s.do(MarkReceived{f.Flow, f.received})
		}
	}
	for i := range s.lanes {
		s.lanes[i].main, s.lanes[i].fresh = queue{}, queue{fresh: true}
		for _, f := range s.lanes[i].flows {
			// A set with many gaps is filled up first: the hub bounds their number.
			if s.freshFirst() && f.Epoch == s.epoch && len(f.received) < wire.MaxRanges-2 {
				f.freshFrom, f.freshNext = f.last+1, f.last+1
			}
		}
	}
}

func (s *Sender) freshFirst() bool { return s.cfg.FreshFirst }

// forget drops what is prepared and in flight; the next session finds out anew.
func (s *Sender) forget() {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.main, l.fresh, l.flights, l.credit, l.share = queue{}, queue{fresh: true}, nil, 0, 0
	}
	for _, d := range s.epochs {
		d.counter = 0
	}
}

// received adds what the hub has of a flow and takes it off the flights.
func (s *Sender) received(fr wire.FlowReceived) {
	f := s.flows[fr.Flow]
	if f == nil {
		return
	}
	before := f.received.Len()
	f.received = f.received.Union(fr.Ranges)
	if f.received.Len() == before {
		return
	}
	s.acks, s.advanced = true, s.now
	s.unsettled = s.unsettled || f.complete()
	s.do(MarkReceived{f.Flow, f.received})
	l := &s.lanes[f.Lane]
	waits := false // those of one flow land in order
	l.flights = slices.DeleteFunc(l.flights, func(fl flight) bool {
		if fl.flow != f || waits {
			return false
		}
		if waits = !f.received.Contains(fl.r); waits {
			return false
		}
		s.landed(fl)
		return true
	})
}

// takenIn takes chunks off the flights that the hub has, up to the frame that it
// took in last.
func (s *Sender) takenIn() {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.flights = slices.DeleteFunc(l.flights, func(fl flight) bool {
			in := fl.more && fl.counter <= s.taken
			if in {
				s.landed(fl)
			}
			return in
		})
	}
}

func (s *Sender) landed(fl flight) {
	rtt := s.now.Sub(fl.sent)
	s.window.landed(s.now, fl.bytes, rtt, fl.mark)
	s.slots.bytes -= fl.whole
	if !fl.lazy {
		s.sample(rtt)
	}
	if fl.lost {
		s.do(Rewound{fl.r.Len()})
	}
}

// sample takes in the time from a question to its answer.
func (s *Sender) sample(rtt time.Duration) {
	if s.smoothRTT == 0 {
		s.smoothRTT = rtt
	}
	s.smoothRTT += (rtt - s.smoothRTT) / 8
	s.do(Sampled{rtt})
}

// settle reports epochs of which nothing more will come.
func (s *Sender) settle() {
	s.unsettled = false
	if !s.epochKnown {
		return
	}
	held, open := map[wire.Epoch]bool{}, map[wire.Epoch]bool{s.epoch: true}
	for _, f := range s.flows {
		held[f.Epoch] = true
		if !f.complete() {
			open[f.Epoch] = true
		}
	}
	s.epochs = slices.DeleteFunc(s.epochs, func(d *drain) bool {
		if d.counter > 0 && d.counter <= s.taken {
			d.done = true
		}
		if !open[d.epoch] && d.counter == 0 && !d.done {
			s.frame(wire.FrameDrained, d.epoch[:])
			d.counter = s.counter
		}
		s.unsettled = s.unsettled || d.counter > 0 && !d.done
		return d.done && !held[d.epoch]
	})
}
