package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// ErrDevicesLoading ends a list of devices that is not complete.
var ErrDevicesLoading = errors.New("hub/client: devices: this list is not complete: the hub has just started and still reads its own; ask again in a moment")

// Devices iterates over the devices that the hub has heard of, by name, page by
// page. filter is part of a name; state=online, state=offline or state=cloned; or
// label=value; empty takes all. An error ends it: ErrDevicesLoading if the hub itself
// did not know all of them yet.
func (c *Client) Devices(ctx context.Context, filter string) iter.Seq2[admin.Device, error] {
	return func(yield func(admin.Device, error) bool) {
		ctx, done, err := c.begin(ctx)
		if err != nil {
			yield(admin.Device{}, err)
			return
		}
		defer done()
		loading := false
		for q := (admin.DeviceQuery{Filter: filter}); ; {
			page, err := c.admin.Devices(ctx, q)
			if err != nil {
				yield(admin.Device{}, fmt.Errorf("hub/client: devices: %w", err))
				return
			}
			for _, d := range page.Devices {
				if !yield(d, nil) {
					return
				}
			}
			loading = loading || page.Loading
			switch {
			case page.Next == "" && loading:
				yield(admin.Device{}, ErrDevicesLoading)
				return
			case page.Next == "":
				return
			case page.Next <= q.After:
				yield(admin.Device{}, fmt.Errorf("hub/client: devices: the page after %q says that %q follows; is this a hub?", q.After, page.Next))
				return
			}
			q.After = page.Next
		}
	}
}
