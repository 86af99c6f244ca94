package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// watchLeases is longer than a lease of the hub may go unrenewed.
const watchLeases = 4 * time.Second

// ErrHubRuns means that a hub is at work on the streams.
var ErrHubRuns = errors.New("backup: a hub is running on these streams")

// quiet returns nil if no hub writes: every one that runs renews a lease once a
// second in the bucket that it shares with the others. The embedded server has
// its lock instead.
func quiet(ctx context.Context, s *store.Store, limit time.Duration) error {
	if s.Server() != nil {
		return nil
	}
	before, err := lastOf(ctx, s)
	for until := time.Now().Add(limit); err == nil && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
		var now uint64
		if now, err = lastOf(ctx, s); err == nil && now != before {
			return fmt.Errorf("%w: its leases are renewed; stop every instance of fieldpost-hub, then run this again", ErrHubRuns)
		}
	}
	return err
}

// lastOf is the last sequence of the hub's bucket, 0 if there is none.
func lastOf(ctx context.Context, s *store.Store) (uint64, error) {
	var i store.Info
	err := patiently(ctx, func(ctx context.Context) (err error) {
		i, err = s.Info(ctx, "KV_"+store.HubBucket)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	return i.Last, err
}
