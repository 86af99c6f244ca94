package uplink

import "time"

const (
	firstWindow = 8 << 10
	minWindow   = 4 << 10
	// slack is how long the hub's disk and scheduling may keep an ack; so long the
	// pipe is kept full beyond the bare round trip.
	slack = 50 * time.Millisecond
	// rounds is over how many round trips the best rate counts.
	rounds = 8
	// drainEvery is how often a busy link is left idle for half a round trip, or 30 round
	// trips if these are longer.
	drainEvery = 15 * time.Second
	// lateAck is how much longer than the bare round trip an ack may take before
	// the bytes are taken to queue, not to travel; or a quarter of the round trip,
	// if that is longer.
	lateAck = 600 * time.Millisecond
	// roundLeast keeps a round from ending with every ack on a fast link.
	roundLeast = 20 * time.Millisecond

	worstRTT = 3 * time.Second // of an open request; beyond it the hub was slow, not the link

	// A frame is what an urgent message stands behind: so long the link takes for it.
	frameTime  = 300 * time.Millisecond
	frameLeast = 1 << 10
	frameMost  = 256 << 10
	frameFirst = 4 << 10 // while the rate is unknown
)

// window bounds the bytes in flight to what the link carries in a round trip and
// a little more, so that it is busy and no queue builds up in front of it. It
// measures, from acks, the shortest round trip and the best rate of late, as BBR
// does. At least one frame always passes.
type window struct {
	inflight int
	max      int // of the size
	hub      int // that the hub allows, however few the frames
	most     int // bytes of a frame

	least     time.Duration // round trip of the open request
	rtt       time.Duration // shortest from a frame to its ack, less what the frame itself takes; 0: unknown
	draining  bool          // until a frame has found no queue, to measure rtt
	drained   time.Time     // the last time
	ramp      int           // bounds the size after that: it is filled up without a burst
	delivered int           // bytes acked
	at        time.Time     // when delivered last grew
	probing   bool          // the rate still grows with the size
	start     int           // the size meanwhile
	stalled   int           // rounds without growth while probing
	best      float64       // rate at the last growth

	rates      [rounds]float64 // best of each round, bytes a second; newest first
	roundEnds  int             // delivered at which the present round ends
	roundBegan time.Time
	limited    bool // in it the window, or the socket, held back what was there
	tight      bool // the same of the round before
}

// mark is the window's state when a frame is sent, to measure by.
type mark struct {
	delivered int
	at        time.Time // of delivered; or of the frame, if nothing was in flight
	limited   bool      // the window, or the socket, held back what was there
	draining  bool
}

// newWindow starts with what limits and hub allow, and the round trip of the
// open request, which is small.
func newWindow(limit, hub int, rtt time.Duration) window {
	return window{max: min(limit, hub), hub: hub, most: frameMost, least: max(rtt, time.Millisecond), probing: true, start: firstWindow}
}

// rate is the best of the last rounds, in bytes a second; 0: unknown.
func (w *window) rate() (best float64) {
	for _, r := range w.rates {
		best = max(best, r)
	}
	return best
}

// size is how many bytes may be in flight.
func (w *window) size() int {
	n := w.start
	switch pipe := w.rate() * (max(w.rtt, w.least) + slack).Seconds(); {
	case w.draining:
		n = int(pipe / 2)
	case !w.probing:
		n = int(pipe*1.25) + w.frame()
		if w.ramp > 0 && w.ramp < n {
			n = w.ramp
		}
	}
	return max(min(n, w.max), min(minWindow, w.max))
}

// frame is how many bytes a frame should have.
func (w *window) frame() int {
	if r := w.rate(); r > 0 {
		return min(frameAt(r), w.most)
	}
	return min(frameFirst, w.most)
}

// frameAt is how many bytes a frame has on a link of so many bytes a second.
func frameAt(rate float64) int {
	return int(min(max(rate*frameTime.Seconds(), frameLeast), frameMost))
}

// full reports whether no frame may be sent: the last one may exceed the size,
// never what the hub allows.
func (w *window) full() bool { return w.inflight > 0 && w.inflight >= w.size() }

// sent takes in that n bytes leave.
func (w *window) sent(now time.Time, n int) mark {
	if w.inflight == 0 {
		w.at = now
	}
	w.inflight += n
	return mark{w.delivered, w.at, false, w.draining}
}

// landed takes in that n bytes were acked, rtt after they were sent.
func (w *window) landed(now time.Time, n int, rtt time.Duration, m mark) {
	w.inflight -= n
	w.delivered += n
	w.at = now
	if m.draining {
		rtt = max(rtt-time.Duration(float64(n)/w.rate()*float64(time.Second)), w.least)
		if w.draining || rtt < w.rtt {
			w.rtt, w.draining, w.ramp = rtt, false, w.inflight+n
		}
	}
	if w.ramp > 0 {
		w.ramp += n
	}
	if w.probing && rtt > w.least+max(lateAck, w.least/4) {
		w.probing = false // a queue builds up: more would only make it longer
	}
	took := now.Sub(m.at)
	if took <= 0 {
		return
	}
	rate := float64(w.delivered-m.delivered) / took.Seconds()
	if m.limited || rate > w.rate() {
		w.rates[0] = max(w.rates[0], rate)
	}
	w.limited = w.limited || m.limited
	if m.delivered >= w.roundEnds && now.Sub(w.roundBegan) >= roundLeast {
		w.round(now)
	}
}

// round ends a round trip.
func (w *window) round(now time.Time) {
	limited := w.limited
	w.tight = limited
	w.roundEnds, w.roundBegan, w.limited = w.delivered, now, false
	if !limited {
		return // it tells nothing of the link
	}
	if w.probing {
		if best := w.rate(); best >= 1.25*w.best {
			w.best, w.stalled, w.start = best, 0, 2*w.start
		} else if w.stalled++; w.stalled >= 2 {
			w.probing = false
		}
	}
	if !w.probing && now.Sub(w.drained) >= max(drainEvery, 30*w.rtt) {
		w.draining, w.drained = true, now
	}
	copy(w.rates[1:], w.rates[:rounds-1])
	w.rates[0] = 0
}

// limitFrames sizes the frames of a session by what it may use of the link.
func (s *Sender) limitFrames() {
	s.window.most = frameMost
	if s.cfg.MaxRate > 0 {
		s.window.most = frameAt(float64(s.cfg.MaxRate))
	}
	if s.cfg.MaxFrame > 0 {
		s.window.most = min(s.window.most, max(s.cfg.MaxFrame, frameLeast))
	}
}

// tune goes on with t. Frames that are under way stay as they are.
func (s *Sender) tune(t Tuning) {
	s.cfg.Flush, s.cfg.MaxRate, s.cfg.MaxFrame = t.Flush, t.MaxRate, t.MaxFrame
	if s.phase == phaseOpen {
		s.limitFrames()
	}
}
