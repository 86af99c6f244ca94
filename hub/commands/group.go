package commands

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// group is what the bucket holds of a command to many.
type group struct {
	ID       string            `json:"id"`
	Labels   map[string]string `json:"labels"`
	Subject  string            `json:"subject"`
	Payload  string            `json:"payload"` // its SHA-256
	Sent     int64             `json:"sent"`
	Devices  int               `json:"devices"`            // that got it
	Refused  map[string]string `json:"refused,omitempty"`  // the first that did not, and why
	Missed   int               `json:"missed,omitempty"`   // that did not
	Complete bool              `json:"complete,omitempty"` // all have it, or were refused
}

// NewGroup is a command to every device that has the labels now.
type NewGroup struct {
	ID      string // "": drawn. The same one again goes on where it was
	Labels  map[string]string
	Subject string
	Payload []byte
	TTL     time.Duration
}

const (
	// MaxGroupID leaves room for what the ids of its commands add.
	MaxGroupID   = 48
	groupWorkers = 16
	groupPage    = 500
	maxRefused   = 20 // that are named
)

// memberID is the id of the device's command of a group: always the same.
func memberID(group, device string) string {
	sum := sha256.Sum256([]byte(device))
	return group + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:14])
}

// SendGroup sends to each device with the labels, and returns when all have been
// sent to. If it ends before, the same id again goes on: no device gets it twice,
// and none is missed.
func (c *Commands) SendGroup(ctx context.Context, n NewGroup) (admin.CommandGroup, error) {
	if n.ID == "" {
		n.ID = newID()
	}
	g, rev, err := c.openGroup(ctx, n)
	if err != nil || g.Complete {
		if err == nil {
			return c.Group(ctx, n.ID)
		}
		return admin.CommandGroup{}, err
	}
	g.Devices, g.Missed, g.Refused = 0, 0, map[string]string{}
	if err := c.expand(ctx, n, &g); err != nil {
		return admin.CommandGroup{}, fmt.Errorf("%w; %d devices have it: the same id %s again goes on", err, g.Devices, n.ID)
	}
	g.Complete = true
	if err := c.put(ctx, entry{groupKey(n.ID), rev, g}); err != nil && !errors.Is(err, store.ErrGuard) { // guard: somebody else has completed it
		return admin.CommandGroup{}, err
	}
	return c.Group(ctx, n.ID)
}

// openGroup writes what the group is, once.
func (c *Commands) openGroup(ctx context.Context, n NewGroup) (g group, rev uint64, err error) {
	for try := 0; ; try++ {
		rev, err = c.get(ctx, groupKey(n.ID), &g)
		payload := fmt.Sprintf("%x", sha256.Sum256(n.Payload))
		switch {
		case err == nil && (g.Subject != n.Subject || g.Payload != payload || !maps.Equal(g.Labels, n.Labels)):
			return g, 0, ErrDiffers
		case !errors.Is(err, store.ErrNotFound):
			return g, rev, err
		}
		g = group{ID: n.ID, Labels: n.Labels, Subject: n.Subject, Payload: payload, Sent: c.cfg.Now().UnixMilli()}
		err = c.put(ctx, entry{groupKey(n.ID), 0, g})
		if err != nil && !again(try, err) {
			return g, 0, err
		}
	}
}

// expand sends to the devices, page by page.
func (c *Commands) expand(ctx context.Context, n NewGroup, g *group) error {
	filter := ""
	for k, v := range n.Labels { // any of them: the others are looked at here
		filter = k + "=" + v
		break
	}
	for after := ""; ; {
		page := c.cfg.Devices.Devices(after, filter, groupPage)
		if page.Loading {
			return ErrLoading
		}
		var devices []string
		for _, d := range page.Devices {
			if hasLabels(d.Labels, n.Labels) {
				devices = append(devices, d.Device)
			}
		}
		if err := c.sendAll(ctx, n, g, devices); err != nil || page.Next == "" {
			return err
		}
		after = page.Next
	}
}

// sendAll sends to some devices, several at a time.
func (c *Commands) sendAll(ctx context.Context, n NewGroup, g *group, devices []string) (failed error) {
	errs := make([]error, len(devices))
	places := make(chan struct{}, groupWorkers)
	var work sync.WaitGroup
	for i, d := range devices {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			_, errs[i] = c.Send(ctx, NewCommand{ID: memberID(n.ID, d), Device: d, Group: n.ID, Subject: n.Subject, Payload: n.Payload, TTL: n.TTL})
		})
	}
	work.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
			g.Devices++
		case errors.Is(err, store.ErrSubjectFull):
			if g.Missed++; len(g.Refused) < maxRefused {
				g.Refused[devices[i]] = "max_pending"
			}
		default:
			failed = err
		}
	}
	return failed
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Group sums up, or returns ErrUnknown.
func (c *Commands) Group(ctx context.Context, id string) (admin.CommandGroup, error) {
	var g group
	if _, err := c.get(ctx, groupKey(id), &g); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = ErrUnknown
		}
		return admin.CommandGroup{}, err
	}
	out := admin.CommandGroup{
		ID: g.ID, Labels: g.Labels, Subject: g.Subject, Sent: stamp(g.Sent), Devices: g.Devices, Complete: g.Complete,
		Missed: g.Missed, Refused: g.Refused, States: map[wire.CommandState]int{},
	}
	seen := map[string]wire.CommandState{} // one that changes meanwhile comes again
	_, err := c.scan(ctx, commandKey("*", "*"), 0, func(r *record) bool {
		if r.Group == id {
			seen[r.ID] = r.State
		}
		return true
	})
	for _, s := range seen {
		out.States[s]++
	}
	if !g.Complete {
		out.Devices = len(seen)
	}
	return out, err
}
