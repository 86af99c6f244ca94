package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// Open reads what the bucket knows, for as long as Config.Patience; Run reads the
// rest, and Numbers and Devices say so meanwhile. The registry wants Run in any
// case.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	r := newRegistry(cfg)
	w, err := r.begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("registry: read devices: %w", err)
	}
	r.loading, r.watch = true, w
	patience := time.NewTimer(r.cfg.Patience)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			w.end()
			return nil, fmt.Errorf("registry: read devices: %w", context.Cause(ctx))
		case kv, ok := <-w.Updates():
			if !ok {
				w.end()
				return nil, errors.New("registry: read devices: the watch ended")
			}
			if kv == nil {
				r.loaded()
				return r, nil
			}
			r.learn(kv)
		case <-patience.C:
			n := r.Numbers()
			r.cfg.Log.Info("the list of devices is long; the rest of it is read behind", "devices", n.Online+n.Offline)
			return r, nil
		}
	}
}

// watch is a watch of the bucket.
type watch struct {
	jetstream.KeyWatcher
	cancel context.CancelFunc
}

// begin watches the bucket: first what is in it, then what changes. The watch
// outlives ctx, so that Run can take over the one of Open.
func (r *Registry) begin(ctx context.Context) (*watch, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	w, err := r.cfg.Bucket.WatchAll(own)
	if err != nil {
		cancel()
		return nil, err
	}
	return &watch{w, cancel}, nil
}

func (w *watch) end() {
	w.Stop() // fails only on a connection that is closed
	w.cancel()
}

// loaded notes that the bucket has been read to its end.
func (r *Registry) loaded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loading {
		return
	}
	r.loading = false
	for _, e := range r.entries {
		e.believed = nil
	}
	r.cfg.Log.Info("devices are known", "devices", r.shelf.total, "online", r.shelf.online)
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
	w := r.watch
	r.watch = nil
	if w == nil {
		var err error
		if w, err = r.begin(ctx); err != nil {
			return fmt.Errorf("registry: watch devices: %w", err)
		}
	}
	defer w.end()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var gather <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case kv, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("registry: the watch of the devices ended")
			case kv == nil:
				r.loaded()
			default:
				r.learn(kv)
			}
		case <-tick.C:
			r.sweep()
			f.flush(ctx, false)
		case <-r.kick:
			if gather == nil {
				gather = time.After(together)
			}
		case <-gather:
			gather = nil
			f.flushUrgent(ctx)
		}
	}
}

// learn merges a value of the bucket, this instance's own or another's.
func (r *Registry) learn(kv jetstream.KeyValueEntry) {
	device, rev := kv.Key(), kv.Revision()
	if wire.CheckDevice(device) != nil || !r.isNews(device, rev) {
		return
	}
	if kv.Operation() != jetstream.KeyValuePut {
		r.mu.Lock()
		defer r.mu.Unlock()
		p, ok := r.shelf.find(device)
		if e := r.entries[device]; ok && (e == nil || len(e.sessions) == 0) {
			r.forget(p)
		}
		return
	}
	var rec record
	if err := json.Unmarshal(kv.Value(), &rec); err != nil {
		r.cfg.Log.Warn("registry entry cannot be read and is written anew", "device", device, "err", err)
		rec = record{}
	}
	rec.Device.Device, rec.History = device, encodeLinks(rec.History.list())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take(device, rec, rev)
}

// isNews reports whether a revision is younger than what is known.
func (r *Registry) isNews(device string, rev uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.shelf.find(device)
	switch {
	case !ok:
		return true
	case p.slot().entry != nil:
		return rev > p.slot().entry.rev
	}
	return rev > packedRev(p.slot().packed)
}

// take takes over a record of the bucket. A device that does nothing here stays
// packed. r.mu is held.
func (r *Registry) take(device string, rec record, rev uint64) {
	p, ok := r.shelf.find(device)
	if e := r.entries[device]; e != nil {
		if rev > e.rev {
			e.judge(r, &rec)
			e.merge(rec, rev)
			if e.dirty == turn {
				r.urgent[e] = struct{}{}
			}
			r.settle(p, e)
		}
		return
	}
	var e *entry
	if ok {
		e = r.wake(p)
		e.merge(rec, rev)
	} else {
		p = r.shelf.put(device)
		e = &entry{rec: rec, rev: rev}
	}
	r.shelve(p, e)
}

// judge looks at the token of a device that came before its record was read: its
// state should descend from what the record has. A younger record, of another
// instance, says nothing about it.
func (e *entry) judge(r *Registry, rec *record) {
	if e.believed != nil && rec.Token != "" && rec.Seen.Before(e.opened) && !slices.Contains(e.believed, rec.Token) {
		r.reportClone(e, r.now())
		r.touch(e, turn)
	}
	e.believed = nil
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
	history := mine.History
	defer func() { mine.History = mergeLinks(history, rec.History, mine.Online) }()
	if len(e.sessions) > 0 && !rec.Online {
		e.dirty = turn // another instance missed the session here
		return
	}
	// Who heard last need not be where the session is.
	instance, opened := mine.Instance, mine.Opened
	if rec.Opened.After(opened) || instance == "" {
		instance, opened = rec.Instance, rec.Opened
	}
	if rec.Seen.After(mine.Seen) || rec.Since.After(mine.Since) {
		created, clones, token, seen, imported := mine.Created, mine.Clones, mine.Token, mine.Seen, mine.Imported
		*mine = rec
		mine.Created, mine.Clones, mine.Token, mine.Imported = created, clones, token, imported
		if seen.After(mine.Seen) {
			mine.Seen = seen
		}
	}
	mine.Instance, mine.Opened = instance, opened
	if len(e.sessions) > 0 && rec.Instance != instance {
		e.dirty = turn // the others would not know
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
	ErrLoading = errors.New("registry: the list of devices is still being read, and the device is not in what has been")
)

// Forget removes a device that is offline from what is shown. What it has
// delivered stays, and so does what the ledger has received of it: if it comes
// back it goes on where it was.
func (r *Registry) Forget(ctx context.Context, device string) error {
	r.mu.Lock()
	p, ok := r.shelf.find(device)
	e := r.entries[device]
	online := ok && p.slot().online || e != nil && len(e.sessions) > 0
	loading := r.loading
	r.mu.Unlock()
	switch {
	case !ok && loading:
		return ErrLoading
	case !ok:
		return ErrUnknown
	case online:
		return ErrOnline
	}
	if err := r.cfg.Bucket.Delete(ctx, device); err != nil {
		return fmt.Errorf("registry: forget %s: %w", device, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// It may have come back meanwhile.
	if p, ok := r.shelf.find(device); ok && r.entries[device] == e && (e == nil || len(e.sessions) == 0) {
		r.forget(p)
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
	if all || !f.r.now().Before(f.retry) {
		f.put(ctx, f.r.due(all))
	}
}

// flushUrgent writes turns that are due. When many come at once they are written
// in portions, and what else is to be done is done in between.
func (f *flusher) flushUrgent(ctx context.Context) {
	if f.r.now().Before(f.retry) {
		return
	}
	some, more := f.r.dueUrgent(portion)
	if f.put(ctx, some) && more {
		f.r.nudge()
	}
}

// put writes some entries. It reports false if the bucket takes nothing.
func (f *flusher) put(ctx context.Context, some []pending) bool {
	r := f.r
	for _, p := range some {
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
			return false
		default:
			f.retry = r.now().Add(2 * time.Second)
			if !f.failing {
				f.failing = true
				r.cfg.Log.Warn("registry cannot be written; devices are shown from memory", "err", err)
			}
			return false
		}
	}
	return true
}

const (
	portion  = 500                    // entries that are written in one go
	together = 100 * time.Millisecond // turns that come within it are looked for once
)

// due lists entries whose time has come: a portion, or all.
func (r *Registry) due(all bool) []pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	var out []pending
	for _, e := range r.entries {
		if e.dirty == clean || !all && !e.due(now) {
			continue
		}
		if out = append(out, e.pending()); !all && len(out) == portion {
			break
		}
	}
	return out
}

// dueUrgent lists up to n turns whose time has come, and whether there are more.
func (r *Registry) dueUrgent(n int) (out []pending, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for e := range r.urgent {
		if !e.due(now) {
			continue
		}
		if len(out) == n {
			return out, true
		}
		out = append(out, e.pending())
	}
	return out, false
}

// due reports whether a change waits for long enough; Registry.mu is held.
func (e *entry) due(now time.Time) bool {
	wait := slowly
	if e.dirty == turn {
		wait = soon
	}
	return e.dirty != clean && now.Sub(e.written) >= wait
}

func (e *entry) pending() pending {
	return pending{e.rec.Device.Device, e.rec, e.rev, e.gen, e.newToken, e.newClones}
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
		delete(r.urgent, e)
	}
}
