package registry

import (
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// counted is what the sums hold of one device.
type counted struct {
	backlog uint64
	labels  int64
}

func count(d *admin.Device) (c counted) {
	for _, l := range d.Backlog {
		c.backlog += min(l.Messages, 1<<50) // a device cannot overflow the sum
	}
	for k, v := range d.Labels {
		c.labels += int64(len(k) + len(v))
	}
	return c
}

// lookup returns the entry of a known device, unpacked if need be; nil if it is
// not known. r.mu is held.
func (r *Registry) lookup(device string) *entry {
	if e := r.entries[device]; e != nil {
		return e
	}
	p, ok := r.shelf.find(device)
	if !ok {
		return nil
	}
	e := r.wake(p)
	r.entries[device] = e
	p.slot().entry, p.slot().packed, p.slot().labels = e, "", noLabels
	return e
}

// wake makes an entry of a packed device; r.mu is held.
func (r *Registry) wake(p place) *entry {
	now := r.now()
	e := newEntry(string(p.chunk.name(p.i)), now)
	var left bool
	device := e.rec.Device.Device
	e.rec, e.rev, left = unpack(p.slot().packed, p.slot().labels)
	e.rec.Device.Device, e.rec.Online = device, p.slot().online
	e.counted = count(&e.rec.Device)
	e.written = now // what comes next need not be written at once
	if left {
		e.left = e.rec.Process
	}
	return e
}

// add puts a new device's entry on the shelf; r.mu is held.
func (r *Registry) add(e *entry) place {
	device := e.rec.Device.Device
	p := r.shelf.put(device)
	p.slot().entry = e
	r.entries[device] = e
	return p
}

// settle brings the sums up to date with an entry; r.mu is held.
func (r *Registry) settle(p place, e *entry) {
	c := count(&e.rec.Device)
	r.backlog += c.backlog - e.counted.backlog
	r.labels += c.labels - e.counted.labels
	e.counted = c
	r.shelf.mark(p, e.rec.Online, e.rec.Clones != nil)
}

// rests reports whether nothing happens with a device, so that it can be packed;
// r.mu is held.
func (r *Registry) rests(e *entry, now time.Time) bool {
	return !e.rec.Online && len(e.sessions) == 0 && e.inbox == "" &&
		e.dirty == clean && !e.newToken && e.newClones == 0 && e.rev > 0 &&
		now.Sub(e.written) >= time.Minute && now.Sub(e.refill) >= beatsBurst*time.Second && now.Sub(e.warned) >= time.Minute
}

// shelve packs an entry; r.mu is held.
func (r *Registry) shelve(p place, e *entry) {
	r.settle(p, e)
	left := e.left != "" && e.left == e.rec.Process
	sl := p.slot()
	sl.entry = nil
	sl.packed, sl.labels = pack(&e.rec, e.rev, left)
	delete(r.entries, e.rec.Device.Device)
}

// forget removes a device; r.mu is held.
func (r *Registry) forget(p place) {
	e := p.slot().entry
	if e == nil {
		e = r.wake(p)
	}
	r.backlog -= e.counted.backlog
	r.labels -= e.counted.labels
	delete(r.entries, e.rec.Device.Device)
	delete(r.urgent, e)
	r.shelf.remove(p)
}
