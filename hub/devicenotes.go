package hub

import (
	"fmt"

	"github.com/fieldpost/fieldpost/hub/registry"
)

// notes lists what somebody should know although the hub does its work.
func (p *parts) notes() []string {
	return append(deviceNotes(p.registry.Numbers()), p.monitor.notes()...)
}

// deviceNotes is what there is to say of the list of devices.
func deviceNotes(n registry.Numbers) (out []string) {
	known := n.Online + n.Offline
	if n.Loading {
		out = append(out, fmt.Sprintf("the list of devices is still being read: %d so far; what it shows is not complete", known))
	}
	if known >= n.Max {
		out = append(out, fmt.Sprintf("the list of devices is full: it holds %d. Messages of others are taken all the same, but they are not shown, "+
			"and copies of them are not noticed; `fieldpost-hub devices forget` removes those that are gone", known))
	}
	return out
}
