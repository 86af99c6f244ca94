package command

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Limits of what is held for programs and for the hub.
const (
	maxHeld        = 8 << 20 // bytes of payloads, 512 for each command included
	maxResults     = 8 << 20 // bytes of results that the hub has not noted
	maxSubscribers = 32
	MaxAtOnce      = 64 // commands leased to one subscriber
)

// Errors of Ack, Nak, Term and Subscribe that callers branch on, besides
// ErrDiskFull and ErrDiskFault.
var (
	ErrUnknown = errors.New("command: no such command")
	ErrMany    = errors.New("command: too many subscribers")
)

var errClosed = errors.New("command: closed")

// SettledError says that a command has another end than the one asked for.
type SettledError struct{ State wire.CommandState }

func (e *SettledError) Error() string { return "command: it is " + string(e.State) + " already" }

// Config configures a store. Dir and Clock are required.
type Config struct {
	Dir string
	// Clock counts the milliseconds that have passed, also while the agent does
	// not run: nobody can set it. It never goes back while the store is open.
	Clock func() int64
	// Counted is told of every change of a command, one of Transitions. It must
	// not block. nil: nobody is.
	Counted func(to string)

	Log   *slog.Logger             // nil: discard
	Now   func() time.Time         // of reports, for people; nil: time.Now
	Rand  func() float64           // [0,1), for the jitter; nil: math/rand/v2
	Fault func(point string) error // see Points. Tests only; nil in production
}

// Store is the device's memory of commands. All methods are safe for concurrent use.
type Store struct {
	cfg     Config
	updates chan struct{} // capacity 1: something is to be said to the hub

	mu     sync.Mutex
	log    log
	book   *book
	offset int64         // from cfg.Clock to the clock of the log
	loaded bool          // the log was read
	failed error         // of the last try to write; nil: all is well
	retry  time.Time     // when a log that has failed is tried again
	subs   []*Subscriber // who waits for commands
	change chan struct{} // capacity 1: wakes Run
	short  bool          // the hub was told of less room than it may want
	retell bool          // of Take: there is more to report
}

// Open reads what the folder holds. It does not fail: while the disk does, no
// command is taken, handed out or settled, and it is tried again.
func Open(cfg Config) *Store {
	if cfg.Dir == "" || cfg.Clock == nil {
		panic("command: Config needs Dir and Clock")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Counted == nil {
		cfg.Counted = func(string) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Float64
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) error { return nil }
	}
	s := &Store{cfg: cfg, updates: make(chan struct{}, 1), change: make(chan struct{}, 1), book: newBook()}
	s.log = log{dir: cfg.Dir, fault: cfg.Fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.ready() // kept in failed, and logged
	return s
}

// Close releases the files. Nobody may use the store any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.failed = false, errClosed
	s.retry = time.Now().Add(100 * 365 * 24 * time.Hour)
	return s.log.close()
}

func (s *Store) fault(point string) error { return s.cfg.Fault(point) }

// now is the clock of the log.
func (s *Store) now() int64 { return s.cfg.Clock() + s.offset }

// setClock goes on where the log ends. A clock behind it belongs to a data
// folder of which a part is new: the time between counts as none.
func (s *Store) setClock() { s.offset = max(0, s.book.clock-s.cfg.Clock()) }

// pause is how long a disk that has failed is left alone.
const pause = time.Second

// ready makes the log usable, if it can be; mu is held.
func (s *Store) ready() error {
	if s.loaded && s.log.broken == nil {
		return nil
	}
	if s.failed != nil && time.Now().Before(s.retry) {
		return s.failed
	}
	var err error
	if s.loaded {
		err = s.rewrite()
	} else if err = s.load(); err == nil {
		s.loaded = true
		s.resume()
	}
	return s.outcome(err)
}

// outcome keeps and logs what writing has come to; mu is held.
func (s *Store) outcome(err error) error {
	switch {
	case err != nil && s.failed == nil:
		s.cfg.Log.Error("commands: the disk does not take what is known of them: none is taken or settled until it does", "folder", s.cfg.Dir, "error", err)
	case err == nil && s.failed != nil:
		s.cfg.Log.Info("commands: the disk works again", "folder", s.cfg.Dir)
	}
	if s.failed = err; err != nil {
		s.retry = time.Now().Add(pause)
	}
	return err
}

// commit makes records durable and acts on them; mu is held. Nothing has
// happened after an error.
func (s *Store) commit(records ...*record) error {
	if len(records) == 0 {
		return nil
	}
	if err := s.ready(); err != nil {
		return err
	}
	var out []byte
	places := make([]place, len(records))
	durable := false
	now := s.now()
	for i, r := range records {
		r.Clock = now
		before := len(out)
		out = appendRecord(out, r)
		places[i] = place{s.log.size + int64(before), len(out) - before, len(r.data)}
		durable = durable || r.kind != kindCursor && r.kind != kindNoted // those come again from the hub
	}
	if err := s.outcome(s.log.append(out, durable)); err != nil {
		return err
	}
	for i, r := range records {
		s.count(r)
		s.book.apply(r, places[i])
	}
	const least = 1 << 20
	if s.log.size > least && s.log.size > 3*s.book.live() {
		_ = s.outcome(s.rewrite()) // logged; what was asked for is durable
	}
	return nil
}

// Transitions are what Config.Counted is told.
func Transitions() []string {
	return []string{
		string(wire.CommandDelivered), leased, returned,
		string(wire.CommandAcked), string(wire.CommandFailed), string(wire.CommandExpired), string(wire.CommandCancelled),
	}
}

// What a command can become beside its states.
const (
	leased   = "leased"
	returned = "returned" // naked, not acked in time, or the subscriber went away
)

func (s *Store) count(r *record) {
	switch r.kind {
	case kindTaken:
		s.cfg.Counted(string(wire.CommandDelivered))
	case kindLent:
		s.cfg.Counted(leased)
	case kindReturned:
		s.cfg.Counted(returned)
	case kindSettled:
		if e := s.book.entries[r.ID]; e != nil && !e.settled() {
			s.cfg.Counted(string(r.State))
		}
	}
}

// Status is what waits.
type Status struct {
	Pending int // not settled, the leased ones included
	Leased  int
	Reports int // that the hub has not noted
	Bytes   int // of payloads, 512 for each command included
	Err     error
}

// Status is a snapshot.
func (s *Store) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{Bytes: s.book.held, Err: s.failed}
	for _, e := range s.book.order {
		if !e.settled() {
			st.Pending++
		}
		if e.lent != 0 {
			st.Leased++
		}
		if !e.noted {
			st.Reports++
		}
	}
	return st
}

// final is the record of an end.
func (s *Store) final(e *entry, state wire.CommandState, reason string) *record {
	return &record{kind: kindSettled, head: head{
		ID: e.id, State: state, At: s.cfg.Now().UnixMilli(), Reason: clean(reason), Deliveries: e.deliveries, Ends: e.ends,
	}}
}

// clean makes a text fit for a report.
func clean(text string) string { return wire.NewLastError(text, time.Time{}).Text }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
