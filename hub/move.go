package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fieldpost/fieldpost/hub/backup"
	"github.com/fieldpost/fieldpost/hub/store"
)

// Backup writes the streams of the hub that cfg describes into a new folder. The
// hub, or every instance of it, has to be stopped.
func Backup(ctx context.Context, cfg Config, dir string, progress io.Writer) (m backup.Manifest, err error) {
	h, err := New(cfg)
	if err != nil {
		return m, err
	}
	if h.embedded() {
		if _, err := os.Stat(filepath.Join(h.cfg.DataDir, "jetstream")); errors.Is(err, fs.ErrNotExist) {
			return m, fmt.Errorf("hub: no hub has run in %s; is this its configuration?", h.cfg.DataDir)
		}
	}
	s, _, err := h.openOffline(ctx, false)
	if err != nil {
		return m, err
	}
	defer s.Close() // always nil
	return backup.Save(ctx, backup.Config{
		Store: s, Dir: dir, Source: h.place(), Version: h.cfg.Version, Progress: progress, Log: h.cfg.Log, Fault: h.cfg.Fault,
	})
}

// Restore puts a backup where cfg's hub will find it. There has to be nothing yet,
// or a part of the same backup.
func Restore(ctx context.Context, cfg Config, dir string, progress io.Writer) (m backup.Manifest, err error) {
	h, err := New(cfg)
	if err != nil {
		return m, err
	}
	if m, err = backup.Check(ctx, dir, progress); err != nil {
		return m, err
	}
	if h.embedded() {
		if err := os.MkdirAll(h.cfg.DataDir, 0o750); err != nil {
			return m, &KeyError{Key: "data_dir", Err: err}
		}
	}
	s, total, err := h.openOffline(ctx, true)
	if err != nil {
		return m, err
	}
	defer func() { s.Close() }() // always nil
	l, err := h.layout(ctx, s, total)
	if err != nil {
		return m, err
	}
	c := backup.Config{
		Store: s, Dir: dir, Layout: l, Replicas: h.cfg.NATS.Replicas, Progress: progress, Log: h.cfg.Log, Fault: h.cfg.Fault,
	}
	if err := backup.Restore(ctx, c, m); err != nil {
		return m, err
	}
	if h.embedded() { // what was restored is durable before a hub can rely on it
		s.Close()
		if err := store.SyncFolder(h.cfg.DataDir); err != nil {
			return m, err
		}
		if err := h.settleMaxStore(total); err != nil {
			return m, err
		}
		again, _, err := h.openOffline(ctx, false)
		if err != nil {
			return m, err
		}
		s, c.Store = again, again
	}
	return m, backup.Finish(ctx, c, m)
}

func (h *Hub) embedded() bool { return len(h.cfg.NATS.URLs) == 0 }

// place is where the streams are, for people: without passwords.
func (h *Hub) place() string {
	if h.embedded() {
		return h.cfg.DataDir
	}
	var hosts []string
	for _, s := range h.cfg.NATS.URLs {
		if u, err := url.Parse(s); err == nil {
			hosts = append(hosts, u.Host)
		}
	}
	return strings.Join(hosts, " ")
}

// openOffline opens the streams without a hub on them; total is their room, 0 for
// that of a cluster's account.
func (h *Hub) openOffline(ctx context.Context, unsynced bool) (s *store.Store, total int64, err error) {
	total, limit := h.cfg.NATS.MaxStore.Bytes, int64(0)
	if h.embedded() {
		if total, limit, err = h.maxStore(); err != nil {
			return nil, 0, err
		}
	}
	s, err = store.Open(ctx, store.Config{
		Dir: h.cfg.DataDir, Listen: h.cfg.NATS.Listen, Offline: true, Unsynced: unsynced, MaxStore: limit,
		URLs: h.cfg.NATS.URLs, Creds: h.cfg.NATS.Creds, Replicas: h.cfg.NATS.Replicas, Log: h.cfg.Log,
	})
	return s, total, err
}
