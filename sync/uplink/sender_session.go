package uplink

import (
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Silence: so long without a word from the hub while it owes one, and a ping
// asks; so long again, and the connection is given up. Together they stay well
// below the 30 s that are promised.
const (
	pingAfter = 10 * time.Second
	deadAfter = 10 * time.Second
	// stallAfter: the hub answers pings but does not ack a block that it took in.
	// It ends a session itself long before; this is for an ack that was lost.
	stallAfter = 60 * time.Second
	// keepAlive is how often an idle session shows that it lives; hubs end one
	// after 150 s, or 15 min in class metered.
	keepAlive        = 60 * time.Second
	keepAliveMetered = 5 * time.Minute
)

// frameOverhead is what a frame adds to a block: type, counter, check.
const frameOverhead = 1 + 10 + 4

// session is the state that ends with a session.
type session struct {
	id       wire.SessionID
	instance string
	counter  uint64 // of the last frame sent
	taken    uint64 // of the last frame that the hub took in
	maxBody  int    // bytes of a block in one frame
	window   window
	pack     packer
	slots    slots

	opened   time.Time
	acks     bool      // an ack has moved a received set
	heard    time.Time // last word of the hub
	sent     time.Time // last frame
	owed     time.Time // since when the hub owes an ack; zero: it owes none
	pinged   time.Time // a ping is unanswered since; zero: none is
	progress time.Time // when the peer last made room for waiting bytes
	advanced time.Time // when an ack last moved a received set
	unsaved  string    // token of this session until it is durable

	unsettled bool      // settle may have something to report
	unwritten int       // bytes that wait for the socket
	wakeAt    time.Time // when something that waits may be sent
	lazy      bool      // the last frame with messages was
	begun     uint64    // counter of the last chunk that began a block
}

// open begins a session over the connection that is up: first with what the
// spool holds now.
func (s *Sender) open() {
	s.phase = phaseOpening
	s.attempt++
	s.asked, s.listing = s.now, true
	s.do(List{})
}

// ask requests the session.
func (s *Sender) ask() {
	s.listing = false
	s.askAt = s.now.Add(askEvery)
	s.do(SendOpen{wire.Open{
		Protocol: wire.Protocol,
		Version:  s.cfg.Version,
		Process:  s.cfg.Process,
		Attempt:  s.attempt,
		HubID:    s.hubID,
		Token:    s.token,
		Order:    s.order(),
		Streams:  []string{wire.StreamName},
		Class:    s.cfg.Class(),
		Flows:    s.announce(),
		Labels:   s.cfg.Labels,
	}})
}

// replied starts the session, or takes no for an answer.
func (s *Sender) replied(r *wire.OpenReply) {
	if s.phase != phaseOpening {
		return
	}
	if r.Error == nil && s.hubID != "" && r.HubID != s.hubID {
		r = &wire.OpenReply{HubID: r.HubID, Error: &wire.SessionError{Code: wire.CodeWrongHub}}
	}
	if r.Error != nil {
		s.refused(r)
		return
	}
	if s.hubID == "" {
		s.hubID = r.HubID
		s.do(PinHub{r.HubID})
	}
	limit := r.MaxPayload
	if s.linkLimit > 0 {
		limit = min(limit, s.linkLimit)
	}
	s.session = session{
		id:       wire.SessionID(*r.Session),
		instance: r.Instance,
		maxBody:  max(limit-frameOverhead, 1),
		window:   newWindow(s.cfg.Window, r.Window, min(s.now.Sub(s.asked), worstRTT)),
		pack:     packer{ratio: 1},
		wakeAt:   never,
		opened:   s.now, heard: s.now, sent: s.now, advanced: s.now,
	}
	s.limitFrames()
	if r.Stream == wire.StreamName {
		s.pack.stream = wire.NewStreamEncoder()
	}
	s.phase, s.problem = phaseOpen, nil
	s.sample(s.now.Sub(s.asked))
	for _, p := range r.Partial {
		s.slots.kept[p.Slot] = p
	}
	s.begin(r.Received)
	if r.Token != "" && r.Token != s.token {
		s.unsaved = r.Token
		s.do(SaveToken{r.Token})
	}
	if r.Notice != "" && r.Notice != s.lastNotice {
		s.do(Notice{r.Notice})
	}
	s.lastNotice = r.Notice
	s.settle()
}

func (s *Sender) refused(r *wire.OpenReply) {
	switch r.Error.Code {
	case wire.CodeWrongHub:
		s.fail(fmt.Errorf("hub %s is not the pinned one, %s: run `fieldpost-agent hub reset` to accept it", r.HubID, s.hubID), slowly)
	case wire.CodeProtocol:
		s.fail(r.Error, slowly)
	default:
		s.fail(r.Error, s.backoffTime)
	}
}

func slowly() time.Duration { return slowRetry }

// ended takes in that the hub ended the session.
func (s *Sender) ended(ev Ended) {
	if s.phase != phaseOpen || ev.Session != s.id.Tag() && (ev.Instance == "" || ev.Instance != s.instance) {
		return
	}
	if ev.Err.Code == wire.CodeUnavailable && s.begun > s.taken {
		s.noRoom()
	}
	switch ev.Err.Code {
	case wire.CodeGap, wire.CodeCorrupt, wire.CodePartial, wire.CodeEarly:
		s.reopen(ev.Err)
	case wire.CodeWrongHub, wire.CodeProtocol:
		s.fail(ev.Err, slowly)
	default:
		s.fail(ev.Err, s.backoffTime)
	}
}

// reopen starts from the received set once more: at once, because a new
// session is the cure, but with pauses if it cured nothing.
func (s *Sender) reopen(err error) {
	if s.acks {
		s.again = 0
	}
	s.again++
	if s.again > 1 {
		s.fail(err, s.backoffTime)
		return
	}
	s.leave()
	s.problem = err
	s.open()
}

// leave forgets what belonged to the session.
func (s *Sender) leave() {
	if s.acks || s.now.Sub(s.opened) >= steady {
		s.backoff.reset()
	}
	s.forget()
	s.session = session{}
}

func (s *Sender) order() string {
	if s.freshFirst() {
		return "fresh-first"
	}
	return "fifo"
}

// frame sends one frame of the session that carries no messages.
func (s *Sender) frame(t wire.FrameType, body []byte) { s.carry(wire.Frame{Type: t, Body: body}) }

// carry sends one frame of the session.
func (s *Sender) carry(f wire.Frame) {
	s.counter++
	s.sent = s.now
	f.Session, f.Counter = s.id, s.counter
	s.unwritten += len(f.Body)
	s.do(SendFrame{s.instance, f})
}

// confirm tells the hub that its token is durable.
func (s *Sender) confirm() {
	if s.phase == phaseOpen && s.unsaved == s.token && s.token != "" {
		s.unsaved = ""
		s.frame(wire.FrameConfirm, []byte(s.token))
	}
}

func (s *Sender) ping() {
	if s.pinged.IsZero() {
		s.frame(wire.FramePing, nil)
		s.pinged = s.now
	}
}

// awaited: whoever waits is not left to a lazy ack.
func (s *Sender) awaited(ev Awaited) {
	if s.waited = true; !ev.Next && s.phase == phaseOpen && s.lazy && s.window.inflight > 0 {
		s.ping()
	}
}

// acked takes in what the hub has.
func (s *Sender) acked(ev Acked) {
	if s.phase != phaseOpen || ev.Session != s.id.Tag() {
		return
	}
	if !s.pinged.IsZero() {
		s.sample(s.now.Sub(s.pinged))
	}
	s.heard, s.pinged = s.now, time.Time{}
	s.taken = max(s.taken, ev.Ack.Counter)
	if s.begun > 0 && s.begun <= s.taken {
		s.largeWait = 0
	}
	s.takenIn()
	for _, fr := range ev.Ack.Flows {
		s.received(fr)
	}
	if s.owed = (time.Time{}); s.window.inflight > 0 {
		s.owed = s.now
	} else {
		s.waited = false
	}
	if s.unsettled {
		s.settle()
	}
}

// watch notices a hub, or a link, that has fallen silent.
func (s *Sender) watch() {
	switch {
	case !s.now.Before(s.deadAt()):
		s.hangup(fmt.Errorf("nothing heard from the hub for %s", s.now.Sub(s.heard).Round(time.Second)))
	case !s.now.Before(s.stalledAt()):
		s.reopen(fmt.Errorf("the hub has not acked a block for %s", stallAfter))
	case s.pinged.IsZero() && !s.now.Before(s.pingAt()):
		if s.owed.IsZero() { // idle for long
			s.cutter, s.codecs, s.memory = Cutter{}, codecs{}, memory{}
		}
		s.ping()
	}
}

// never is later than every deadline.
var never = time.Unix(1<<40, 0)

func (s *Sender) pingAt() time.Time {
	if !s.owed.IsZero() {
		return latest(s.heard, s.owed, s.progress).Add(pingAfter)
	}
	if s.cfg.Class() == Metered {
		return s.sent.Add(keepAliveMetered)
	}
	return s.sent.Add(keepAlive)
}

func (s *Sender) deadAt() time.Time {
	if s.pinged.IsZero() {
		return never
	}
	return latest(s.pinged, s.progress).Add(deadAfter)
}

func (s *Sender) stalledAt() time.Time {
	first := never
	for i := range s.lanes {
		if fl := s.lanes[i].flights; len(fl) > 0 && fl[0].counter <= s.taken {
			first = earliest(first, latest(fl[0].sent, s.advanced).Add(stallAfter))
		}
	}
	return first
}

func (s *Sender) sessionDeadline() time.Time {
	d := earliest(s.deadAt(), s.stalledAt())
	if s.pinged.IsZero() {
		d = earliest(d, s.pingAt())
	}
	for i := range s.lanes {
		for _, q := range s.lanes[i].queues() {
			if q.problem != nil && q.retryAt.After(s.now) { // else an ack will make room
				d = earliest(d, q.retryAt)
			}
		}
	}
	return earliest(d, s.wakeAt)
}

func latest(ts ...time.Time) time.Time   { return slices.MaxFunc(ts, time.Time.Compare) }
func earliest(ts ...time.Time) time.Time { return slices.MinFunc(ts, time.Time.Compare) }
