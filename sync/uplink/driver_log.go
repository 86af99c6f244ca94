package uplink

import (
	"context"
	"log/slog"
	"time"
)

const (
	// quietFor is how long the same trouble is not told again.
	quietFor = 10 * time.Minute
	// burst is how many transitions of a flapping link are told at once, and one
	// more in every refill.
	burst  = 20
	refill = time.Minute
)

// quieter logs transitions, not attempts, and of a flapping link not all.
type quieter struct {
	log    *slog.Logger
	now    func() time.Time
	since  time.Time // of the present state of the link
	up     bool
	told   bool      // why the link is down
	reason string    // last told or seen
	full   time.Time // when all of burst may be told again
	missed int       // transitions not told
	said   map[string]time.Time
}

// link logs that the link came up, or went down and why.
func (q *quieter) link(st Status) {
	lasted := q.now().Sub(q.since).Round(time.Millisecond).String()
	switch {
	case st.Up && !q.up:
		q.tell(slog.LevelInfo, "link up", "hub", st.Hub, "down_for", lasted)
	case !st.Up && q.up:
		q.tell(slog.LevelWarn, "link down", "error", st.LastError, "up_for", lasted)
		q.told = true
	case !st.Up && st.LastError != "" && !q.told:
		q.tell(slog.LevelWarn, "no link yet", "error", st.LastError)
		q.told = true
	case st.Up && st.LastError != "" && st.LastError != q.reason:
		q.tell(slog.LevelWarn, "the link is up, but not everything is sent", "error", st.LastError)
	}
	if st.Up != q.up {
		q.up, q.since = st.Up, q.now()
	}
	if st.LastError != "" || !st.Up {
		q.reason = st.LastError
	}
}

func (q *quieter) tell(level slog.Level, msg string, args ...any) {
	now := q.now()
	if q.full.Before(now) {
		q.full = now
	}
	if q.full.Sub(now) > (burst-1)*refill {
		q.missed++
		return
	}
	q.full = q.full.Add(refill)
	if q.missed > 0 {
		args = append(args, "not_told", q.missed)
		q.missed = 0
	}
	q.log.Log(context.Background(), level, msg, args...)
}

// say logs trouble that may repeat.
func (q *quieter) say(what string, err error) {
	now := q.now()
	if last, ok := q.said[what]; ok && now.Sub(last) < quietFor {
		return
	}
	if q.said == nil {
		q.said = map[string]time.Time{}
	}
	q.said[what] = now
	q.log.Warn(what, "error", err)
}
