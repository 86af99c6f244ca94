package settings

import (
	"context"
	"encoding/json"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// retryEvery is how often a disk that has failed is tried again.
const retryEvery = 5 * time.Second

// Config configures a store. Dir and Parse are required.
type Config struct {
	Dir string
	// Parse reads the agent's member of a document; what that leaves out is as in
	// the configuration. The error names what is wrong in it, for a person.
	Parse func(member json.RawMessage) (Part, error)
	// Up reports whether the link is up. nil: it always is.
	Up func() bool

	Trial time.Duration            // instead of a minute; 0: a minute
	Log   *slog.Logger             // nil: discard
	Now   func() time.Time         // nil: time.Now
	Fault func(point string) error // see Points. Tests only; nil in production
}

// Store is the device's desired settings. All methods are safe for concurrent use.
type Store struct {
	cfg     Config
	updates chan struct{} // capacity 1: something is to be said to the hub
	stir    chan struct{} // capacity 1: wakes Run

	mu      sync.Mutex
	core    core
	durable Kept          // what others are told; guarded by mu
	failed  error         // of the last write; guarded by mu
	changed chan struct{} // closed when durable changes; guarded by mu
	waiting int           // programs in Watch; guarded by mu
}

// Open reads what an earlier process left, and puts it into effect. It does not
// fail: what cannot be read is logged, and the configuration's values hold.
func Open(cfg Config) *Store {
	if cfg.Dir == "" || cfg.Parse == nil {
		panic("settings: Config needs Dir and Parse")
	}
	if cfg.Up == nil {
		cfg.Up = func() bool { return true }
	}
	if cfg.Trial == 0 {
		cfg.Trial = trialTime
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Fault == nil {
		cfg.Fault = func(string) error { return nil }
	}
	s := &Store{
		cfg: cfg, updates: make(chan struct{}, 1), stir: make(chan struct{}, 1), changed: make(chan struct{}),
		core: core{parse: cfg.Parse, trial: cfg.Trial},
	}
	k, err := load(cfg.Dir)
	if err != nil {
		cfg.Log.Error("desired settings: what was kept of them cannot be used; the configuration holds until the hub sends them again", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.durable = k
	now := cfg.Now()
	p := s.core.start(now, now.UnixMilli(), k)
	p.Apply()
	if k.Version.Version != "" {
		s.tell(k.State)
	}
	_ = s.keep() // logged, and tried again
	return s
}

// Run ends trials in time, and writes again what could not be written, until
// ctx ends.
func (s *Store) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.stir:
		case <-timer.C:
		}
		timer.Stop()
		if wait, ok := s.tick(); ok {
			timer.Reset(wait)
		}
	}
}

// tick does what is due, and says how long nothing is.
func (s *Store) tick() (wait time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	was := s.core.k.State
	if p, over := s.core.tick(now, now.UnixMilli()); over {
		p.Apply() // first: what brings the link back does not wait for the disk
		s.tell(was)
	}
	switch err := s.keep(); {
	case err != nil:
		return retryEvery, true
	case s.core.k.State == wire.DesiredTrial:
		return max(0, s.core.deadline.Sub(now)), true
	}
	return 0, false
}

// SessionUp tells that a session has come up with what is in effect.
func (s *Store) SessionUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard(nil)
}

// heard tells the core that the hub was; mu is held.
func (s *Store) heard(report *wire.DesiredReport) {
	was := s.core.k.State
	if s.core.heard(s.cfg.Now().UnixMilli(), report) {
		s.tell(was)
		_ = s.keep() // logged, and tried again
	}
}

// take takes in an answer of the hub to a request that told of report. When it
// returns nil, what the answer brought is durable and in effect, or refused.
func (s *Store) take(report *wire.DesiredReport, d *wire.Desired) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if report != nil {
		s.heard(report)
	}
	if d == nil || d.Version == s.core.k.Version.Version {
		return nil
	}
	now, up := s.cfg.Now(), s.cfg.Up()
	k, p := s.core.given(now.UnixMilli(), Version{d.Version, d.Document})
	before := s.core.k
	s.core.k = k
	if err := s.keep(); err != nil {
		s.core.k = before // which goes on, as does its trial
		return err
	}
	s.core.begin(now, k, p.Apply(), up)
	s.tell("")
	return nil
}

// keep makes durable what the core has, and wakes who is to know; mu is held.
func (s *Store) keep() error {
	if s.failed == nil && reflect.DeepEqual(s.durable, s.core.k) {
		return nil // after a failure nobody knows which of both the file has
	}
	err := save(s.cfg.Dir, s.core.k, s.cfg.Fault)
	switch {
	case err != nil && s.failed == nil:
		s.cfg.Log.Error("desired settings: the disk does not take them; this is tried again", "folder", s.cfg.Dir, "error", err)
	case err == nil && s.failed != nil:
		s.cfg.Log.Info("desired settings: the disk works again", "folder", s.cfg.Dir)
	}
	s.failed = err
	wake(s.stir)
	if err != nil {
		return err
	}
	s.durable = s.core.k
	close(s.changed)
	s.changed = make(chan struct{})
	wake(s.updates)
	return nil
}

// tell logs what the state has become; mu is held.
func (s *Store) tell(was wire.DesiredState) {
	switch k := &s.core.k; {
	case k.State == was:
	case k.State == wire.DesiredRefused:
		s.cfg.Log.Warn("desired settings refused", "version", k.Version.Version, "reason", k.Reason)
	case k.State == wire.DesiredTrial:
		s.cfg.Log.Info("desired settings on trial until the hub is heard", "version", k.Version.Version, "within", s.core.patience)
	default:
		s.cfg.Log.Info("desired settings applied", "version", k.Version.Version)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
