package unpack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Unpacker runs one worker for each stream that is unpacked into, one that
// reports gaps and one that lets old blocks go.
type Unpacker struct {
	cfg    Config
	kv     jetstream.KeyValue
	ledger string
	closed chan closedEpoch

	workers map[string]*worker // by stream; fixed after New
	gaps    *gaps
}

type closedEpoch struct {
	device string
	epoch  wire.Epoch
}

// New checks cfg. Nothing runs before Run.
func New(ctx context.Context, cfg Config) (*Unpacker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	kv, err := cfg.Store.KV(ctx, store.HubBucket)
	if err != nil {
		return nil, err
	}
	u := &Unpacker{cfg: cfg, kv: kv, ledger: store.Blocks, closed: make(chan closedEpoch, 1024), workers: map[string]*worker{}}
	tables, err := u.declareTables(ctx)
	if err != nil {
		return nil, err
	}
	for _, stream := range cfg.Routes.Streams() {
		u.employ(stream, 0)
	}
	for _, stream := range tables.former() {
		if !cfg.Routes.unpacks(stream) {
			u.employ(stream, tables.End(stream))
		}
	}
	u.gaps = &gaps{u: u, state: saved[gapsEntry]{kv: kv, key: keyCheckpoint(gapsName)}}
	return u, nil
}

// employ makes the worker of a stream.
func (u *Unpacker) employ(stream string, end uint64) {
	u.workers[stream] = &worker{u: u, stream: stream, end: end, state: saved[entry]{kv: u.kv, key: keyCheckpoint(stream)}}
}

// Run unpacks until ctx ends; it returns nil then. Whatever goes wrong
// meanwhile is tried again, logged once and shown by Status.
func (u *Unpacker) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, w := range u.workers {
		wg.Go(func() { u.keep(ctx, &w.health, w.stream, w.standby, w.work) })
	}
	housekeeping := func(ctx context.Context) error {
		// Both under one lease, as neither has much to do.
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var inner sync.WaitGroup
		inner.Go(func() { cancel(u.gaps.work(ctx)) })
		inner.Go(func() { cancel(u.retain(ctx)) })
		inner.Wait()
		return context.Cause(ctx)
	}
	wg.Go(func() { u.keep(ctx, &u.gaps.health, "housekeeping", u.gaps.standby, housekeeping) })
	wg.Go(func() { u.closeEpochs(ctx) })
	wg.Wait()
	return nil
}

const (
	retryFirst = 50 * time.Millisecond
	retryMost  = 5 * time.Second
)

// keep does work under its lease again and again until ctx ends.
func (u *Unpacker) keep(ctx context.Context, h *health, name string, standby func(context.Context), work func(context.Context) error) {
	for wait := retryFirst; ctx.Err() == nil; {
		began := time.Now()
		l := &lease{kv: u.kv, key: keyLease(name), id: u.cfg.Instance, renew: u.cfg.LeaseRenew, fault: u.cfg.Fault}
		err := l.hold(ctx, standby, work)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errCourseEnd) {
			return
		}
		if time.Since(began) > 2*retryMost {
			wait = retryFirst
		}
		if !errors.Is(err, errLeaseLost) {
			h.set(u, name, err)
		}
		if sleep(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// health is what is wrong with a piece of work, for logs and Status.
type health struct {
	mu  sync.Mutex
	err error // guarded by mu
}

// set logs transitions and changes of the reason.
func (h *health) set(u *Unpacker, name string, err error) {
	h.mu.Lock()
	was := h.err
	h.err = err
	h.mu.Unlock()
	switch {
	case err != nil && (was == nil || was.Error() != err.Error()):
		u.cfg.Log.Error("unpacking is held up and tried again", "what", name, "error", err)
	case err == nil && was != nil:
		u.cfg.Log.Info("unpacking goes on", "what", name)
	}
}

func (h *health) get() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Status is how far one stream is, as this instance knows it.
type Status struct {
	Stream   string
	At       Checkpoint // zero until known
	Err      error      // why it does not go on; nil if it does, or if another instance does it
	End      uint64     // of a stream whose routes are gone: it gets nothing from this block on
	Done     bool       // that is reached
	Intruded uint64     // messages that others have published into it, as far as this instance found out
	Asked    *Walk      // back-fill that will begin
	Walk     *Walk      // under way; At is in it
	Then     Position   // where it goes on after Walk
	Walks    []Walk     // done
	Lost     Lost       // removed from the ledger before the stream had it
}

// Status lists every stream that is unpacked into: those of the routes in their
// order, then those whose routes are gone.
func (u *Unpacker) Status() (out []Status) {
	names := u.cfg.Routes.Streams()
	for _, stream := range slices.Sorted(maps.Keys(u.workers)) {
		if u.workers[stream].end > 0 {
			names = append(names, stream)
		}
	}
	for _, stream := range names {
		out = append(out, u.workers[stream].status())
	}
	return out
}

func (w *worker) status() Status {
	err := w.health.get()
	w.mu.Lock()
	defer w.mu.Unlock()
	return Status{
		Stream: w.stream, At: w.at.Checkpoint, Err: err, End: w.end, Done: w.done, Intruded: w.intruded,
		Asked: w.at.Asked, Walk: w.at.Walk, Then: w.at.Then, Walks: w.at.Done,
		Lost: w.gone,
	}
}

// Lag is how many blocks a stream is behind the ledger, whose last sequence is
// given, those of a back-fill included; 0 for a stream that is not unpacked into.
func (u *Unpacker) Lag(stream string, ledgerLast uint64) (lag uint64) {
	w := u.workers[stream]
	if w == nil {
		return 0
	}
	e := w.seen()
	if e.Incarnation == "" {
		return 0
	}
	at, end := e.Position, ledgerLast+1
	if w.end > 0 {
		end = min(end, w.end)
	}
	if e.Walk != nil {
		lag = e.Walk.End - min(at.Block, e.Walk.End)
		at = e.Then
	}
	return lag + end - min(at.Block, end)
}

// CloseEpoch notes that a device will send nothing more in an epoch, so that its
// marks need not stay for ever. It does not block; what is lost under pressure
// or by a crash leaves a mark that stays.
func (u *Unpacker) CloseEpoch(device string, e wire.Epoch) {
	select {
	case u.closed <- closedEpoch{device, e}:
	default:
	}
}

func (u *Unpacker) fault(point string) error {
	if err := u.cfg.Fault(point); err != nil {
		return fmt.Errorf("unpack: %s: %w", point, err)
	}
	return nil
}
