package registry

import (
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// sweep finds devices that are gone: the connection is, or a heartbeat is overdue.
func (r *Registry) sweep() {
	lost := r.lost()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.announceRest(now)
	for _, l := range lost {
		e := r.entries[l.device]
		if e == nil {
			continue
		}
		if _, live := e.sessions[l.session]; live {
			delete(e.sessions, l.session)
			e.ended = now
		}
		if len(e.sessions) == 0 && e.inbox == l.inbox {
			r.leave(e, now, admin.LinkLost)
		}
	}
	for device, e := range r.entries {
		if e.rec.Online && r.overdue(e, now) {
			r.offline(e, now, r.silence(e))
		}
		if !r.rests(e, now) {
			continue
		}
		if p, ok := r.shelf.find(device); ok {
			r.shelve(p, e)
		}
	}
	r.sweepShelf(now)
}

// What one sweep looks at, and unpacks at most: after a start, everybody that the
// bucket says is online may be gone.
const (
	sweepLooks = 20_000
	sweepWakes = 1000
)

// sweepShelf finds packed devices that are not online any more; r.mu is held.
func (r *Registry) sweepShelf(now time.Time) {
	chunks := r.shelf.chunks
	looks, wakes := 0, 0
	for range chunks {
		if looks >= sweepLooks || wakes >= sweepWakes {
			return
		}
		r.swept++
		if r.swept >= len(chunks) {
			r.swept = 0
		}
		c := chunks[r.swept]
		if c.online == 0 {
			continue
		}
		looks += len(c.slots)
		for i := range c.slots {
			if sl := &c.slots[i]; !sl.online || sl.entry != nil {
				continue
			}
			e := r.wake(place{c, i})
			if !r.overdue(e, now) {
				continue
			}
			wakes++
			r.offline(r.lookup(e.rec.Device.Device), now, r.silence(e))
		}
	}
}

// overdue reports whether a heartbeat should have come; r.mu is held.
func (r *Registry) overdue(e *entry, now time.Time) bool {
	every := e.rec.Every
	if every <= 0 {
		every = defaultEvery
	}
	seen := e.rec.Seen
	if seen.Before(r.started) { // this instance did not listen before
		seen = r.started
	}
	return now.Sub(seen) > time.Duration(every)*time.Second*5/2
}

// silence words why a device that is overdue is offline; r.mu is held.
func (r *Registry) silence(e *entry) string {
	if e.rec.Seen.Before(r.started) {
		return admin.LinkHubStarted
	}
	return admin.LinkSilent
}

// silent is a session subject without a subscriber.
type silent struct {
	device  string
	session wire.SessionID
	inbox   string
}

// lost asks the server, outside r.mu, which sessions have no subscriber.
func (r *Registry) lost() []silent {
	if r.cfg.Interest == nil {
		return nil
	}
	r.mu.Lock()
	now := r.now()
	var ask []silent
	for device, e := range r.entries {
		// An agent may subscribe only when it has read the reply.
		if e.inbox == "" || e.rec.Instance != r.cfg.Instance || now.Sub(e.opened) < grace {
			continue
		}
		for s := range e.sessions {
			ask = append(ask, silent{device, s, wire.SessionSubject(device, s)})
		}
		if len(e.sessions) == 0 && now.Sub(e.ended) > grace {
			ask = append(ask, silent{device: device, inbox: e.inbox})
		}
	}
	r.mu.Unlock()
	var out []silent
	for _, s := range ask {
		if !r.cfg.Interest(s.inbox) {
			out = append(out, s)
		}
	}
	return out
}
