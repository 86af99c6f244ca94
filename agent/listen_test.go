//go:build unix

package agent

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var discard = slog.New(slog.DiscardHandler)

func TestListen(t *testing.T) {
	path := filepath.Join(socketDir(t), "made", "a.sock")
	l, err := listen(SocketConfig{Path: path, Mode: 0o620}, discard)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o620 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if info, err := os.Lstat(filepath.Dir(path)); err != nil || info.Mode().Perm()&0o027 != 0 {
		t.Errorf("folder: %v %v", info.Mode(), err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if _, err := listen(SocketConfig{Path: path, Mode: 0o660}, discard); !errors.Is(err, ErrSocketInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a live socket: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not removed: %v", err)
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(socketDir(t), "a.sock")
	for _, stale := range []string{path, filepath.Join(filepath.Dir(path), "a.soc~")} { // also the passing name
		dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		dead.SetUnlinkOnClose(false)
		dead.Close() // as after kill -9
		l, err := listen(SocketConfig{Path: path, Mode: 0o660}, discard)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	dir := socketDir(t)
	for name, make := range map[string]func(string) error{
		"file":   func(p string) error { return os.WriteFile(p, []byte("precious"), 0o600) },
		"folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"link":   func(p string) error { return os.Symlink(dir, p) },
	} {
		path := filepath.Join(dir, name)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := listen(SocketConfig{Path: path, Mode: 0o660}, discard); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A successor's socket at the same path is not removed with ours.
func TestCloseLeavesSuccessor(t *testing.T) {
	path := filepath.Join(socketDir(t), "a.sock")
	first, err := listen(SocketConfig{Path: path, Mode: 0o660}, discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil { // somebody cleaned up
		t.Fatal(err)
	}
	second, err := listen(SocketConfig{Path: path, Mode: 0o660}, discard)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestGroup(t *testing.T) {
	dir := socketDir(t)
	if _, err := listen(SocketConfig{Path: filepath.Join(dir, "a"), Mode: 0o660, Group: "no-such-group-here"}, discard); err == nil || !strings.Contains(err.Error(), "socket.group") {
		t.Errorf("a group that does not exist: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}
