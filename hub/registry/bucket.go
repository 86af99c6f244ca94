package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Bucket is the KV bucket fieldpost_devices; jetstream.KeyValue is one.
type Bucket interface {
	Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error)
	Create(ctx context.Context, key string, value []byte, opts ...jetstream.KVCreateOpt) (uint64, error)
	Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	Delete(ctx context.Context, key string, opts ...jetstream.KVDeleteOpt) error
	WatchAll(ctx context.Context, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error)
}

const writeTimeout = 5 * time.Second

// Open reads what the bucket knows. The registry then wants Run.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := newRegistry(cfg)
	w, err := cfg.Bucket.WatchAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("registry: read devices: %w", err)
	}
	defer w.Stop() // Run watches anew; what changed in between comes again
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("registry: read devices: %w", context.Cause(ctx))
		case kv, ok := <-w.Updates():
			if !ok {
				return nil, errors.New("registry: read devices: the watch ended")
			}
			if kv == nil {
				return r, nil
			}
			r.learn(kv)
		}
	}
}

// Run writes changes to the bucket, follows those of other instances and finds
// devices that are gone. It returns when ctx ends, after a last write.
func (r *Registry) Run(ctx context.Context) error {
	f := flusher{r: r}
	err := r.follow(ctx, &f)
	// The deadline is short: what is not written is found out again.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for range 3 { // a write that the end of ctx cut short may have been stored, and conflicts once
		f.flush(last, true)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *Registry) follow(ctx context.Context, f *flusher) error {
	w, err := r.cfg.Bucket.WatchAll(ctx)
	if err != nil {
		return fmt.Errorf("registry: watch devices: %w", err)
	}
	defer w.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case kv, ok := <-w.Updates():
			if !ok {
				return errors.New("registry: the watch of the devices ended")
			}
			if kv != nil {
				r.learn(kv)
			}
		case <-tick.C:
			r.sweep()
			f.flush(ctx, false)
		case <-r.kick:
			f.flush(ctx, false)
		}
	}
}

// learn merges a value of the bucket, this instance's own or another's.
func (r *Registry) learn(kv jetstream.KeyValueEntry) {
	device := kv.Key()
	if wire.CheckDevice(device) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[device]
	if kv.Operation() != jetstream.KeyValuePut {
		if e != nil && kv.Revision() > e.rev && len(e.sessions) == 0 {
			delete(r.entries, device)
		}
		return
	}
	if e != nil && kv.Revision() <= e.rev {
		return
	}
	var rec record
	if err := json.Unmarshal(kv.Value(), &rec); err != nil {
		r.cfg.Log.Warn("registry entry cannot be read and is written anew", "device", device, "err", err)
		rec = record{}
	}
	rec.Device.Device = device
	if e == nil {
		e = newEntry(device, r.now())
		e.rec, e.rev, e.written = rec, kv.Revision(), r.now()
		r.entries[device] = e
		return
	}
	e.merge(rec, kv.Revision())
}

// merge takes over what another instance knows better. Registry.mu is held.
func (e *entry) merge(rec record, rev uint64) {
	e.rev = rev
	mine := &e.rec
	if !e.newToken && rec.Token != "" {
		mine.Token = rec.Token
	}
	mine.Clones = mergeClones(mine.Clones, rec.Clones, e.newClones)
	if rec.Imported.After(mine.Imported) {
		mine.Imported = rec.Imported
	}
	if !rec.Created.IsZero() && rec.Created.Before(mine.Created) {
		mine.Created = rec.Created
	}
	if len(e.sessions) > 0 && !rec.Online {
		e.dirty = turn // another instance missed the session here
		return
	}
	if rec.Seen.After(mine.Seen) || rec.Since.After(mine.Since) {
		created, clones, token, seen, imported := mine.Created, mine.Clones, mine.Token, mine.Seen, mine.Imported
		*mine = rec
		mine.Created, mine.Clones, mine.Token, mine.Imported = created, clones, token, imported
		if seen.After(mine.Seen) {
			mine.Seen = seen
		}
	}
}

func mergeClones(mine, theirs *admin.Clones, unwritten uint64) *admin.Clones {
	switch {
	case theirs == nil:
		return mine
	case mine == nil:
		return theirs
	}
	out := &admin.Clones{Reports: theirs.Reports + unwritten, Last: theirs.Last}
	if mine.Last.After(out.Last) {
		out.Last = mine.Last
	}
	return out
}

// Errors of Forget.
var (
	ErrUnknown = errors.New("registry: no such device")
	ErrOnline  = errors.New("registry: the device is online")
)

// Forget removes a device that is offline from what is shown. What it has
// delivered stays, and so does what the ledger has received of it: if it comes
// back it goes on where it was.
func (r *Registry) Forget(ctx context.Context, device string) error {
	r.mu.Lock()
	e := r.entries[device]
	online := e != nil && (e.rec.Online || len(e.sessions) > 0)
	r.mu.Unlock()
	switch {
	case e == nil:
		return ErrUnknown
	case online:
		return ErrOnline
	}
	if err := r.cfg.Bucket.Delete(ctx, device); err != nil {
		return fmt.Errorf("registry: forget %s: %w", device, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[device] == e && len(e.sessions) == 0 { // it has not come back meanwhile
		delete(r.entries, device)
	}
	return nil
}

// flusher writes entries that changed. Owned by Run.
type flusher struct {
	r       *Registry
	failing bool
	retry   time.Time
}

// pending is one entry on its way to the bucket.
type pending struct {
	device    string
	rec       record
	rev, gen  uint64
	newToken  bool
	newClones uint64
}

// flush writes what is due, or everything.
func (f *flusher) flush(ctx context.Context, all bool) {
	r := f.r
	if !all && r.now().Before(f.retry) {
		return
	}
	for _, p := range r.due(all) {
		rev, err := r.write(ctx, p)
		switch {
		case err == nil:
			r.wrote(p, rev)
			if f.failing {
				f.failing = false
				r.cfg.Log.Info("registry is written again")
			}
		case errors.Is(err, errConflict):
			// Merged; the next round writes it.
		case ctx.Err() != nil:
			return
		default:
			f.retry = r.now().Add(2 * time.Second)
			if !f.failing {
				f.failing = true
				r.cfg.Log.Warn("registry cannot be written; devices are shown from memory", "err", err)
			}
			return
		}
	}
}

// due lists the entries whose time has come.
func (r *Registry) due(all bool) []pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	var out []pending
	for device, e := range r.entries {
		wait := slowly
		if e.dirty == turn {
			wait = soon
		}
		if e.dirty == clean || !all && now.Sub(e.written) < wait {
			continue
		}
		out = append(out, pending{device, e.rec, e.rev, e.gen, e.newToken, e.newClones})
	}
	return out
}

var errConflict = errors.New("registry: another instance wrote first")

func (r *Registry) write(ctx context.Context, p pending) (rev uint64, err error) {
	value, err := json.Marshal(p.rec)
	if err != nil {
		return 0, fmt.Errorf("registry: encode %s: %w", p.device, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if p.rev == 0 {
		rev, err = r.cfg.Bucket.Create(ctx, p.device, value)
	} else {
		rev, err = r.cfg.Bucket.Update(ctx, p.device, value, p.rev)
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return rev, err
	}
	// The watch may lag; read what is there now.
	kv, err := r.cfg.Bucket.Get(ctx, p.device)
	switch {
	case err == nil:
		r.learn(kv)
	case errors.Is(err, jetstream.ErrKeyNotFound): // deleted: write it anew
		r.mu.Lock()
		if e := r.entries[p.device]; e != nil {
			e.rev = 0
		}
		r.mu.Unlock()
	default:
		return 0, err
	}
	return 0, errConflict
}

// wrote notes that p is in the bucket.
func (r *Registry) wrote(p pending, rev uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[p.device]
	if e == nil {
		return
	}
	e.rev = max(e.rev, rev)
	e.written = r.now()
	e.newClones -= p.newClones
	if e.rec.Token == p.rec.Token {
		e.newToken = false
	}
	if e.gen == p.gen {
		e.dirty = clean
	}
}
