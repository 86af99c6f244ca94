package uplink

import (
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// waitShare: a lane that waits is owed one byte in so many that pass ahead of it.
const waitShare = 8

// lane sends its flows one after another, the oldest epoch first.
type lane struct {
	flows   []*flow  // in sending order
	loading bool     // a Load is under way
	pieces  []piece  // ready to be sent, in order
	flights []flight // sent, not received yet, in order
	credit  int      // bytes that it may send ahead of more urgent lanes
	problem error    // why it waits until retryAt
	retryAt time.Time
}

// flow is one epoch's part of a lane.
type flow struct {
	wire.Flow
	base, first, last uint64 // as the spool says: held is first to last
	listed            bool   // the spool still holds some of it

	received wire.Ranges // by the hub, as it said in this session
	known    bool        // announced when the session was opened, so received is all there is
	cursor   uint64      // of this session: everything below is sent or received
	sentTo   uint64      // of all sessions: highest sequence ever sent
}

// piece is a block cut to what the hub lacks.
type piece struct {
	flow *flow
	r    wire.Range
	body []byte
	lost bool // a void for what the hub has lost and the spool no longer holds
}

// flight is a piece on its way.
type flight struct {
	flow    *flow
	r       wire.Range
	bytes   int
	counter uint64
	sent    time.Time
	limited bool // the window was full
	lost    bool
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

// wanted is the lowest sequence that is neither sent nor received; 0: none.
func (f *flow) wanted() uint64 {
	if f.cursor > f.last {
		return 0
	}
	if miss := f.received.Missing(wire.Range{First: f.cursor, Last: f.last}); len(miss) > 0 {
		return miss[0].First
	}
	return 0
}

// active is the flow whose turn it is: older epochs are complete, newer ones
// have not begun.
func (l *lane) active() *flow {
	for _, f := range l.flows {
		if !f.complete() {
			return f
		}
	}
	return nil
}

func (l *lane) wait(now time.Time, d time.Duration, err error) {
	l.problem, l.retryAt = err, now.Add(d)
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
		f.received, f.cursor = nil, f.base
	}
	for _, fr := range sets {
		if f := s.flows[fr.Flow]; f != nil && len(fr.Ranges) > 0 {
			f.received = fr.Ranges
			s.do(MarkReceived{f.Flow, f.received})
		}
	}
}

// forget drops what is prepared and in flight; the next session finds out anew.
func (s *Sender) forget() {
	for i := range s.lanes {
		l := &s.lanes[i]
		l.loading, l.pieces, l.flights, l.credit, l.problem = false, nil, nil, 0, nil
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
	for len(l.flights) > 0 && l.flights[0].flow.received.Contains(l.flights[0].r) {
		s.landed(l.flights[0])
		l.flights = l.flights[1:]
	}
}

func (s *Sender) landed(fl flight) {
	rtt := s.now.Sub(fl.sent)
	s.window.landed(s.now, fl.bytes, rtt, fl.limited)
	if s.smoothRTT == 0 {
		s.smoothRTT = rtt
	}
	s.smoothRTT += (rtt - s.smoothRTT) / 8
	s.do(Sampled{rtt})
	if fl.lost {
		s.do(Rewound{fl.r.Len()})
	}
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
