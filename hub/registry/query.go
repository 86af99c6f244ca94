package registry

import (
	"maps"
	"slices"
	"strings"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// Numbers is what metrics say of all devices together.
type Numbers struct {
	Online, Offline int
	Backlog         uint64 // messages that the devices still hold
}

// Numbers counts.
func (r *Registry) Numbers() (n Numbers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.rec.Online {
			n.Online++
		} else {
			n.Offline++
		}
		for _, l := range e.rec.Backlog {
			n.Backlog += min(l.Messages, 1<<50) // a device cannot overflow the sum
		}
	}
	return n
}

// Device returns one device.
func (r *Registry) Device(device string) (admin.Device, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[device]
	if e == nil {
		return admin.Device{}, false
	}
	return e.rec.Device, true
}

// Devices returns the first limit devices after the given one that the filter
// takes, sorted; Online and Total count all that it takes. A filter is part of
// a name, state=online, state=offline, state=cloned, or label=value.
func (r *Registry) Devices(after, filter string, limit int) admin.Devices {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := admin.Devices{Devices: []admin.Device{}}
	for _, device := range slices.Sorted(maps.Keys(r.entries)) {
		d := r.entries[device].rec.Device
		if !matches(d, filter) {
			continue
		}
		out.Total++
		if d.Online {
			out.Online++
		}
		switch {
		case device <= after:
		case len(out.Devices) < limit:
			out.Devices = append(out.Devices, d)
		default:
			out.Next = out.Devices[limit-1].Device
		}
	}
	return out
}

func matches(d admin.Device, filter string) bool {
	key, value, isPair := strings.Cut(filter, "=")
	switch {
	case !isPair:
		return strings.Contains(d.Device, filter)
	case key == "state" && value == "online":
		return d.Online
	case key == "state" && value == "offline":
		return !d.Online
	case key == "state" && value == "cloned":
		return d.Clones != nil
	}
	label, ok := d.Labels[key]
	return ok && label == value
}
