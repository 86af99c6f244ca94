package uplink

import "time"

const (
	firstWindow = 64 << 10
	minWindow   = 32 << 10
	// lateAck is how long an ack may take beyond two bare round trips before bytes
	// are taken to queue on a slow link, rather than to travel or to wait for the
	// hub's disk. What is in flight is what an urgent message stands behind.
	lateAck  = time.Second
	worstRTT = 3 * time.Second // beyond it the bare round trip was none
)

// window bounds the bytes in flight. It doubles every round trip while it is
// the window that limits, until acks come late; from then on it grows by a step
// a round trip and shrinks by a quarter (additive increase, multiplicative
// decrease). At least one frame always passes.
type window struct {
	inflight int
	size     int // bytes; what adapts
	max      int // of size
	hub      int // that the hub allows, however few the frames
	probing  bool
	shrunk   time.Time     // last time that it shrank
	late     time.Duration // the round trip from which on it does
}

// newWindow starts with what limits and hub allow, and the round trip of the
// open request.
func newWindow(limit, hub int, rtt time.Duration) window {
	return window{
		size: min(firstWindow, limit), max: limit, hub: hub, probing: true,
		late: lateAck + 2*min(rtt, worstRTT),
	}
}

// room reports whether a frame of n bytes may be sent: the last one may exceed
// the size, never what the hub allows.
func (w *window) room(n int) bool {
	return w.inflight == 0 || w.inflight < w.size && w.inflight+n <= w.hub
}

// full reports whether no frame may be sent, whatever its size.
func (w *window) full() bool { return w.inflight > 0 && w.inflight >= w.size }

// landed takes in that n bytes were acked, rtt after they were sent; limited
// tells that the window was full then.
func (w *window) landed(now time.Time, n int, rtt time.Duration, limited bool) {
	w.inflight -= n
	switch {
	case rtt > w.late:
		if now.Sub(w.shrunk) >= rtt { // once for what was in flight together
			w.size = max(w.size*3/4, min(minWindow, w.max))
			w.shrunk, w.probing = now, false
		}
	case !limited:
	case w.probing:
		w.size = min(w.size+n, w.max)
	default:
		w.size = min(w.size+firstWindow*n/max(w.size, 1), w.max)
	}
}
