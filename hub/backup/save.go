package backup

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Config configures Save and Restore. Store and Dir are required.
type Config struct {
	Store    *store.Store
	Dir      string
	Layout   store.Layout             // of the target; Restore only
	Replicas int                      // of every stream at the target; 0: 1
	Source   string                   // for the manifest: where the streams are
	Version  string                   // of the program
	Watch    time.Duration            // how long a cluster is watched for a hub at work; 0: 4 s
	Progress io.Writer                // is given as many bytes as are done; nil: nothing
	Log      *slog.Logger             // nil: discard
	Fault    func(point string) error // called at save:stream and restore:stream; tests only
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Dir == "" {
		return c, errors.New("backup: no store or no folder")
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Watch == 0 {
		c.Watch = watchLeases
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Fault == nil {
		c.Fault = func(string) error { return nil }
	}
	return c, nil
}

// Save writes every stream of Fieldpost into a new folder. What it has begun it
// removes again if it fails.
func Save(ctx context.Context, cfg Config) (m Manifest, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return m, err
	}
	if err := cfg.Store.CheckRestore(ctx); err != nil {
		return m, err
	}
	streams, err := marked(ctx, cfg.Store)
	if err != nil {
		return m, err
	}
	if len(streams) == 0 {
		return m, fmt.Errorf("backup: %s has no streams of Fieldpost: no hub has run on it; is this its configuration?", cfg.Source)
	}
	if err := quiet(ctx, cfg.Store, cfg.Watch); err != nil {
		return m, err
	}
	created, err := newFolder(cfg.Dir)
	if err != nil {
		return m, err
	}
	s := &saving{cfg: cfg}
	defer func() {
		if err != nil {
			s.remove(created)
		}
	}()
	if s.nc, err = cfg.Store.Connect("fieldpost-hub backup"); err != nil {
		return m, err
	}
	defer s.nc.Close()
	m = Manifest{
		Version: manifestVersion, ID: strings.ToLower(rand.Text()), Taken: time.Now().UTC().Truncate(time.Millisecond),
		Program: cfg.Version, Server: s.nc.ConnectedServerVersion(), Source: cfg.Source,
	}
	if m.HubID, err = hubID(ctx, cfg.Store); err != nil {
		return m, err
	}
	for _, info := range streams {
		if err := s.stream(ctx, &m, info.Config.Name); err != nil {
			return m, fmt.Errorf("backup: stream %s: %w", info.Config.Name, err)
		}
	}
	if err := s.unchanged(ctx, m); err != nil {
		return m, err
	}
	return m, m.write(cfg.Dir)
}

func marked(ctx context.Context, s *store.Store) (out []*jetstream.StreamInfo, err error) {
	err = patiently(ctx, func(ctx context.Context) (err error) {
		out, err = s.Marked(ctx)
		return err
	})
	return out, err
}

// newFolder makes a folder, or takes one that is empty.
func newFolder(dir string) (created bool, err error) {
	err = os.Mkdir(dir, 0o700)
	if err == nil {
		return true, store.SyncDir(filepath.Dir(dir))
	}
	if !errors.Is(err, os.ErrExist) {
		return false, fmt.Errorf("backup: %w", err)
	}
	in, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("backup: %w", err)
	}
	if len(in) > 0 {
		what := "is not empty"
		if strings.HasSuffix(in[0].Name(), ".s2") {
			what = "holds a backup, or a part of one"
		}
		return false, fmt.Errorf("backup: %s %s; name a new folder", dir, what)
	}
	return false, nil
}

// hubID is empty if no hub has got so far.
func hubID(ctx context.Context, s *store.Store) (string, error) {
	kv, err := s.KV(ctx, store.HubBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	e, err := kv.Get(ctx, "hub_id")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("backup: hub_id: %w", err)
	}
	return string(e.Value()), nil
}

// saving is one Save.
type saving struct {
	cfg   Config
	nc    *nats.Conn
	files []string // begun
}

// syncEvery keeps a slow disk from stalling longer than the server waits for acks.
const syncEvery = 8 << 20

// stream writes the next stream's file, and reads it as it passes: what does not
// add up is not in a manifest.
func (s *saving) stream(ctx context.Context, m *Manifest, name string) (err error) {
	if err := s.cfg.Fault("save:stream"); err != nil {
		return err
	}
	entry := Stream{Name: name, File: fileName(len(m.Streams), name)}
	path := filepath.Join(s.cfg.Dir, entry.File)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	s.files = append(s.files, path)
	sum, out := sha256.New(), &synced{f: f}
	pr, pw := io.Pipe()
	scanned := make(chan error, 1)
	var c contents
	go func() {
		var err error
		c, err = scan(pr)
		pr.CloseWithError(err)
		scanned <- err
	}()
	entry.Config, err = snapshot(ctx, s.nc, name, io.MultiWriter(out, sum, s.cfg.Progress, pw))
	pw.CloseWithError(err)
	if e := <-scanned; err == nil {
		err = e
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	entry.Size, entry.SHA256 = out.n, hex.EncodeToString(sum.Sum(nil))
	entry.Bytes, entry.Last, entry.First, entry.Messages = c.state.Bytes, c.state.Last, c.first, c.messages
	if c.messages == 0 {
		entry.First = c.state.Last + 1
	}
	entry.Largest, entry.Consumers, entry.State = c.largest, c.consumers, c.rawState
	m.Streams = append(m.Streams, entry)
	s.cfg.Log.Info("stream saved", "stream", name, "messages", entry.Messages, "bytes", entry.Size)
	return nil
}

// synced writes to a file and syncs it now and then.
type synced struct {
	f    *os.File
	n    int64
	last int64 // n at the last sync
}

func (s *synced) Write(b []byte) (int, error) {
	n, err := s.f.Write(b)
	s.n += int64(n)
	if err == nil && s.n-s.last >= syncEvery {
		s.last = s.n
		err = s.f.Sync()
	}
	return n, err
}

// unchanged refuses a backup during which somebody has written: its streams would
// not belong together.
func (s *saving) unchanged(ctx context.Context, m Manifest) error {
	now, err := marked(ctx, s.cfg.Store)
	if err != nil {
		return err
	}
	if len(now) != len(m.Streams) {
		return fmt.Errorf("%w: there were %d streams, and now there are %d; stop every instance of fieldpost-hub, then run this again", ErrHubRuns, len(m.Streams), len(now))
	}
	for i, st := range m.Streams {
		if name, last := now[i].Config.Name, now[i].State.LastSeq; name != st.Name || last != st.Last {
			return fmt.Errorf("%w: stream %s was written to meanwhile; stop every instance of fieldpost-hub, and the back ends, then run this again", ErrHubRuns, name)
		}
	}
	return nil
}

// remove takes away what was begun. It fails where writing did, and then the
// folder is still no backup.
func (s *saving) remove(folder bool) {
	for _, path := range append(s.files, filepath.Join(s.cfg.Dir, manifestName+".tmp")) {
		os.Remove(path)
	}
	if folder {
		os.Remove(s.cfg.Dir)
	}
}
