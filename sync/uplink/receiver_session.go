package uplink

import (
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	sweepEvery = time.Second
	strayEvery = time.Second     // a device is told so often that its session is unknown
	probeEvery = 5 * time.Second // so often an open is let through to a failing ledger
	downFor    = 30 * time.Second
)

// recvDevice is one device with a session or with blocks that wait.
type recvDevice struct {
	id       string
	sessions []*recvSession // oldest first
	flows    map[wire.Flow]*recvFlow
	queued   int64                   // bytes held for the ledger
	chunked  int                     // bytes of blocks that come in chunks, or are kept
	kept     [wire.MaxSlots]*chunked // of sessions that have ended

	streamed   int // bytes that came through streams, less what streamedAt has let go
	streamedAt time.Time
	opens      float64 // token bucket
	opensAt    time.Time
	strayAt    time.Time
	aloneUntil time.Time
}

// recvSession is one session of a device's process.
type recvSession struct {
	id      wire.SessionID
	device  *recvDevice
	process string
	attempt uint64
	fifo    bool
	idle    time.Duration
	heard   time.Time
	counter uint64              // of the last frame taken in
	lazy    bool                // its last block was: nobody waits for the ack
	ackAt   time.Time           // by when a lazy ack is due; zero: none is
	stream  *wire.StreamDecoder // nil before the first frame of it
	chunks  [wire.MaxSlots]*chunked
	queued  int // block bytes that wait for the ledger
	blocks  int // and their number
	more    int // flows that were not announced
	ended   bool
	at      int // place in Receiver.order

	// While it opens.
	opening bool
	request uint64
	asked   *wire.Open
	waiting int // announced flows whose state is not known yet

	flows    []*attached // in order of first use
	byFlow   map[wire.Flow]*attached
	dirty    bool        // is in Receiver.dirty
	pinged   bool        // a ping waits for its ack
	changed  []*attached // to be told by the next ack
	unpinged []*attached // told since the last ping: told again by its ack, in case that an ack was lost
}

// attached is a session's interest in a flow.
type attached struct {
	s        *recvSession
	f        *recvFlow
	sent     bool // the session sent a block of it
	changed  bool // is in s.changed
	unpinged bool // is in s.unpinged
}

func (r *Receiver) device(id string) *recvDevice {
	d := r.devices[id]
	if d == nil && len(r.devices) < r.cfg.MaxDevices {
		d = &recvDevice{id: id, flows: map[wire.Flow]*recvFlow{}, opens: float64(r.cfg.OpenBurst), opensAt: r.now}
		r.devices[id] = d
	}
	return d
}

// allow is a token bucket of opens.
func (r *Receiver) allow(d *recvDevice) bool {
	gained := float64(r.now.Sub(d.opensAt)) / float64(r.cfg.OpenEvery)
	d.opens, d.opensAt = min(float64(r.cfg.OpenBurst), d.opens+max(gained, 0)), r.now
	if d.opens < 1 {
		return false
	}
	d.opens--
	return true
}

func (r *Receiver) open(ev RecvOpen) {
	d := r.device(ev.Device)
	o, err := r.mayOpen(d, ev.Data)
	if err != nil {
		r.do(DoReply{Request: ev.Request, Device: ev.Device, Err: err})
		return
	}
	if slices.ContainsFunc(d.sessions, func(s *recvSession) bool { return s.process == o.Process && s.attempt == o.Attempt && s.attempt != 0 }) {
		r.do(DoIgnore{Request: ev.Request})
		return
	}
	r.makeRoom(d, o.Process)
	r.begin(d, ev, o)
}

// mayOpen reads an open request, or says why it is refused.
func (r *Receiver) mayOpen(d *recvDevice, data []byte) (*wire.Open, *wire.SessionError) {
	refuse := func(code, format string, a ...any) (*wire.Open, *wire.SessionError) {
		return nil, &wire.SessionError{Code: code, Detail: fmt.Sprintf(format, a...)}
	}
	switch {
	case d == nil:
		return refuse(wire.CodeUnavailable, "this hub instance knows %d devices already", len(r.devices))
	case !r.allow(d):
		return refuse(wire.CodeRefused, "too many sessions opened; one every %s is allowed", r.cfg.OpenEvery)
	case r.stopping:
		return refuse(wire.CodeStopping, "this hub instance is shutting down")
	}
	o, err := wire.ParseOpen(data)
	switch {
	case err != nil:
		return refuse(wire.CodeProtocol, "%.300s", err)
	case o.Protocol != wire.Protocol:
		return refuse(wire.CodeProtocol, "session protocol %d; this hub speaks %d, upgrade the older side", o.Protocol, wire.Protocol)
	case o.HubID != "" && o.HubID != r.cfg.HubID:
		return refuse(wire.CodeWrongHub, "this is hub %s, not %s", r.cfg.HubID, o.HubID)
	case r.now.Before(r.downUntil) && r.now.Before(r.probeAt):
		return refuse(wire.CodeUnavailable, "the hub cannot store at present")
	}
	if r.now.Before(r.downUntil) {
		r.probeAt = r.now.Add(probeEvery)
	}
	return o, nil
}

// makeRoom ends the older session of the process, and, if the device has too
// many, the one that was silent for longest.
func (r *Receiver) makeRoom(d *recvDevice, process string) {
	for _, s := range slices.Clone(d.sessions) {
		if s.process == process {
			r.end(s, wire.CodeReplaced, "a newer session of the same process")
		}
	}
	for len(d.sessions) >= r.cfg.MaxSessions {
		oldest := slices.MinFunc(d.sessions, func(a, b *recvSession) int { return a.heard.Compare(b.heard) })
		r.end(oldest, wire.CodeReplaced, fmt.Sprintf("a newer session; a device can have %d", r.cfg.MaxSessions))
	}
}

func (r *Receiver) begin(d *recvDevice, ev RecvOpen, o *wire.Open) {
	s := &recvSession{
		id: ev.Session, device: d, process: o.Process, attempt: o.Attempt, fifo: o.Order != "fresh-first",
		idle: r.cfg.Idle, heard: r.now, opening: true, request: ev.Request, asked: o,
		byFlow: map[wire.Flow]*attached{},
	}
	if o.Class == Metered {
		s.idle = r.cfg.MeteredIdle
	}
	d.sessions = append(d.sessions, s)
	r.sessions[s.id] = s
	s.at, r.order = len(r.order), append(r.order, s)
	for _, held := range o.Flows[:min(len(o.Flows), r.cfg.MaxFlows)] {
		f := r.attach(s, held.Flow).f
		f.openers = append(f.openers, s)
		s.waiting++
		r.refresh(f)
	}
	if s.waiting == 0 {
		r.opened(s)
	}
}

// attach notes that s is interested in a flow.
func (r *Receiver) attach(s *recvSession, flow wire.Flow) *attached {
	if a := s.byFlow[flow]; a != nil {
		return a
	}
	f := s.device.flows[flow]
	if f == nil {
		f = &recvFlow{device: s.device, flow: flow}
		s.device.flows[flow] = f
	}
	a := &attached{s: s, f: f}
	s.flows, s.byFlow[flow] = append(s.flows, a), a
	f.attached = append(f.attached, a)
	return a
}

// opened answers the request: every announced flow has been read.
func (r *Receiver) opened(s *recvSession) {
	s.opening, s.heard = false, r.now
	received := make([]wire.FlowReceived, 0, len(s.flows))
	for _, a := range s.flows {
		received = append(received, wire.FlowReceived{Flow: a.f.flow, Ranges: a.f.received})
	}
	r.do(DoReply{Request: s.request, Device: s.device.id, Session: s.id, Open: s.asked, Received: received, Partial: r.partials(s)})
	s.asked = nil
}

// drained forgets the flows of an epoch of which nothing more will come.
func (r *Receiver) drained(s *recvSession, e wire.Epoch) {
	s.flows = slices.DeleteFunc(s.flows, func(a *attached) bool {
		if a.f.flow.Epoch != e || a.f.busy() {
			return false
		}
		r.detach(a)
		return true
	})
	r.do(DoClose{s.device.id, e})
}

// detach undoes attach, but for s.flows.
func (r *Receiver) detach(a *attached) {
	delete(a.s.byFlow, a.f.flow)
	forget := func(list []*attached) []*attached {
		return slices.DeleteFunc(list, func(b *attached) bool { return b == a })
	}
	a.s.changed, a.s.unpinged, a.f.attached = forget(a.s.changed), forget(a.s.unpinged), forget(a.f.attached)
	r.release(a.f)
}

// end ends a session for a reason. What it still has to be told of the ledger
// goes first; its blocks that wait are stored all the same.
func (r *Receiver) end(s *recvSession, code, detail string) {
	if s.ended {
		return
	}
	e := &wire.SessionError{Code: code, Detail: detail}
	opening := s.opening
	if !opening && len(s.changed) > 0 {
		r.ack(s)
	}
	r.leave(s)
	if opening {
		r.do(DoReply{Request: s.request, Device: s.device.id, Open: s.asked, Err: e})
		return
	}
	r.do(DoEnd{Device: s.device.id, Session: s.id, Err: e})
}

// leave forgets a session.
func (r *Receiver) leave(s *recvSession) {
	s.ended, s.pinged = true, false
	is := func(o *recvSession) bool { return o == s }
	s.device.sessions = slices.DeleteFunc(s.device.sessions, is)
	delete(r.sessions, s.id)
	last := len(r.order) - 1
	r.order[s.at], r.order[last].at = r.order[last], s.at
	r.order[last], r.order = nil, r.order[:last]
	s.changed, s.unpinged, s.stream = nil, nil, nil
	r.keepChunks(s)
	for _, a := range s.flows {
		a.f.openers = slices.DeleteFunc(a.f.openers, is)
		r.detach(a)
	}
	s.flows = nil
}

// soil notes that an ack is due. A session that has sent nothing yet may not
// listen yet either.
func (r *Receiver) soil(s *recvSession) {
	if !s.dirty && s.counter > 0 && !s.ended {
		s.dirty = true
		r.dirty = append(r.dirty, s)
	}
}

// tell puts the flow's received set into the session's next ack.
func (r *Receiver) tell(a *attached) {
	if a.s.opening {
		return // the reply will say it
	}
	if !a.changed {
		a.changed = true
		a.s.changed = append(a.s.changed, a)
	}
	r.soil(a.s)
}

// ackAll sends the acks that are due. One that nobody waits for waits for more
// to tell, as it costs more than what it answers.
func (r *Receiver) ackAll() {
	for _, s := range r.dirty {
		s.dirty = false
		switch {
		case s.ended:
		case s.lazy:
			if s.ackAt.IsZero() {
				s.ackAt = r.now.Add(r.cfg.LazyAck)
				r.lazy = append(r.lazy, lazyAck{s, s.ackAt})
			}
		default:
			r.ack(s)
		}
	}
	clear(r.dirty)
	r.dirty = r.dirty[:0]
	for len(r.lazy) > 0 && !r.now.Before(r.lazy[0].at) {
		if s := r.lazy[0].s; !s.ended && s.ackAt.Equal(r.lazy[0].at) { // else it was sent with another
			r.ack(s)
		}
		r.lazy[0] = lazyAck{}
		r.lazy = r.lazy[1:]
	}
}

// lazyAck is an ack that may wait.
type lazyAck struct {
	s  *recvSession
	at time.Time
}

// ack sends the session's ack: more than one if it tells more than fits.
func (r *Receiver) ack(s *recvSession) {
	s.ackAt = time.Time{}
	told := make([]wire.FlowReceived, 0, len(s.changed))
	add := func(a *attached) {
		told = append(told, wire.FlowReceived{Flow: a.f.flow, Ranges: a.f.received})
	}
	for _, a := range s.changed {
		add(a)
		a.changed = false
		if !a.unpinged {
			a.unpinged = true
			s.unpinged = append(s.unpinged, a)
		}
	}
	if s.pinged {
		told = told[:0]
		for _, a := range s.unpinged {
			add(a)
			a.unpinged = false
		}
		s.unpinged = s.unpinged[:0]
	}
	s.changed, s.pinged = s.changed[:0], false
	for {
		n := min(len(told), wire.MaxAckFlows)
		r.do(DoAck{s.device.id, s.id, wire.Ack{Counter: s.counter, Flows: told[:n:n]}})
		if told = told[n:]; len(told) == 0 {
			return
		}
	}
}

// sweep ends what was silent or waited for too long.
func (r *Receiver) sweep() {
	for _, s := range slices.Clone(r.order) {
		switch quiet := r.now.Sub(s.heard); {
		case s.ended:
		case s.opening && quiet >= r.cfg.OpenTimeout:
			r.failing(true)
			r.end(s, wire.CodeUnavailable, "the hub could not read its ledger in time")
		case !s.opening && quiet >= s.idle:
			r.end(s, wire.CodeIdle, fmt.Sprintf("nothing heard for %s", s.idle))
		}
	}
	r.giveUp()
	for id, d := range r.devices { // the order does not matter: nothing comes of it
		if d.chunked > 0 {
			r.expireKept(d)
		}
		idle := len(d.sessions) == 0 && len(d.flows) == 0 && d.chunked == 0 && r.now.After(d.aloneUntil)
		if idle && r.now.Sub(d.opensAt) > time.Duration(r.cfg.OpenBurst)*r.cfg.OpenEvery {
			delete(r.devices, id)
		}
	}
}

// failing notes that the ledger takes nothing at present, or cannot even be read.
func (r *Receiver) failing(reads bool) {
	r.downReads = reads
	if !r.now.Before(r.downUntil) {
		r.probeAt = r.now.Add(probeEvery)
	}
	r.downUntil = r.now.Add(downFor)
}

func (r *Receiver) stop(ev RecvStop) {
	r.stopping = true
	for _, s := range slices.Clone(r.order) {
		if ev.Now || s.opening {
			r.end(s, wire.CodeStopping, "this hub instance is shutting down")
		}
	}
}
