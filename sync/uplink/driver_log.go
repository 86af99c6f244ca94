package uplink

import (
	"log/slog"
	"time"
)

// quietFor is how long the same trouble is not told again.
const quietFor = 10 * time.Minute

// quieter logs transitions, not attempts.
type quieter struct {
	log    *slog.Logger
	since  time.Time // of the present state of the link
	up     bool
	told   bool // why the link is down
	said   map[string]time.Time
	failed int // changes of the reason since the link went down
	reason string
}

// link logs that the link came up, or went down and why.
func (q *quieter) link(st Status, now time.Time) {
	switch {
	case st.Up && !q.up:
		q.log.Info("link up", "hub", st.Hub, "down_for", now.Sub(q.since).Round(time.Millisecond).String())
		q.up, q.told, q.since = true, false, now
	case !st.Up && q.up:
		q.log.Warn("link down", "error", st.LastError, "up_for", now.Sub(q.since).Round(time.Millisecond).String())
		q.up, q.told, q.since = false, true, now
	case !st.Up && st.LastError != "" && !q.told:
		q.log.Warn("no link yet", "error", st.LastError)
		q.told = true
	case st.Up && st.LastError != "" && st.LastError != q.reason:
		q.log.Warn("link up, but", "error", st.LastError)
	}
	q.reason = st.LastError
}

// say logs trouble that may repeat.
func (q *quieter) say(what string, err error) {
	now := time.Now()
	if last, ok := q.said[what]; ok && now.Sub(last) < quietFor {
		return
	}
	if q.said == nil {
		q.said = map[string]time.Time{}
	}
	q.said[what] = now
	q.log.Warn(what, "error", err)
}

// fill makes every hook callable.
func (h *Hooks) fill() {
	def := func(f *func(int)) {
		if *f == nil {
			*f = func(int) {}
		}
	}
	def(&h.Sent)
	def(&h.Received)
	def(&h.Redelivered)
	if h.Rewound == nil {
		h.Rewound = func(uint64) {}
	}
	if h.Transition == nil {
		h.Transition = func(bool) {}
	}
	if h.RTT == nil {
		h.RTT = func(time.Duration) {}
	}
}
