package desired

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	lookEvery  = 2 * time.Second // whether the bucket is still the same
	retryAfter = time.Second
)

// errAnew means that the bucket is another one than was read.
var errAnew = errors.New("desired: the bucket was made anew")

// Run reads what all instances write and wakes devices, until ctx ends; it returns
// nil then. What goes wrong is tried again, logged once and shown by Err.
func (d *Desired) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { d.wakeLoop(ctx) })
	for {
		err := d.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errAnew) {
			d.cfg.Log.Warn("the bucket of desired settings was made anew, and is read anew", "bucket", store.DesiredBucket)
			continue
		}
		d.failed(err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

// failed notes why the bucket is not read. What was read stays, unless there is no
// bucket: then nobody knows what is wanted.
func (d *Desired) failed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		d.loaded = false
	}
	was := d.err
	if d.err = err; was == nil || was.Error() != err.Error() {
		d.cfg.Log.Error("desired settings cannot be read; it is tried again", "error", err)
	}
}

// follow reads the bucket from its beginning, and then what comes, until something
// goes wrong.
func (d *Desired) follow(ctx context.Context) error {
	info, err := d.cfg.Store.Info(ctx, store.DesiredIndex)
	if err != nil {
		return err
	}
	r, err := d.cfg.Store.FilteredReader(store.DesiredIndex, docFilter, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	t, seen, err := d.load(ctx, r)
	if err != nil {
		return err
	}
	d.install(t, seen, info.Incarnation)
	look := time.Now()
	for {
		m, err := r.Next(ctx)
		switch {
		case errors.Is(err, store.ErrNotFound):
			if err := r.Wait(ctx); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			if err := d.fault("read"); err != nil {
				return err
			}
			d.learn(m)
		}
		if time.Since(look) < lookEvery {
			continue
		}
		look = time.Now()
		now, err := d.cfg.Store.Info(ctx, store.DesiredIndex)
		switch {
		case err != nil:
			return err
		case now.Incarnation != info.Incarnation || now.Last < d.upTo():
			return errAnew
		}
	}
}

// load reads until it has what the leader had when it began.
func (d *Desired) load(ctx context.Context, r *store.Reader) (t table, seen uint64, err error) {
	t = newTable()
	m, err := d.last(ctx, docFilter)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return t, 0, err
	}
	for end := m.Seq; seen < end; {
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) { // a replica that lags; or the last was replaced meanwhile, and comes
			if err := r.Wait(ctx); err != nil {
				return t, 0, err
			}
			if end, err = d.shrunk(ctx, end); err != nil {
				return t, 0, err
			}
			continue
		}
		if err != nil {
			return t, 0, err
		}
		seen = m.Seq
		if doc, err := parseDocument(m); err != nil {
			d.cfg.Log.Warn("an entry of desired settings is passed over", "err", err)
		} else {
			t.put(doc)
		}
	}
	return t, seen, nil
}

// shrunk is the end to read to if the one before is not there any more.
func (d *Desired) shrunk(ctx context.Context, end uint64) (uint64, error) {
	m, err := d.last(ctx, docFilter)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return min(end, m.Seq), err
}

// install takes a table over. Where there was one before, devices are woken for
// what differs; else they ask, as they begin a session.
func (d *Desired) install(t table, seen uint64, of string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != "" {
		for key, was := range d.table.docs {
			if now := t.docs[key]; was.data != nil && (now == nil || now.rev != was.rev) {
				d.toWake(key)
			}
		}
		for key := range t.docs {
			if d.table.docs[key] == nil {
				d.toWake(key)
			}
		}
	}
	if d.err != nil {
		d.cfg.Log.Info("desired settings are read again")
	}
	d.table, d.seen, d.of, d.loaded, d.err = t, seen, of, true, nil
	clear(d.cache) // revisions of another bucket name other documents
}

// learn takes in what somebody wrote.
func (d *Desired) learn(m store.Stored) {
	doc, err := parseDocument(m)
	if err != nil {
		d.cfg.Log.Warn("an entry of desired settings is passed over", "err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = m.Seq
	for device := range d.late {
		d.toWake(Target{Device: device}.key())
	}
	clear(d.late)
	if err != nil {
		return
	}
	if !d.table.put(doc) && d.table.docs[doc.key].rev == doc.rev { // written here: now with the server's time
		d.table.docs[doc.key] = doc
	}
	d.toWake(doc.key)
}

func (d *Desired) upTo() uint64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.seen
}

// behind reports whether the leader has documents that were not read yet.
func (d *Desired) behind(ctx context.Context) (bool, error) {
	m, err := d.last(ctx, docFilter)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil && m.Seq > d.upTo(), err
}
