package spool

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxGroup is the raw size at which a commit takes nothing more in. Larger
// groups gain nothing: the fsync is a small part already.
const maxGroup = 1 << 20

// group is what one commit makes durable. Built by lane.run, answered by
// commitLoop.
type group struct {
	flow  wire.Flow
	base  uint64
	seg   *segment
	first uint64 // sequences first to next-1
	next  uint64

	requests []*request
	records  []record
	messages int
	ids      []idKey
	bytes    int  // of the requests
	full     bool // takes nothing more
	solo     bool // takes one request

	blockSize int
	coded     uint64 // first sequence that is not encoded yet
	err       error  // of the encoder

	done chan struct{} // closed when answered
}

// run numbers and encodes until the lane closes and its queue is empty.
func (l *lane) run() {
	defer l.done.Done()
	defer close(l.commits)
	for l.await() {
		if l.due() {
			l.spillDue()
			continue
		}
		g := l.newGroup()
		l.fill(g)
		for l.busy && !g.full { // go on while the commit before runs
			select {
			case <-l.idle:
				l.busy = false
			case <-l.wake:
				if _, enough, _ := l.queued(); !enough {
					continue
				}
			}
			l.fill(g)
		}
		l.hand(g)
	}
	l.drain()
	l.spillLast()
}

// await returns true when there is something to commit and waiting longer
// gains nothing, false when the lane is closed and empty.
func (l *lane) await() bool {
	for {
		n, enough, closing := l.queued()
		switch {
		case n == 0 && closing:
			return false
		case enough || n > 0 && closing || l.due():
			return true
		case n > 0 && l.busy: // company until the commit before ends
			select {
			case <-l.idle:
				l.busy = false
			case <-l.wake:
			case <-l.quit:
				return true
			}
		case n > 0:
			l.delay()
			return true
		default:
			select {
			case <-l.wake:
			case <-l.idle:
				l.busy = false
			case <-l.quit:
			}
		}
	}
}

// delay gives a lone message CommitDelay to find company. Publishers that were
// answered just now come back within it, so that they do not fall apart into
// cohorts which each pay for an fsync.
func (l *lane) delay() {
	if l.s.cfg.CommitDelay < 0 {
		return
	}
	t := time.NewTimer(l.s.cfg.CommitDelay)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-l.quit:
			return
		case <-l.wake:
			if _, enough, _ := l.queued(); enough {
				return
			}
		}
	}
}

func (l *lane) newGroup() *group {
	return &group{done: make(chan struct{}), blockSize: l.s.cfg.BlockBytes}
}
