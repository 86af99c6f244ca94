package policy

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// State is what an operator is shown.
type State struct {
	MaxRate    int64 // bytes a second; 0: unlimited
	DailyBytes int64 // 0: unlimited
	Used       int64 // of DailyBytes today, by all lanes
	Renewed    time.Time
	Lanes      [wire.NumLanes]LaneState
}

// Left is what normal and bulk may still send today.
func (s State) Left() int64 { return max(s.DailyBytes-s.Used, 0) }

// LaneState is what the windows say about a lane.
type LaneState struct {
	Windowed bool      // a window of the class names it
	Open     bool      // it may send
	Until    time.Time // when that changes; zero: it does not
}

// State is what holds now.
func (p *Policy) State(now time.Time) State {
	class := p.cfg.Class()
	p.mu.Lock()
	defer p.mu.Unlock()
	local := now.Round(0).In(p.cfg.Zone)
	p.budget.turn(now, local)
	out := State{MaxRate: p.cfg.MaxRate, DailyBytes: p.cfg.DailyBytes, Used: p.budget.usage.Bytes, Renewed: p.budget.renewed(local)}
	for l := range wire.Lane(wire.NumLanes) {
		s := &out.Lanes[l]
		s.Open, s.Until = p.lane(now, class, l)
		for _, w := range p.cfg.Windows {
			s.Windowed = s.Windowed || w.names(class, l)
		}
	}
	return out
}
