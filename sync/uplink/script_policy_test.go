package uplink

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// scriptPolicy is a Policy that does as a script says. The zero value allows all.
type scriptPolicy struct {
	lanes  [wire.NumLanes]denial
	budget int           // bytes that normal and bulk may send; 0: unlimited
	renew  time.Duration // after it is used up
}

// denial is that a lane may not send.
type denial struct {
	denied bool
	until  time.Time // zero: until told
}

func (p *scriptPolicy) deny(l wire.Lane, now time.Time, d time.Duration) {
	p.lanes[l] = denial{denied: true}
	if d > 0 {
		p.lanes[l].until = now.Add(d)
	}
}

func (p *scriptPolicy) Allow(now time.Time, l wire.Lane) (bool, time.Time) {
	d := p.lanes[l]
	if !d.denied || !d.until.IsZero() && !now.Before(d.until) {
		return true, time.Time{}
	}
	return false, d.until
}

func (p *scriptPolicy) Sent(now time.Time, l wire.Lane, bytes int) {
	if p.budget == 0 || l == wire.Urgent {
		return
	}
	if p.budget -= bytes; p.budget <= 0 {
		p.budget = 0
		p.deny(wire.Normal, now, p.renew)
		p.deny(wire.Bulk, now, p.renew)
	}
}
