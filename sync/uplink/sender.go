package uplink

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// SenderConfig is what a sender tells its hub and how much it may have in flight.
type SenderConfig struct {
	Version, Process string
	Labels           map[string]string
	Class            func() string // nil: unmetered

	HubID, Token string // pinned; empty before the first session

	Window     int            // bytes in flight; 0: 32 MiB
	FreshFirst bool           // what is accepted from now on goes ahead of the backlog
	FreshShare int            // percent of a lane's bytes that are its; 0: 50
	Flush      time.Duration  // how long small messages wait for company; urgent ones never
	Policy     Policy         // nil: the link may always be used
	MaxRate    int64          // bytes a second to which Policy holds: frames are sized by it too; 0: none
	MaxFrame   int            // bytes of a frame; 0: as the link carries
	Rand       func() float64 // [0,1), for the jitter; nil: math/rand/v2
}

const (
	defaultWindow = 32 << 20
	openTimeout   = 10 * time.Second
	// askEvery is between the requests of one attempt: which instance of a hub gets
	// one is chance, and one that hangs answers none.
	askEvery = 3 * time.Second
	// slowRetry is between attempts that only a person can make succeed.
	slowRetry = 30 * time.Second
	// steady is how long a session without any ack has to last to count as a
	// success: one that always dies at once must not be retried without a pause.
	steady = time.Second
)

// phase is where a sender stands.
type phase uint8

const (
	phaseDown    phase = iota // until retryAt
	phaseDialing              // no connection yet
	phaseOpening              // no session yet
	phaseOpen
	phaseStopped
)

// Policy says what the link may be used for. It has no goroutine and no clock.
type Policy interface {
	// Allow reports whether a lane may send; if not, when to ask again (zero: not
	// before the policy has changed, which Kick tells).
	Allow(now time.Time, l wire.Lane) (ok bool, again time.Time)
	// Sent notes what a lane has sent.
	Sent(now time.Time, l wire.Lane, bytes int)
}

// Sender is the agent's end of its uplink sessions. It has no goroutine, no
// clock and does no I/O; the same events give the same actions.
//
// What it sends follows from one truth, the received set that the hub states
// when a session opens and adds to with every ack: whatever of a flow is not in
// it is sent, in order, once per session; nothing else is remembered.
type Sender struct {
	cfg SenderConfig
	now time.Time // of the current Step
	out []Action  // of the current Step

	phase   phase
	linked  bool   // a connection is up; also while phaseDown waits for another session
	class   string // of the link when it was dialled
	retryAt time.Time
	backoff jitter
	again   int   // sessions ended one after another by a fault, without progress
	problem error // why phase is not phaseOpen

	lanes  [wire.NumLanes]lane
	flows  map[wire.Flow]*flow // all that are in lanes
	epochs []*drain            // of the flows seen, until reported drained
	epoch  wire.Epoch          // that new messages get

	epochKnown bool // whether epoch is: without it no epoch is ever drained
	cutter     Cutter
	codecs     codecs
	memory     memory

	session              // of phaseOpen
	attempt    uint64    // of opening a session, in this process
	asked      time.Time // when the first open request of it was sent
	askAt      time.Time // when the next is due
	listing    bool      // it waits for a Spooled
	linkLimit  int       // bytes of a message that the server takes; 0: unknown
	hubID      string    // pinned
	token      string    // durable
	smoothRTT  time.Duration
	waited     bool // somebody waits for what is not received yet
	lastNotice string
	largeAt    time.Time     // before that no large message is begun
	largeWait  time.Duration // the longer, the more often the hub had no room
}

// NewSender returns a sender that dials at the first event.
func NewSender(cfg SenderConfig) *Sender {
	if cfg.Window == 0 {
		cfg.Window = defaultWindow
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.FreshShare == 0 {
		cfg.FreshShare = 50
	}
	if cfg.Class == nil {
		cfg.Class = func() string { return "" }
	}
	return &Sender{
		cfg:     cfg,
		flows:   map[wire.Flow]*flow{},
		hubID:   cfg.HubID,
		token:   cfg.Token,
		backoff: jitter{rand: cfg.Rand},
	}
}

// Step takes in one event and returns what to do, in this order. The result is
// valid until the next call.
func (s *Sender) Step(now time.Time, in Event) []Action {
	s.now = now
	clear(s.out)
	s.out = s.out[:0]
	if s.phase == phaseStopped {
		return nil
	}
	switch ev := in.(type) {
	case Spooled:
		s.spooled(ev)
	case Loaded:
		s.loaded(ev)
	case Linked:
		if s.phase == phaseDialing {
			s.linked, s.linkLimit = true, ev.MaxPayload
			s.open()
		}
	case Unlinked:
		s.linked = false
		if s.phase != phaseDown {
			s.fail(ev.Err, s.backoffTime)
		}
	case OpenReplied:
		s.replied(ev.Reply)
	case OpenFailed:
		if s.phase == phaseOpening {
			s.fail(ev.Err, s.backoffTime)
		}
	case Acked:
		s.acked(ev)
	case Ended:
		s.ended(ev)
	case Written:
		s.unwritten = max(s.unwritten-ev.Bytes, 0)
	case Awaited:
		s.awaited(ev)
	case Progressed:
		s.progress = ev.At
	case TokenSaved:
		s.token = ev.Token
		s.confirm()
	case Kicked:
		s.kick()
	case Tuned:
		s.tune(ev.Tuning)
	case HubReset:
		s.hubID = ""
		s.kick()
	case Stopped:
		s.stop()
	}
	s.advance()
	return s.out
}

func (s *Sender) do(a Action) { s.out = append(s.out, a) }

// advance does what is due, by the time or by what has just changed.
func (s *Sender) advance() {
	switch s.phase {
	case phaseDown:
		switch {
		case s.now.Before(s.retryAt):
		case s.linked:
			s.open()
		default:
			s.dial()
		}
	case phaseOpening:
		switch {
		case !s.now.Before(s.asked.Add(openTimeout)):
			s.hangup(errors.New("the hub did not answer the open request"))
		case !s.listing && !s.now.Before(s.askAt):
			s.ask()
		}
	case phaseOpen:
		s.watch()
		if s.phase == phaseOpen {
			s.send()
		}
	}
}

// Deadline is when a Ticked is due even if nothing happens; zero: never.
func (s *Sender) Deadline() time.Time {
	switch s.phase {
	case phaseDown:
		return s.retryAt
	case phaseOpening:
		if at := s.asked.Add(openTimeout); s.listing || at.Before(s.askAt) {
			return at
		}
		return s.askAt
	case phaseOpen:
		return s.sessionDeadline()
	}
	return time.Time{}
}

// fail leaves the session, if any, and waits before the next.
func (s *Sender) fail(err error, wait func() time.Duration) {
	if s.phase == phaseOpen {
		s.leave()
	}
	s.phase = phaseDown
	s.problem = err
	s.retryAt = s.now.Add(wait())
}

func (s *Sender) backoffTime() time.Duration {
	if s.cfg.Class() == Metered {
		return s.backoff.next(backoffCapMetered)
	}
	return s.backoff.next(backoffCap)
}

// hangup gives up the connection as well.
func (s *Sender) hangup(err error) {
	s.linked = false
	s.do(Hangup{})
	s.fail(err, s.backoffTime)
}

func (s *Sender) dial() {
	s.phase, s.class = phaseDialing, s.cfg.Class()
	s.do(Dial{})
}

// kick retries at once what is waiting, and doubts what seems to be up. If the
// class has changed it is another link, maybe; and the connection's own pings and
// the hub's patience are those of the class that they began with.
func (s *Sender) kick() {
	if s.linked && s.class != s.cfg.Class() {
		s.linked = false
		s.do(Hangup{})
		if s.phase != phaseDown {
			s.fail(errors.New("the class of the link has changed"), s.backoffTime)
		}
	}
	switch s.phase {
	case phaseDown:
		s.backoff.reset()
		s.retryAt = s.now
	case phaseDialing: // over a route that is gone, maybe
		s.backoff.reset()
		s.do(Hangup{})
		s.dial()
	case phaseOpen:
		s.ping()
	}
}

func (s *Sender) stop() {
	if s.phase == phaseOpen {
		s.frame(wire.FrameBye, nil)
	}
	if s.phase != phaseDown || s.linked {
		s.do(Hangup{})
	}
	s.phase, s.linked = phaseStopped, false
	s.problem = errors.New("stopped")
}

// Up reports whether a session is open.
func (s *Sender) Up() bool { return s.phase == phaseOpen }

// Instance is the hub instance of the open session.
func (s *Sender) Instance() string { return s.instance }

// RTT is a running mean from sending a frame to its ack; zero if unknown.
func (s *Sender) RTT() time.Duration { return s.smoothRTT }

// Problem is why no session is open, or else what holds up a lane; nil if all
// is well.
func (s *Sender) Problem() error {
	if s.phase != phaseOpen {
		return s.problem
	}
	for i := range s.lanes {
		for _, q := range s.lanes[i].queues() {
			if q.problem != nil {
				return fmt.Errorf("lane %s waits: %w", wire.Lane(i), q.problem)
			}
		}
	}
	return nil
}
