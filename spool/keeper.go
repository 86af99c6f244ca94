package spool

import (
	"errors"
	"os"
	"sync"
	"time"
)

const (
	idleClose  = 15 * time.Second // a sealed segment that nobody reads is closed again
	spareRetry = 5 * time.Second
)

// keeper does in the background what no publisher should wait for: it seals
// full heads, opens the next one, removes what is drained, closes what is idle.
// One goroutine, so no two of these meet.
type keeper struct {
	s *Spool

	mu      sync.Mutex
	retired []*segment    // guarded by mu: heads to seal or remove, in order
	trim    bool          // guarded by mu
	spare   bool          // guarded by mu
	rooms   []roomRequest // guarded by mu
	expire  bool          // guarded by mu
	running bool          // guarded by mu: something is being done
	closing bool          // guarded by mu
	settled sync.Cond     // on mu: nothing is left to do

	wake chan struct{} // capacity 1
	done chan struct{}
}

func newKeeper(s *Spool) *keeper {
	k := &keeper{s: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	k.settled.L = &k.mu
	return k
}

// retire hands over a head that takes no more commits.
func (k *keeper) retire(g *segment) { k.ask(func() { k.retired = append(k.retired, g) }) }

// later retires g again after a while.
func (k *keeper) later(g *segment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closing {
		time.AfterFunc(spareRetry, func() { k.retire(g) })
	}
}

func (k *keeper) wantTrim()   { k.ask(func() { k.trim = true }) }
func (k *keeper) wantSpare()  { k.ask(func() { k.spare = true }) }
func (k *keeper) wantExpire() { k.ask(func() { k.expire = true }) }

func (k *keeper) ask(note func()) {
	k.mu.Lock()
	note()
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// wait returns when everything asked for is done.
func (k *keeper) wait() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.running || k.trim || k.spare || k.expire || len(k.rooms) > 0 || len(k.retired) > 0 {
		k.settled.Wait()
	}
}

// close finishes what was asked for and ends run.
func (k *keeper) close() {
	k.ask(func() { k.closing = true })
	<-k.done
}

func (k *keeper) run() {
	defer close(k.done)
	tick := time.NewTicker(idleClose)
	defer tick.Stop()
	retry := time.NewTimer(spareRetry)
	defer retry.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		again, last := k.work()
		if last {
			return
		}
		due.Reset(k.s.untilDue())
		if again {
			retry.Reset(spareRetry)
		}
		select {
		case <-k.wake:
		case <-retry.C:
			if k.s.troubled() {
				k.wantSpare()
			}
		case <-due.C:
			if k.s.untilDue() <= 0 {
				k.wantExpire()
			}
		case <-tick.C:
			k.s.codec.rest()
			k.s.closeIdle(time.Now().Add(-idleClose))
		}
	}
}

// work does what is asked for. again: the spare could not be had.
func (k *keeper) work() (again, last bool) {
	for {
		k.mu.Lock()
		var g *segment
		if len(k.retired) > 0 {
			g, k.retired = k.retired[0], k.retired[1:]
		}
		trim, spare, expire, rooms := k.trim, k.spare, k.expire, k.rooms
		k.trim, k.spare, k.expire, k.rooms = false, false, false, nil
		k.running = g != nil || trim || spare || expire || len(rooms) > 0
		if !k.running {
			last = k.closing
			k.settled.Broadcast()
			k.mu.Unlock()
			return again, last
		}
		k.mu.Unlock()
		if g != nil {
			k.s.finishHead(g)
			trim = true
		}
		if expire {
			trim = k.s.expireAll() || trim
		}
		if trim {
			k.s.trimDrained()
		}
		for _, r := range rooms {
			r.done <- k.s.makeRoom(r)
		}
		if spare {
			again = !k.s.fillSpare()
		}
	}
}

// finishHead seals a head, or removes it if the hub has everything in it.
func (s *Spool) finishHead(g *segment) {
	if s.isGone(g) {
		return // an attempt before, or the trim, got it
	}
	if s.drained(g) && g.cause == nil {
		if err := s.remove([]*segment{g}); err == nil {
			return
		}
		if s.isGone(g) {
			return // detached; the next trim finishes it
		}
	}
	var err error
	if g.head != nil {
		err = s.sealHead(g)
	} else {
		err = s.settle(g)
	}
	waits := needsSpace(err)
	if err != nil && !waits && g.head != nil {
		s.cfg.Log.Error("spool: a full segment could not be sealed; it is read as after a crash", "segment", g.dir, "error", err)
		if err = s.repair(g); err == nil {
			err = s.settle(g)
		}
		waits = needsSpace(err)
	}
	switch {
	case waits:
		s.cfg.Log.Warn("spool: a full segment waits for disk space to be sealed; nothing is lost", "segment", g.dir)
		s.keeper.later(g)
	case err != nil:
		s.cfg.Log.Error("spool: a segment cannot be read for now; trying again", "segment", g.dir, "error", err)
		s.keeper.later(g)
	}
}

// needsSpace reports that something failed for want of disk space only.
func needsSpace(err error) bool {
	return err != nil && (errors.Is(err, errNoReserve) || errors.Is(diskError("", err), ErrDiskFull))
}

func (s *Spool) isGone(g *segment) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return g.gone
}

// fillSpare opens the next head. It reports whether there is one now, or none
// is wanted.
func (s *Spool) fillSpare() bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.mu.RLock()
	enough := s.spare != nil || s.closed
	s.mu.RUnlock()
	if enough {
		return true
	}
	g, err := s.openHead(0)
	if err != nil {
		s.cfg.Log.Debug("spool: no segment can be opened in advance", "error", err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spare = g
	if errors.Is(s.trouble, ErrDiskFault) {
		s.trouble = nil
	}
	return true
}

func (s *Spool) troubled() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.trouble != nil && !s.closed
}

// dropSpare removes the unused head.
func (s *Spool) dropSpare() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.mu.Lock()
	g := s.spare
	s.spare = nil
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	return errors.Join(g.head.abandon(), os.RemoveAll(g.dir))
}

// opened notes that a sealed segment was opened, and closes the one that was
// read least recently if there are too many.
func (s *Spool) opened(g *segment) {
	g.lastRead.Store(time.Now().UnixNano())
	const most = 3
	s.mu.Lock()
	s.open = append(s.open, g)
	var victim *segment
	if len(s.open) > most {
		at := 0
		for i, o := range s.open {
			if o.lastRead.Load() < s.open[at].lastRead.Load() {
				at = i
			}
		}
		victim = s.open[at]
		s.open = append(s.open[:at], s.open[at+1:]...)
	}
	s.mu.Unlock()
	s.closeSealed(victim)
}

// closeIdle closes the sealed segments that nobody has read since.
func (s *Spool) closeIdle(since time.Time) {
	s.mu.Lock()
	var idle, rest []*segment
	for _, g := range s.open {
		if g.lastRead.Load() < since.UnixNano() {
			idle = append(idle, g)
		} else {
			rest = append(rest, g)
		}
	}
	s.open = rest
	s.mu.Unlock()
	for _, g := range idle {
		s.closeSealed(g)
	}
}

func (s *Spool) closeSealed(g *segment) {
	if g == nil {
		return
	}
	g.use.Lock()
	defer g.use.Unlock()
	if g.head != nil {
		return // a head that nobody could seal; never in the list
	}
	if err := g.closeSource(); err != nil {
		s.cfg.Log.Warn("spool: a segment did not close cleanly", "segment", g.dir, "error", err)
	}
}
