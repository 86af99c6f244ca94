package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// Devices iterates over the devices that the hub has heard of, by name, page by
// page. filter is part of a name; state=online, state=offline or state=cloned; or
// label=value; empty takes all. An error ends it.
func (c *Client) Devices(ctx context.Context, filter string) iter.Seq2[admin.Device, error] {
	return func(yield func(admin.Device, error) bool) {
		ctx, done, err := c.begin(ctx)
		if err != nil {
			yield(admin.Device{}, err)
			return
		}
		defer done()
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
			switch {
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
