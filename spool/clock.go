package spool

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// The spool clock counts the time that has passed, in milliseconds since the
// spool was made. Nobody can set it: ages are taken from it, never from the
// clock on the wall. While the agent runs, and across restarts of the agent, it
// is what the host counts since its boot, suspended time included. Across a boot
// only the wall clock can tell, and is believed within limits. What cannot be
// told counts as no time at all: a message may live too long, never too short.
//
// A block carries the wall time of its run's start plus the time since, so that
// one offset per epoch leads from its stamps to the spool clock.
type spoolClock struct {
	host  host
	base  int64         // spool clock when the run began, milliseconds
	start time.Duration // of the host's count, then
	wall  int64         // Unix milliseconds, then
}

// host is where time comes from; tests replace it.
type host struct {
	wall    func() time.Time
	elapsed func() time.Duration // since the boot, suspended time included
	boot    func() uint64        // names the boot; 0: unknown
	synced  func() bool          // somebody sets the wall clock
}

var processStart = time.Now()

// hostOf is the real host, or one that knows only the given clock.
func hostOf(now func() time.Time) *host {
	if now == nil {
		return &host{wall: time.Now, elapsed: sinceBoot, boot: bootID, synced: clockSynced}
	}
	began := now()
	return &host{wall: now, elapsed: func() time.Duration { return now().Sub(began) },
		boot: func() uint64 { return 0 }, synced: func() bool { return true }}
}

// Limits within which the wall clock is believed across a boot.
const (
	saneYear = 2024
	maxGap   = 366 * 24 * time.Hour
)

// metaClock is what must be known of the last run.
type metaClock struct {
	At     int64  `json:"at"` // spool clock
	Boot   uint64 `json:"boot,omitempty"`
	Since  int64  `json:"since_boot"` // milliseconds
	Wall   int64  `json:"wall"`       // Unix milliseconds
	Synced bool   `json:"synced"`
}

// begin starts the clock where the last run left it, and adds what has passed
// since. A run that left nothing was the first, or wrote no such thing yet.
func (c *spoolClock) begin(last metaClock) {
	c.start, c.wall = c.host.elapsed(), c.host.wall().UnixMilli()
	c.base = max(1, last.At+c.gap(last).Milliseconds()) // 0 stands for never
}

// gap is the time since last, as far as it can be told.
func (c *spoolClock) gap(last metaClock) time.Duration {
	if boot := c.host.boot(); boot != 0 && boot == last.Boot {
		return max(0, c.start-time.Duration(last.Since)*time.Millisecond)
	}
	d := time.Duration(c.wall-last.Wall) * time.Millisecond
	sane := time.UnixMilli(last.Wall).Year() >= saneYear && time.UnixMilli(c.wall).Year() >= saneYear
	if !sane || !last.Synced || !c.host.synced() || d < 0 || d > maxGap {
		return 0
	}
	return d
}

// now is the spool clock.
func (c *spoolClock) now() int64 {
	return c.base + (c.host.elapsed() - c.start).Milliseconds()
}

// Clock is the spool clock, for others who keep something beside the spool:
// milliseconds, never set by anybody, and going on while the agent does not run.
func (s *Spool) Clock() int64 { return s.time.now() }

// stamp is the time that blocks are marked with.
func (c *spoolClock) stamp() int64 { return c.wall + c.now() - c.base }

// offset leads from the stamps of this run to the spool clock.
func (c *spoolClock) offset() int64 { return c.base - c.wall }

// save is the clock as the next run needs it.
func (c *spoolClock) save() metaClock {
	now := c.host.elapsed()
	return metaClock{
		At: c.base + (now - c.start).Milliseconds(), Boot: c.host.boot(), Since: now.Milliseconds(),
		Wall: c.host.wall().UnixMilli(), Synced: c.host.synced(),
	}
}

// bornAt is the spool clock when a block of that epoch and stamp was accepted.
// mu is held.
func (s *Spool) bornAt(e wire.Epoch, stamp int64) int64 {
	if off, ok := s.offsets[e]; ok {
		return stamp + off
	}
	return stamp + s.time.offset()
}

// settleOffsets decides on the epochs whose offset was never written: their
// stamps are wall times, if they can be. Open only.
func (s *Spool) settleOffsets() {
	newest := map[wire.Epoch]int64{}
	for _, g := range s.segments {
		for _, p := range g.parts {
			newest[p.flow.Epoch] = max(newest[p.flow.Epoch], p.newest, p.oldest)
		}
	}
	for e, at := range newest {
		if _, ok := s.offsets[e]; ok {
			continue
		}
		age := time.Duration(s.time.wall-at) * time.Millisecond
		if time.UnixMilli(at).Year() >= saneYear && s.time.host.synced() && age >= 0 && age <= maxGap {
			s.offsets[e] = s.time.offset()
		} else {
			s.offsets[e] = s.time.base - at // as if accepted just now
		}
	}
}

// wallOf is when something of that age happened, on the wall clock of today.
func (s *Spool) wallOf(born int64) time.Time {
	age := max(0, s.time.now()-born)
	return s.cfg.Now().Add(-time.Duration(age) * time.Millisecond)
}
