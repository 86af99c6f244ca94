package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const leaseMisses = 3 // renewals that may fail before others take over

// errLeaseLost ends the work of a holder.
var errLeaseLost = errors.New("unpack: lease lost")

// lease decides which instance tries to do a piece of work. It is for liveness
// only: it compares no clocks of different machines, and two holders at once do
// no harm.
type lease struct {
	kv    jetstream.KeyValue
	key   string
	id    string
	renew time.Duration
	fault func(string) error

	rev uint64 // of our entry; owned by hold
}

type leaseValue struct {
	Holder string `json:"holder"` // empty: given back
	Count  uint64 `json:"count"`  // so that every renewal is a change
}

// hold waits for the lease, calls work while it is held, and gives it back. It
// returns when work does, with work's error.
func (l *lease) hold(ctx context.Context, standby func(context.Context), work func(context.Context) error) error {
	if err := l.acquire(ctx, standby); err != nil {
		return err
	}
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.keep(working, cancel)
	}()
	err := work(working)
	cancel(nil)
	<-done
	l.release(ctx)
	return err
}

// acquire polls until the entry is free, or has not changed for too long.
func (l *lease) acquire(ctx context.Context, standby func(context.Context)) error {
	var seen uint64 // revision
	var since time.Time
	for {
		rev, holder, err := l.look(ctx)
		if err == nil {
			err = l.fault("lease:acquire")
		}
		switch {
		case err != nil:
		case holder == l.id: // ours: the answer to our write was lost, or to its release
			l.rev = rev
			return nil
		case holder == "" || rev == seen && time.Since(since) >= leaseMisses*l.renew:
			if err = l.put(ctx, rev, leaseValue{Holder: l.id}); err == nil {
				return nil
			}
		case rev != seen:
			seen, since = rev, time.Now()
		}
		if err := sleep(ctx, l.renew/2); err != nil {
			return err
		}
		standby(ctx)
	}
}

// look returns the entry's revision, 0 if there is none, and its holder, empty
// if it is free.
func (l *lease) look(ctx context.Context) (rev uint64, holder string, err error) {
	e, err := l.kv.Get(ctx, l.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	var v leaseValue
	if json.Unmarshal(e.Value(), &v) != nil {
		v.Holder = "" // nobody's
	}
	return e.Revision(), v.Holder, nil
}

func (l *lease) put(ctx context.Context, rev uint64, v leaseValue) (err error) {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaseMisses*l.renew)
	defer cancel()
	rev, err = swap(ctx, l.kv, l.key, data, rev)
	if err == nil {
		l.rev = rev
	}
	return err
}

// keep renews until ctx ends, or until others may have taken over.
func (l *lease) keep(ctx context.Context, lost context.CancelCauseFunc) {
	tick := time.NewTicker(l.renew)
	defer tick.Stop()
	last := time.Now()
	for n := uint64(1); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := l.fault("lease:renew")
		if err == nil {
			err = l.put(ctx, l.rev, leaseValue{Holder: l.id, Count: n})
		}
		if errors.Is(err, jetstream.ErrKeyExists) {
			rev, holder, e := l.look(ctx)
			if e == nil && holder != l.id {
				lost(fmt.Errorf("%w to %q", errLeaseLost, holder))
				return
			}
			if err = e; e == nil {
				l.rev = rev // a renewal whose answer was lost
			}
		}
		switch {
		case err == nil:
			last = time.Now()
		case time.Since(last) >= leaseMisses*l.renew:
			lost(fmt.Errorf("%w: %w", errLeaseLost, err))
			return
		}
	}
}

// release gives the lease back, so that another instance need not wait. If it
// fails, the others wait.
func (l *lease) release(ctx context.Context) {
	if l.fault("lease:release") != nil {
		return
	}
	l.put(context.WithoutCancel(ctx), l.rev, leaseValue{}) //nolint:errcheck // see above
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
