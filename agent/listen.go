package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// ErrSocketInUse means that another agent answers on the socket.
var ErrSocketInUse = errors.New("socket is in use")

// listener is the Unix socket; Close removes it if it is still ours.
type listener struct {
	*net.UnixListener
	path string
	info fs.FileInfo // of the socket that we made
}

// listen makes the socket, with its final permissions before anybody can reach
// it. A socket that nobody answers on is replaced.
func listen(cfg SocketConfig, log *slog.Logger) (*listener, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Path), 0o750); err != nil {
		return nil, fmt.Errorf("agent: socket folder: %w", err)
	}
	if err := clearStale(cfg.Path); err != nil {
		return nil, err
	}
	ln, err := bind(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("agent: listen on %s: %w", cfg.Path, err)
	}
	ln.SetUnlinkOnClose(false)
	info, err := os.Lstat(cfg.Path)
	if err != nil {
		ln.Close()
		return nil, fmt.Errorf("agent: socket: %w", err)
	}
	return &listener{UnixListener: ln, path: cfg.Path, info: info}, nil
}

// clearStale removes a socket that a dead agent left behind, and nothing else.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("agent: socket: %w", err)
	}
	if !isSocket(info) {
		return fmt.Errorf("agent: %s exists and is not a socket; move it away or set socket.path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return fmt.Errorf("agent: %s: %w: another agent answers there; stop it or set socket.path", path, ErrSocketInUse)
	}
	if !isRefused(err) {
		return fmt.Errorf("agent: %s exists and cannot be asked whether an agent answers there: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("agent: remove the stale socket: %w", err)
	}
	return nil
}

// Close ends listening and removes the socket, unless a successor has put its
// own in place.
func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if info, statErr := os.Lstat(l.path); statErr == nil && os.SameFile(info, l.info) {
		err = errors.Join(err, os.Remove(l.path))
	}
	return err
}
