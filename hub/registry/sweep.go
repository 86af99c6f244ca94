package registry

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// sweep finds devices that are gone: the connection is, or a heartbeat is overdue.
func (r *Registry) sweep() {
	lost := r.lost()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
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
			r.leave(e, now)
		}
	}
	for _, e := range r.entries {
		if e.rec.Online && r.overdue(e, now) {
			r.offline(e, now)
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
