package policy

import (
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// recheck is the longest wait for what the wall clock decides: it may be set
// in the meantime.
const recheck = time.Minute

// Config is what a link may be used for. The zero value allows everything.
type Config struct {
	Class      func() string  // of the link that is up now; nil: none, only windows of every class hold
	MaxRate    int64          // bytes a second; 0: unlimited
	DailyBytes int64          // of a calendar day in Zone; 0: unlimited
	Windows    []Window       // a lane that none names is free
	Zone       *time.Location // of days and windows; nil: the system's
	Usage      Usage          // of an earlier run
}

// Policy answers for one link. Its methods may be called from several
// goroutines; times that they are given may go backwards.
type Policy struct {
	cfg Config

	mu     sync.Mutex // guards all below
	all    bucket     // what every lane sent
	urgent bucket     // what urgent sent
	budget budget
	spans  []span // of cfg.Windows, as computed last
}

// New takes a Config that was checked: a Window by ParseCron and Check.
func New(c Config) *Policy {
	if c.Class == nil {
		c.Class = func() string { return "" }
	}
	if c.Zone == nil {
		c.Zone = time.Local
	}
	return &Policy{
		cfg: c, all: bucket{rate: c.MaxRate}, urgent: bucket{rate: c.MaxRate},
		budget: budget{limit: c.DailyBytes, usage: c.Usage}, spans: make([]span, len(c.Windows)),
	}
}

// Set changes MaxRate, DailyBytes and Windows to those of c. What was used of the
// day counts on; a new rate begins with nothing owed.
func (p *Policy) Set(c Config) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.MaxRate != p.cfg.MaxRate {
		p.all, p.urgent = bucket{rate: c.MaxRate}, bucket{rate: c.MaxRate}
	}
	p.cfg.MaxRate, p.cfg.DailyBytes, p.cfg.Windows = c.MaxRate, c.DailyBytes, c.Windows
	p.budget.limit = c.DailyBytes
	p.spans = make([]span, len(c.Windows))
}

// Allow reports whether a frame of the lane may start now. If not, again is when
// to ask once more: the moment at which it may, as far as that is known now, but
// no later than a minute from now where the wall clock decides.
func (p *Policy) Allow(now time.Time, l wire.Lane) (ok bool, again time.Time) {
	class := p.cfg.Class()
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.rateOf(l).wait(now)
	p.budget.turn(now, now.In(p.cfg.Zone))
	if l != wire.Urgent {
		wait = max(wait, min(p.budget.wait(now.In(p.cfg.Zone)), recheck))
	}
	wait = max(wait, min(p.closed(now, class, l), recheck))
	if wait <= 0 {
		return true, time.Time{}
	}
	return false, now.Add(wait)
}

// Sent counts a frame of so many bytes, with what it costs besides.
func (p *Policy) Sent(now time.Time, l wire.Lane, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.take(now, bytes)
	if l == wire.Urgent {
		p.urgent.take(now, bytes)
	}
	p.budget.turn(now, now.In(p.cfg.Zone))
	p.budget.take(int64(bytes), l == wire.Urgent)
}

// Usage is what is to be kept over a restart.
func (p *Policy) Usage(now time.Time) Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.budget.turn(now, now.In(p.cfg.Zone))
	return p.budget.usage
}

func (p *Policy) rateOf(l wire.Lane) *bucket {
	if l == wire.Urgent {
		return &p.urgent
	}
	return &p.all
}
