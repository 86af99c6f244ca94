package registry

import (
	"github.com/fieldpost/fieldpost/hub/admin"
)

// Numbers is what metrics say of all devices together.
type Numbers struct {
	Online, Offline int
	Backlog         uint64 // messages that the devices still hold
	Max             int    // so many devices can be known
	Loading         bool   // the list is still being read: there are more
}

// Numbers counts.
func (r *Registry) Numbers() Numbers {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Numbers{
		Online: r.shelf.online, Offline: r.shelf.total - r.shelf.online, Backlog: r.backlog,
		Max: r.cfg.MaxDevices, Loading: r.loading,
	}
}

// Device returns one device, with its last changes between online and offline.
func (r *Registry) Device(device string) (admin.Device, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.shelf.find(device)
	if !ok {
		return admin.Device{}, false
	}
	d := p.show()
	if e := p.slot().entry; e != nil {
		d.Links = e.rec.History.list()
	} else {
		rec, _, _ := unpack(p.slot().packed, p.slot().labels)
		d.Links = rec.History.list()
	}
	return d, true
}

// show is the device as it is shown; Registry.mu is held.
func (p place) show() admin.Device {
	sl := p.slot()
	if sl.entry != nil {
		return sl.entry.rec.Device
	}
	rec, _, _ := unpack(sl.packed, sl.labels)
	rec.Device.Device, rec.Online = string(p.chunk.name(p.i)), sl.online
	return rec.Device
}

// Devices returns the first limit devices after the given one that the filter
// takes, sorted; Online and Total count all that it takes. A filter is part of
// a name, state=online, state=offline, state=cloned, or label=value.
func (r *Registry) Devices(after, filter string, limit int) admin.Devices {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, q := &r.shelf, newQuery(filter)
	out := admin.Devices{Devices: []admin.Device{}, Loading: r.loading}
	total, online, known := q.counted(s)
	out.Total, out.Online = total, online
	from := 0
	if known { // else all are looked at, to count them
		from = s.chunkOf(after)
	}
	for _, c := range s.chunks[min(from, len(s.chunks)):] {
		if q.skips(c) {
			continue
		}
		for i := range c.slots {
			if !q.takes(c, i) {
				continue
			}
			if !known {
				out.Total++
				out.Online += one(c.slots[i].online)
			}
			switch {
			case out.Next != "" || string(c.name(i)) <= after:
			case len(out.Devices) < limit:
				out.Devices = append(out.Devices, place{c, i}.show())
			default:
				out.Next = out.Devices[limit-1].Device
				if known {
					return out
				}
			}
		}
	}
	return out
}
