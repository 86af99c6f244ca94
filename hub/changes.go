package hub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/hub/unpack"
)

// checkChanges refuses what the configuration would do to streams that hold
// something already, where that would hide messages, or stop the flow for good.
// The rest JetStream changes in place.
func (h *Hub) checkChanges(ctx context.Context, s *store.Store, l store.Layout) error {
	var p problems
	for i, r := range h.cfg.Routes {
		at := slices.IndexFunc(l.Routes, func(w store.RouteStream) bool { return w.Name == r.Stream })
		if r.packed() || at < 0 {
			continue
		}
		have, found, err := s.Held(ctx, r.Stream)
		if err != nil {
			return err
		}
		if !found {
			continue // or not Fieldpost's, which EnsureStreams refuses
		}
		want := l.Routes[at]
		key := func(k string) string { return fmt.Sprintf("routes[%d].%s", i, k) }
		if err := h.checkPrefixChange(ctx, s, &p, key("prefix"), want, have); err != nil {
			return err
		}
		if want.MaxBytes > 0 && have.Bytes > uint64(want.MaxBytes) {
			if want.DiscardNew {
				p.add(key("max_bytes"), "stream %s holds %d bytes, more than the %d that it may now hold, and with discard: new it would take nothing more; raise max_bytes, "+
					"purge what nobody needs (nats stream purge %[1]s), or choose discard: old, which lets the oldest go", r.Stream, have.Bytes, want.MaxBytes)
				continue
			}
			h.cfg.Log.Warn("a stream is made smaller than what it holds; its oldest messages go", "stream", r.Stream, "bytes", have.Bytes, "max_bytes", want.MaxBytes)
		}
		if have.Messages > 0 && want.MaxAge > 0 && (have.MaxAge == 0 || want.MaxAge < have.MaxAge) {
			h.cfg.Log.Warn("a stream keeps its messages for a shorter time than before; what is older goes", "stream", r.Stream, "was", have.MaxAge, "max_age", want.MaxAge)
		}
	}
	return errors.Join(p...)
}

// checkPrefixChange: messages under another prefix would be where no back end
// looks, and blocks that are to be unpacked under it could not be stored.
func (h *Hub) checkPrefixChange(ctx context.Context, s *store.Store, p *problems, key string, want store.RouteStream, have store.Held) error {
	if slices.Contains(have.Subjects, want.Subjects[0]) {
		return nil
	}
	was := strings.Join(have.Subjects, " ")
	if have.Messages > 0 {
		p.add(key, "stream %s holds %d messages under %s, where back ends read them; put the old prefix back, or give the route a new stream as well (the old one stays), "+
			"or purge it if nobody needs them: nats stream purge %[1]s", want.Name, have.Messages, was)
		return nil
	}
	behind, err := unpack.Behind(ctx, s, want.Name)
	if err == nil && behind > 0 {
		p.add(key, "%d blocks are still to be unpacked into %s under %s; start once more with the old prefix until `fieldpost-hub status` shows 0 blocks behind", behind, want.Name, was)
	}
	return err
}

// orphanSlack is what an orphaned stream may grow by beyond what it holds: by
// nothing, but for the store's own bookkeeping.
const orphanSlack = 1 << 20

// releaseOrphans lets the streams without a route reserve no more of max_store
// than they hold, so that others can have it. They get nothing any more. In a
// cluster another instance may still have the route: there everything stays.
func (h *Hub) releaseOrphans(ctx context.Context, s *store.Store, l store.Layout) error {
	if s.Server() == nil {
		return nil
	}
	orphans, err := s.Orphans(ctx, l)
	if err != nil {
		return err
	}
	for _, o := range orphans {
		need := int64(o.Bytes) + orphanSlack
		if o.MaxBytes >= 0 && o.MaxBytes <= need {
			continue
		}
		behind, err := unpack.Behind(ctx, s, o.Name)
		if err != nil {
			return err
		}
		if behind > 0 { // what is still to come needs room
			h.cfg.Log.Warn("a stream without a route keeps its share of max_store until it has what was received for it", "stream", o.Name, "blocks", behind, "max_bytes", o.MaxBytes)
			continue
		}
		if err := s.SetMaxBytes(ctx, o.Name, need); err != nil {
			return err
		}
		h.cfg.Log.Info("a stream without a route gives up its share of max_store beyond what it holds", "stream", o.Name, "was", o.MaxBytes, "max_bytes", need)
	}
	return nil
}
