package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

// errReopen ends the parts so that they are opened anew, the embedded server too.
var errReopen = errors.New("the embedded server has to start anew")

const (
	failedEvery = time.Second // so often the embedded server is asked whether it has failed
	// reopenRoom has to be free before it starts anew: enough for a few seconds of
	// work, or it would fail again at once.
	reopenRoom  = 64 << 20
	reopenFirst = time.Second
	reopenMost  = time.Minute
)

// keepOpen opens the parts and runs them until ctx ends or something fails that
// cannot be mended from inside; what opening them anew may mend is. It waits for a
// cluster that is not there yet.
func (h *Hub) keepOpen(ctx context.Context) error {
	wait := reopenFirst
	for again := false; ; {
		began := time.Now()
		opened, err := h.work(ctx)
		switch {
		case ctx.Err() != nil || err == nil:
			return err
		case errors.Is(err, errReopen):
			again = true
		case !opened && len(h.cfg.NATS.URLs) > 0 && store.Passing(err): // a supervisor could do no more than start it again
		case opened || !again:
			return err
		}
		if time.Since(began) > 2*reopenMost {
			wait = reopenFirst
		}
		h.reopening.Store(&err)
		h.cfg.Log.Warn("the streams are not open; they are opened anew", "in", wait, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, reopenMost)
	}
}

// watchStore ends with errReopen when the embedded server has failed and has
// room again.
func (p *parts) watchStore(ctx context.Context) error {
	tick := time.NewTicker(failedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		failed := p.store.Failed()
		if failed == nil {
			p.monitor.fail(nil)
			continue
		}
		free, err := freeBytes(p.hub.cfg.DataDir)
		if err == nil && free >= reopenRoom {
			return fmt.Errorf("%w: %w", errReopen, failed)
		}
		if err == nil {
			err = fmt.Errorf("%w; it starts anew by itself once %d MiB are free where data_dir is, now %d are: free some space there, or lower nats.max_store",
				failed, reopenRoom>>20, free>>20)
		}
		p.monitor.fail(err)
	}
}
