package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Finding is a stream that is not as EnsureStreams left it.
type Finding struct {
	Stream   string
	Gone     bool     // it was deleted
	Created  bool     // and was made anew, empty
	Repaired []string // settings that the hub cannot do without; they are back
	Changed  []string // settings that somebody chose: the next start puts them back
}

// Check compares the streams with the layout. What the hub cannot work without,
// and what could remove blocks from the ledger, is put back; a route's stream or
// DEAD or COMMANDS that was deleted is made anew, as the next start would do it. The ledger
// and the buckets are not: what was in them is in nobody's memory.
func (s *Store) Check(ctx context.Context, l Layout) (out []Finding, err error) {
	for _, want := range s.streams(l) {
		f, err := s.check(ctx, want, !ownState(want.Name))
		if err != nil {
			return out, err
		}
		if f.Gone || len(f.Repaired)+len(f.Changed) > 0 {
			out = append(out, f)
		}
	}
	return out, nil
}

// ownState reports whether a stream holds what the hub itself remembers.
func ownState(name string) bool { return name == Blocks || name[:min(3, len(name))] == "KV_" }

func (s *Store) check(ctx context.Context, want jetstream.StreamConfig, again bool) (Finding, error) {
	f := Finding{Stream: want.Name}
	st, err := s.js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && !again:
		f.Gone = true
		return f, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		f.Gone, f.Created = true, true
		return f, s.create(ctx, want)
	case err != nil:
		return f, fmt.Errorf("store: look at stream %s: %w", want.Name, err)
	}
	have := st.CachedInfo().Config
	fixed := have
	put := func(name string, same bool, set func()) {
		if !same {
			f.Repaired = append(f.Repaired, name)
			set()
		}
	}
	put("subjects", slices.Equal(have.Subjects, want.Subjects), func() { fixed.Subjects = want.Subjects })
	put("atomic publish", have.AllowAtomicPublish == want.AllowAtomicPublish, func() { fixed.AllowAtomicPublish = want.AllowAtomicPublish })
	put("direct reads", have.AllowDirect == want.AllowDirect, func() { fixed.AllowDirect = want.AllowDirect })
	if ownState(want.Name) || want.Name == Commands {
		put("max_age", have.MaxAge == want.MaxAge, func() { fixed.MaxAge = want.MaxAge })
		put("discard", have.Discard == want.Discard && have.DiscardNewPerSubject == want.DiscardNewPerSubject,
			func() { fixed.Discard, fixed.DiscardNewPerSubject = want.Discard, want.DiscardNewPerSubject })
		put("max_messages", have.MaxMsgs <= 0, func() { fixed.MaxMsgs = -1 })
		put("max_messages_per_subject", have.MaxMsgsPerSubject == want.MaxMsgsPerSubject || have.MaxMsgsPerSubject <= 0 && want.MaxMsgsPerSubject == 0,
			func() { fixed.MaxMsgsPerSubject = want.MaxMsgsPerSubject })
	} else {
		f.Changed = changed(have, want)
	}
	if len(f.Repaired) == 0 {
		return f, nil
	}
	fixed.Metadata = maps.Clone(have.Metadata)
	if _, err := s.js.UpdateStream(ctx, fixed); err != nil {
		return f, fmt.Errorf("store: stream %s has lost settings that the hub needs (%v), and they cannot be put back: %w", want.Name, f.Repaired, explain(err))
	}
	return f, nil
}

// changed names the settings of a route's stream, or of DEAD, that differ.
func changed(have, want jetstream.StreamConfig) (out []string) {
	note := func(name string, is, was any) { out = append(out, fmt.Sprintf("%s is %v, not %v", name, is, was)) }
	if have.MaxBytes != want.MaxBytes {
		note("max_bytes", have.MaxBytes, want.MaxBytes)
	}
	if have.MaxAge != want.MaxAge {
		note("max_age", have.MaxAge, want.MaxAge)
	}
	if have.Discard != want.Discard {
		note("discard", discardName(have.Discard), discardName(want.Discard))
	}
	if have.Compression != want.Compression {
		note("compression", have.Compression, want.Compression)
	}
	if have.Replicas != want.Replicas {
		note("replicas", have.Replicas, want.Replicas)
	}
	if have.Metadata[metaOwner] != "1" {
		out = append(out, fmt.Sprintf("metadata %s=1 is gone, and the next start refuses the stream without it", metaOwner))
	}
	return out
}

func discardName(d jetstream.DiscardPolicy) string {
	if d == jetstream.DiscardNew {
		return "new"
	}
	return "old"
}

// Held is what a stream holds, and for how long.
type Held struct {
	Info
	Name     string
	Subjects []string
	MaxAge   time.Duration
}

// Held returns what a stream of Fieldpost holds; found is false if there is none.
func (s *Store) Held(ctx context.Context, stream string) (h Held, found bool, err error) {
	st, err := s.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return h, false, nil
	}
	if err != nil {
		return h, false, fmt.Errorf("store: look at stream %s: %w", stream, err)
	}
	i := st.CachedInfo()
	return held(i), i.Config.Metadata[metaOwner] == "1", nil
}

func held(i *jetstream.StreamInfo) Held {
	return Held{Name: i.Config.Name, Subjects: i.Config.Subjects, MaxAge: i.Config.MaxAge, Info: Info{
		First: i.State.FirstSeq, Last: i.State.LastSeq, Messages: i.State.Msgs, Bytes: i.State.Bytes, MaxBytes: i.Config.MaxBytes,
	}}
}

// Orphans lists the streams that Fieldpost created for routes which the layout
// does not have, by name.
func (s *Store) Orphans(ctx context.Context, l Layout) (out []Held, err error) {
	list := s.js.ListStreams(ctx)
	for i := range list.Info() {
		ours := slices.ContainsFunc(l.Routes, func(r RouteStream) bool { return r.Name == i.Config.Name })
		if i.Config.Metadata[metaOwner] == "1" && !ours && !Reserved(i.Config.Name) {
			out = append(out, held(i))
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("store: list streams: %w", err)
	}
	slices.SortFunc(out, func(a, b Held) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// SetMaxBytes changes how much a stream may hold.
func (s *Store) SetMaxBytes(ctx context.Context, stream string, bytes int64) error {
	st, err := s.js.Stream(ctx, stream)
	if err == nil {
		cfg := st.CachedInfo().Config
		cfg.MaxBytes = bytes
		_, err = s.js.UpdateStream(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("store: max_bytes of %s: %w", stream, explain(err))
	}
	return nil
}
