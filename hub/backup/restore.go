package backup

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Restore creates the streams of a backup, which Check has read, at the target.
// It can be run again after it was interrupted. No hub starts there before Finish.
func Restore(ctx context.Context, cfg Config, m Manifest) (err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	r := &restoring{cfg: cfg, js: cfg.Store.JetStream(), manifest: m}
	r.marker.js = r.js
	if r.nc, err = cfg.Store.Connect("fieldpost-hub restore"); err != nil {
		return err
	}
	defer r.nc.Close()
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.run(ctx); err != nil {
		return unfinished(err)
	}
	return nil
}

// restoring is one Restore.
type restoring struct {
	cfg      Config
	manifest Manifest
	nc       *nats.Conn
	js       jetstream.JetStream
	streams  []planned
	marker   marker
}

// begin refuses what cannot work, and else puts the marker in place.
func (r *restoring) begin(ctx context.Context) (err error) {
	if err := checkServer(r.nc.ConnectedServerVersion()); err != nil {
		return err
	}
	if r.streams, err = plan(r.manifest, r.cfg.Store, r.cfg.Layout, r.cfg.Replicas); err != nil {
		return err
	}
	found, err := r.marker.load(ctx)
	if err != nil {
		return err
	}
	if found {
		if v := r.marker.val; v.Backup != r.manifest.ID {
			return fmt.Errorf("backup: the restore of another backup, taken %s, is unfinished here; run it again with that one", v.Taken.Format(time.RFC3339))
		}
		return nil
	}
	if err := r.empty(ctx); err != nil {
		return err
	}
	if err := quiet(ctx, r.cfg.Store, r.cfg.Watch); err != nil {
		return err
	}
	r.marker.val = progress{Backup: r.manifest.ID, Taken: r.manifest.Taken}
	if err := r.marker.create(ctx, r.cfg.Store); err != nil {
		return err
	}
	err = r.empty(ctx) // a hub that has started meanwhile
	if err == nil {
		err = r.try(ctx)
	}
	if err != nil {
		return errors.Join(err, r.marker.remove(ctx))
	}
	return nil
}

// empty refuses a target where something is.
func (r *restoring) empty(ctx context.Context) error {
	there, err := marked(ctx, r.cfg.Store)
	if err != nil {
		return err
	}
	for _, s := range there {
		if s.State.LastSeq > 0 || s.State.Consumers > 0 {
			return fmt.Errorf("backup: stream %s is here already, with %d messages: a hub has run on this target, and a restore would mix both; "+
				"restore into an empty one, or, if nobody needs what is in it, remove the streams of that hub (nats stream rm %[1]s)", s.Config.Name, s.State.Msgs)
		}
	}
	for _, p := range r.streams {
		var s jetstream.Stream
		err := patiently(ctx, func(ctx context.Context) (err error) {
			s, err = r.js.Stream(ctx, p.Name)
			return err
		})
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
		case err != nil:
			return fmt.Errorf("backup: look at stream %s: %w", p.Name, err)
		case !store.Own(s.CachedInfo().Config.Metadata):
			return fmt.Errorf("%w: stream %s exists at the target; remove it, or use another account", store.ErrForeign, p.Name)
		}
	}
	return nil
}

// try creates every stream, empty, with the room that it will reserve, and takes
// all away again if one is refused.
func (r *restoring) try(ctx context.Context) error {
	for i, p := range r.streams {
		err := r.remove(ctx, p.Name)
		if err == nil {
			err = api(ctx, r.nc, "$JS.API.STREAM.CREATE."+p.Name, p.config, nil)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("backup: the target does not take stream %s with max_bytes %s: %w; nothing is restored", p.Name, p.config["max_bytes"], explain(err))
		for _, made := range r.streams[:i] {
			err = errors.Join(err, r.remove(ctx, made.Name))
		}
		return err
	}
	return nil
}

func (r *restoring) remove(ctx context.Context, stream string) error {
	err := api(ctx, r.nc, "$JS.API.STREAM.DELETE."+stream, struct{}{}, nil)
	var a *apiError
	if err == nil || errors.As(err, &a) && a.ErrCode == codeNotFound {
		return nil
	}
	return fmt.Errorf("backup: remove stream %s: %w", stream, err)
}

// run restores what is missing. What others point to is there before they are:
// when a back end gives a message up meanwhile, the stream of advisories takes it.
func (r *restoring) run(ctx context.Context) error {
	for _, p := range slices.Backward(r.streams) {
		if r.marker.has(p.Name) {
			err := patiently(ctx, func(ctx context.Context) error { return look(ctx, r.js, p) })
			if !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.As(err, new(*incomplete)) {
				continue // Finish compares it again
			}
			r.marker.drop(p.Name)
		}
		if err := r.one(ctx, p); err != nil {
			return fmt.Errorf("backup: stream %s: %w", p.Name, err)
		}
		r.cfg.Log.Info("stream restored", "stream", p.Name, "messages", p.Messages)
	}
	return nil
}

// Finish compares every stream with the manifest, gives it its max_age, and lets
// hubs start.
func Finish(ctx context.Context, cfg Config, m Manifest) (err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return err
	}
	r := &restoring{cfg: cfg, js: cfg.Store.JetStream(), manifest: m}
	r.marker.js = r.js
	if r.streams, err = plan(m, cfg.Store, cfg.Layout, cfg.Replicas); err != nil {
		return err
	}
	if r.nc, err = cfg.Store.Connect("fieldpost-hub restore"); err != nil {
		return err
	}
	defer r.nc.Close()
	found, err := r.marker.load(ctx)
	if err == nil && (!found || r.marker.val.Backup != m.ID || len(r.marker.val.Done) != len(m.Streams)) {
		err = errOvertaken
	}
	if err == nil {
		err = r.finish(ctx)
	}
	if err != nil {
		return unfinished(err)
	}
	return nil
}

func (r *restoring) finish(ctx context.Context) error {
	for _, p := range r.streams {
		if err := verify(ctx, r.js, p, settleWait); err != nil {
			return fmt.Errorf("backup: stream %s: %w", p.Name, err)
		}
	}
	for _, p := range r.streams {
		p.config["max_age"] = p.maxAge
		if err := api(ctx, r.nc, "$JS.API.STREAM.UPDATE."+p.Name, p.config, nil); err != nil {
			return fmt.Errorf("backup: max_age of stream %s: %w", p.Name, err)
		}
	}
	if err := r.marker.store(ctx); err != nil { // is this the only one?
		return err
	}
	return r.marker.remove(ctx)
}

func unfinished(err error) error {
	return fmt.Errorf("%w; the restore is unfinished, and no hub starts on it: run it again with the same folder, it goes on with what is missing", err)
}

func (r *restoring) one(ctx context.Context, p planned) error {
	if err := r.marker.store(ctx); err != nil { // before anything goes: is this the only one?
		return err
	}
	if err := r.remove(ctx, p.Name); err != nil {
		return err
	}
	if err := r.cfg.Fault("restore:stream"); err != nil {
		return err
	}
	if err := send(ctx, r.nc, p, filepath.Join(r.cfg.Dir, p.File), r.cfg.Progress); err != nil {
		return explain(err)
	}
	if err := verify(ctx, r.js, p, settleWait); err != nil {
		return err
	}
	if err := copies(ctx, r.js, p, r.cfg.Replicas); err != nil {
		return err
	}
	return r.marker.add(ctx, p.Name)
}

// JetStream's error codes.
const (
	codeNotFound = 10059
	codeNoPeers  = 10005
	codeNoRoom   = 10047
	codeNoRoom2  = 10023
	codeLimit    = 10002
	codeReplicas = 10074
	codeOverlap  = 10065
)

// explain adds what to do to refusals that people can act on.
func explain(err error) error {
	var a *apiError
	if !errors.As(err, &a) {
		return err
	}
	switch a.ErrCode {
	case codeNoPeers, codeNoRoom, codeNoRoom2, codeLimit:
		return fmt.Errorf("%w (the streams' max_bytes together are more than the target can hold: raise max_file_store of its servers or the account's limit, or lower nats.max_store)", err)
	case codeReplicas:
		return fmt.Errorf("%w (set nats.replicas to 1, or start the other servers of the cluster)", err)
	case codeOverlap:
		return fmt.Errorf("%w (another stream of the target takes its subjects: remove that, or use another account)", err)
	}
	return err
}
