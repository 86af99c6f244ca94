package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// RestoreBucket exists as long as a restore is unfinished. A hub that started
// meanwhile would make the streams that are still missing anew, and what is in
// the others would be stored twice.
const RestoreBucket = "fieldpost_restore"

// ErrRestoring means that the streams are being restored from a backup.
var ErrRestoring = errors.New("store: a restore is unfinished")

// CheckRestore returns ErrRestoring while a restore is unfinished.
func (s *Store) CheckRestore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	_, err := s.js.Stream(ctx, "KV_"+RestoreBucket)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("store: look for an unfinished restore: %w", err)
	}
	return fmt.Errorf("%w, so some streams are missing or hold only a part; run `fieldpost-hub restore DIR` again with the same folder, it goes on with what is missing", ErrRestoring)
}

// Marked lists the streams that carry Fieldpost's metadata, but for the marker of
// a restore. What points into another stream comes before that: a checkpoint
// before its route's stream, and this before the ledger.
func (s *Store) Marked(ctx context.Context) (out []*jetstream.StreamInfo, err error) {
	list := s.js.ListStreams(ctx)
	for i := range list.Info() {
		if i.Config.Metadata[metaOwner] == "1" && i.Config.Name != "KV_"+RestoreBucket {
			out = append(out, i)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("store: list streams: %w", err)
	}
	slices.SortFunc(out, func(a, b *jetstream.StreamInfo) int {
		if d := rank(a.Config.Name) - rank(b.Config.Name); d != 0 {
			return d
		}
		return strings.Compare(a.Config.Name, b.Config.Name)
	})
	return out, nil
}

// rank is where a stream stands in Marked.
func rank(stream string) int {
	order := []string{"KV_" + HubBucket, "KV_" + DevicesBucket, "", DesiredIndex, CommandsIndex, Commands, Retry, Advisories, Audit, DeadIndex, Dead, Blocks}
	if i := slices.Index(order, stream); i >= 0 {
		return i
	}
	return 2 // a route's
}

// Own reports whether a stream's metadata say that it is Fieldpost's.
func Own(metadata map[string]string) bool { return metadata[metaOwner] == "1" }

// Wanted is how EnsureStreams would create a stream; ok is false if it would not.
func (s *Store) Wanted(l Layout, stream string) (cfg jetstream.StreamConfig, ok bool) {
	all := s.streams(l)
	i := slices.IndexFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == stream })
	if i < 0 {
		return cfg, false
	}
	return all[i], true
}

// Marker is an empty bucket for RestoreBucket, with the replicas of the rest.
func (s *Store) Marker() jetstream.StreamConfig {
	cfg := bucket(RestoreBucket, "Fieldpost: a restore is unfinished; no hub starts while this exists")
	cfg.Replicas, cfg.MaxBytes, cfg.Metadata = s.cfg.Replicas, -1, map[string]string{metaOwner: "1"}
	return cfg
}

// SyncFolder makes what a closed embedded server has left in its folder durable.
func SyncFolder(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return SyncDir(path)
		case d.Type().IsRegular():
			return syncFile(path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: sync %s: %w", dir, err)
	}
	return nil
}

// Explain adds what to do to JetStream's errors that people can act on.
func Explain(err error) error { return explain(err) }
