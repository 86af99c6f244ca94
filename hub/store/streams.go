package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names that are the same in every hub.
const (
	Blocks        = "BLOCKS"
	Dead          = "DEAD"
	DevicesBucket = "fieldpost_devices" // the registry; rebuildable
	HubBucket     = "fieldpost_hub"     // hub_id, checkpoints, leases
)

// Reserved reports whether no route may have this stream. The letters of one named
// GAP would be taken for gaps (dead.gap.<device>).
func Reserved(name string) bool {
	up := strings.ToUpper(name)
	return up == Blocks || up == Dead || up == Retry || up == Advisories || up == Audit || up == Commands || up == "GAP" || strings.HasPrefix(up, "KV_") || strings.HasPrefix(up, "OBJ_")
}

// Metadata of streams.
const (
	metaOwner       = "fieldpost" // "1": Fieldpost's own
	metaIncarnation = "fieldpost_incarnation"
)

// ErrForeign means that a stream exists which Fieldpost did not create.
var ErrForeign = errors.New("store: not Fieldpost's stream")

// Layout is every stream of the hub. Sizes are bytes; 0 is unlimited.
type Layout struct {
	BlocksMaxBytes int64
	DeadMaxAge     time.Duration
	DeadMaxBytes   int64 // of DEAD and of what surrounds it (deadStreams)
	Routes         []RouteStream

	CommandsMaxBytes   int64 // of COMMANDS and its bucket
	CommandsMaxPending int   // of one device
}

// RouteStream holds the messages of one or more routes.
type RouteStream struct {
	Name       string
	Subjects   []string // "edge.>"
	MaxAge     time.Duration
	MaxBytes   int64
	DiscardNew bool // when full, take no more; else the oldest go
	Compress   bool // s2, where Compresses
}

// Compresses reports whether streams can be compressed. Replicated ones cannot:
// nats-server 2.15.3 cuts a replica that was killed back to what the others have,
// by a truncate, also in a block that it has compressed meanwhile. The block is
// damaged then, the replica does not come up again, and a stream was seen to be
// deleted everywhere for it.
func Compresses(replicas int) bool { return replicas == 1 }

// EnsureStreams creates what is missing and brings the settings of the rest up
// to date. A stream of the same name that is not marked as Fieldpost's is
// refused (ErrForeign), and so is a change that JetStream cannot make in place.
func (s *Store) EnsureStreams(ctx context.Context, l Layout) error {
	if err := s.CheckRestore(ctx); err != nil {
		return err
	}
	all := s.streams(l)
	for _, cfg := range all { // what these give up, others can have
		smaller, err := s.shrinks(ctx, cfg)
		if err == nil && smaller {
			err = s.ensure(ctx, cfg)
		}
		if err != nil {
			return err
		}
	}
	for _, cfg := range all {
		if err := s.ensure(ctx, cfg); err != nil {
			return err
		}
	}
	return nil
}

// shrinks reports whether a stream is there that reserves more than it should.
func (s *Store) shrinks(ctx context.Context, want jetstream.StreamConfig) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	have, err := s.js.Stream(ctx, want.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, context.DeadlineExceeded): // ensure asks again
		return false, nil
	case err != nil:
		return false, fmt.Errorf("store: stream %s: %w", want.Name, err)
	}
	n := have.CachedInfo().Config.MaxBytes
	return want.MaxBytes > 0 && n > want.MaxBytes, nil
}

func (s *Store) streams(l Layout) []jetstream.StreamConfig {
	out := []jetstream.StreamConfig{
		bucket(HubBucket, "Fieldpost: the hub's own state"),
		bucket(DevicesBucket, "Fieldpost: registry of devices"),
		{
			Name: Blocks, Description: "Fieldpost: the ledger of blocks; only the hub writes and purges",
			Subjects: []string{"fp.blocks.*.*.*"}, MaxBytes: l.BlocksMaxBytes,
			Discard: jetstream.DiscardNew, AllowAtomicPublish: true, AllowDirect: true,
		},
	}
	out = append(out, deadStreams(l)...)
	out = append(out, commandStreams(l)...)
	out = append(out, desiredStream())
	for _, r := range l.Routes {
		cfg := jetstream.StreamConfig{
			Name: r.Name, Description: "Fieldpost: messages of devices",
			Subjects: r.Subjects, MaxBytes: r.MaxBytes, MaxAge: r.MaxAge,
			AllowAtomicPublish: true, AllowDirect: true,
		}
		if r.DiscardNew {
			cfg.Discard = jetstream.DiscardNew
		}
		if r.Compress && Compresses(s.cfg.Replicas) {
			cfg.Compression = jetstream.S2Compression
		}
		out = append(out, cfg)
	}
	for i := range out {
		out[i].Replicas = s.cfg.Replicas
		out[i].Metadata = map[string]string{metaOwner: "1"}
		if out[i].Name == Advisories && s.embedded != nil {
			out[i].PersistMode = jetstream.AsyncPersistMode // the comment of Advisories says why
		}
		if out[i].Name == Audit && out[i].MaxBytes <= 0 {
			out[i].MaxBytes = auditMost // bounded, also where DEAD is not
		}
		if out[i].MaxBytes <= 0 {
			out[i].MaxBytes = -1
		}
	}
	return out
}

// bucket is the stream under a KV bucket, as the NATS clients lay it out, but
// without direct reads: those may come from a replica that lags.
func bucket(name, description string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: "KV_" + name, Description: description, Subjects: []string{"$KV." + name + ".>"},
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true,
	}
}

// ensure makes a stream what it should be. A cluster that is choosing a leader
// may forget a request: it is asked again.
func (s *Store) ensure(ctx context.Context, want jetstream.StreamConfig) (err error) {
	for range 3 {
		try, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		want.Metadata = maps.Clone(want.Metadata)
		err = s.ensureOnce(try, want)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
		s.cfg.Log.Warn("JetStream does not answer; asking again", "stream", want.Name)
	}
	return err
}

func (s *Store) ensureOnce(ctx context.Context, want jetstream.StreamConfig) error {
	have, err := s.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return s.create(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("store: stream %s: %w", want.Name, err)
	}
	return s.update(ctx, have.CachedInfo(), want)
}

func (s *Store) create(ctx context.Context, want jetstream.StreamConfig) error {
	if hasIncarnation(want.Name) {
		want.Metadata[metaIncarnation] = fmt.Sprintf("%x", random(8))
	}
	_, err := s.js.CreateStream(ctx, want)
	switch {
	case err == nil:
		s.cfg.Log.Info("stream created", "stream", want.Name, "max_bytes", want.MaxBytes, "max_age", want.MaxAge)
		return nil
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse): // another instance was faster
		delete(want.Metadata, metaIncarnation)
		return s.ensureOnce(ctx, want)
	}
	return fmt.Errorf("store: create stream %s: %w", want.Name, explain(err))
}

// update changes what the layout fixes and leaves the rest as an operator set it.
func (s *Store) update(ctx context.Context, have *jetstream.StreamInfo, want jetstream.StreamConfig) error {
	if have.Config.Metadata[metaOwner] != "1" {
		return fmt.Errorf("%w: stream %s exists and does not carry the metadata %s=1; give the route another stream name, or remove that stream, "+
			"or hand it over with: nats stream edit %[2]s --metadata %[3]s=1", ErrForeign, want.Name, metaOwner)
	}
	cfg := have.Config
	if cfg.Storage != want.Storage || cfg.Retention != want.Retention {
		return fmt.Errorf("store: stream %s keeps its messages in %s storage under the %s policy; Fieldpost needs %s and %s, which cannot be changed in place: "+
			"move its messages away and remove it", want.Name, cfg.Storage, cfg.Retention, want.Storage, want.Retention)
	}
	if want.Name == Blocks && want.MaxBytes > 0 && have.State.Bytes > uint64(want.MaxBytes) {
		return fmt.Errorf("store: BLOCKS holds %d bytes, more than blocks.max_bytes allows (%d); raise it until enough is unpacked and purged", have.State.Bytes, want.MaxBytes)
	}
	cfg.Description, cfg.Subjects, cfg.Replicas = want.Description, want.Subjects, want.Replicas
	cfg.MaxBytes, cfg.MaxAge, cfg.Discard = want.MaxBytes, want.MaxAge, want.Discard
	cfg.Compression, cfg.AllowAtomicPublish = want.Compression, want.AllowAtomicPublish
	cfg.AllowDirect, cfg.AllowRollup, cfg.DenyDelete = want.AllowDirect, want.AllowRollup, want.DenyDelete
	cfg.AllowMsgTTL = cfg.AllowMsgTTL || want.AllowMsgTTL
	if want.MaxMsgsPerSubject > 0 {
		cfg.MaxMsgsPerSubject, cfg.DiscardNewPerSubject = want.MaxMsgsPerSubject, want.DiscardNewPerSubject
	}
	if want.RePublish != nil {
		cfg.RePublish = want.RePublish
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if hasIncarnation(want.Name) && cfg.Metadata[metaIncarnation] == "" { // handed over by an operator
		cfg.Metadata[metaIncarnation] = fmt.Sprintf("%x", random(8))
	}
	if reflect.DeepEqual(cfg, have.Config) {
		return nil
	}
	if _, err := s.js.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("store: stream %s has other settings than the configuration, and they cannot be changed in place: %w; "+
			"put the configuration back, or remove the stream", want.Name, explain(err))
	}
	s.cfg.Log.Info("stream updated", "stream", want.Name, "max_bytes", cfg.MaxBytes, "max_age", cfg.MaxAge)
	return nil
}

// explain adds what to do to errors that people can act on.
func explain(err error) error {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode {
	case codeStorageExceeded, codeAccountExceeded:
		return fmt.Errorf("%w (the streams' max_bytes together exceed max_store, or the account's limit: lower one of them, or remove a stream that has no route any more)", err)
	case codeNoPeers:
		return fmt.Errorf("%w (nats.replicas wants that many servers which are up and have room for max_bytes)", err)
	case 10065: // subjects overlap
		return fmt.Errorf("%w (another stream takes these subjects: change the route's prefix, or that stream)", err)
	case 10074: // replicas > 1 not supported in non-clustered mode
		return fmt.Errorf("%w (set nats.replicas to 1)", err)
	}
	return err
}

// Widen adds to the max_bytes of a stream that has one, until EnsureStreams sets
// it again; a negative number takes that back.
func (s *Store) Widen(ctx context.Context, stream string, bytes int64) error {
	st, err := s.js.Stream(ctx, stream)
	if err == nil {
		cfg := st.CachedInfo().Config
		if cfg.MaxBytes <= 0 {
			return nil
		}
		cfg.MaxBytes += bytes
		_, err = s.js.UpdateStream(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("store: widen %s: %w", stream, explain(err))
	}
	return nil
}
