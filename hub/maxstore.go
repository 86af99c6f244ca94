package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	autoShare = 70       // percent of the free space that max_store: auto takes
	minStore  = 64 << 20 // below this the shares are too small to hold a block each
)

// maxStore returns nats.max_store in bytes, and the limit with which the server
// has to start. What was in force last is remembered in data_dir. Auto is
// settled at the first start and stays: a disk that fills must not make the
// streams shrink, and one that empties must not make them grow unasked. After a
// cut the server starts once more with the old limit, because it does not
// change streams that reserve more than it has.
func (h *Hub) maxStore() (size, limit int64, err error) {
	last, err := h.lastMaxStore()
	if err != nil {
		return 0, 0, err
	}
	if size = h.cfg.NATS.MaxStore.Bytes; size == 0 {
		size = last
	}
	if size == 0 {
		free, err := freeBytes(h.cfg.DataDir)
		if err != nil {
			return 0, 0, fmt.Errorf("hub: free space of %s: %w; set nats.max_store", h.cfg.DataDir, err)
		}
		size = free / 100 * autoShare
		h.cfg.Log.Info("max_store: auto is settled", "max_store", size, "free", free)
	}
	if size < minStore {
		return 0, 0, &KeyError{Key: "nats.max_store", Err: fmt.Errorf("%d bytes are too few, at least 64MiB are needed; free some space, or put data_dir on a larger disk", size)}
	}
	return size, max(size, last), nil
}

func (h *Hub) maxStorePath() string { return filepath.Join(h.cfg.DataDir, "max_store") }

// lastMaxStore is 0 before the first start.
func (h *Hub) lastMaxStore() (int64, error) {
	text, err := os.ReadFile(h.maxStorePath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("hub: max_store: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("hub: %s holds %.40q instead of a number of bytes; remove it to settle max_store: auto anew", h.maxStorePath(), text)
	}
	return n, nil
}

// settleMaxStore remembers the size that the streams have now.
func (h *Hub) settleMaxStore(size int64) error {
	last, err := h.lastMaxStore()
	if err == nil && last != size {
		err = writeDurably(h.maxStorePath(), strconv.FormatInt(size, 10)+"\n")
	}
	if err != nil {
		return fmt.Errorf("hub: remember max_store: %w", err)
	}
	return nil
}

// writeDurably writes a small file whole or not at all.
func writeDurably(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// layout is the streams in bytes. Shares of a cluster are shares of max_store,
// else of the account's limit.
func (h *Hub) layout(ctx context.Context, s *store.Store, total int64) (store.Layout, error) {
	if total == 0 && h.hasShares() {
		info, err := s.JetStream().AccountInfo(ctx)
		if err != nil {
			return store.Layout{}, fmt.Errorf("hub: limits of the account: %w", err)
		}
		if total = info.Limits.MaxStore; total <= 0 {
			return store.Layout{}, &KeyError{Key: "nats.max_store", Err: errors.New(
				"the cluster's account has no limit of which 30% could be a share; write how much Fieldpost may take there, such as 200GiB")}
		}
	}
	l := store.Layout{
		BlocksMaxBytes: h.cfg.Blocks.MaxBytes.Of(total),
		DeadMaxAge:     h.cfg.Dead.MaxAge,
		DeadMaxBytes:   h.cfg.Dead.MaxBytes.Of(total),

		CommandsMaxBytes:   h.cfg.Commands.MaxBytes.Of(total),
		CommandsMaxPending: h.cfg.Commands.MaxPending,
	}
	for _, r := range h.cfg.Routes {
		if r.packed() {
			continue
		}
		l.Routes = append(l.Routes, store.RouteStream{
			Name: r.Stream, Subjects: []string{r.Prefix + ".>"}, MaxAge: r.MaxAge, MaxBytes: r.MaxBytes.Of(total),
			DiscardNew: r.Discard == "new", Compress: r.Compression == "s2",
		})
	}
	return l, nil
}

func (h *Hub) hasShares() bool {
	share := h.cfg.Blocks.MaxBytes.Percent + h.cfg.Dead.MaxBytes.Percent + h.cfg.Commands.MaxBytes.Percent
	for _, r := range h.cfg.Routes {
		if !r.packed() {
			share += r.MaxBytes.Percent
		}
	}
	return share > 0
}
