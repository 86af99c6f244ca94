//go:build unix

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// defaultGroup is what socket.group is unless it is set.
const defaultGroup = "fieldpost"

func isSocket(info fs.FileInfo) bool { return info.Mode()&fs.ModeSocket != 0 }

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// bind makes the socket under a passing name of the same length, so that it
// appears under its own only with mode and group set.
func bind(cfg SocketConfig, log *slog.Logger) (*net.UnixListener, error) {
	dir, name := filepath.Split(cfg.Path)
	last := byte('~')
	if name[len(name)-1] == last {
		last = '^'
	}
	passing := dir + name[:len(name)-1] + string(last)
	if info, err := os.Lstat(passing); err == nil && isSocket(info) {
		os.Remove(passing) // a crash left it; if not, binding says so
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: passing, Net: "unix"})
	if err != nil {
		return nil, err
	}
	err = setGroup(passing, cfg.Group, log)
	if err == nil {
		err = os.Chmod(passing, cfg.Mode)
	}
	if err == nil {
		err = os.Rename(passing, cfg.Path)
	}
	if err != nil {
		ln.Close() // removes it too
		return nil, err
	}
	return ln, nil
}

// setGroup gives the socket to a group; "" leaves it as it is. The default group
// may be missing, or not ours to give; another one may not.
func setGroup(path, group string, log *slog.Logger) error {
	if group == "" {
		return nil
	}
	err := chgrp(path, group)
	if err == nil || group != defaultGroup {
		return err
	}
	log.Info("the socket stays with the agent's own group", "reason", err)
	return nil
}

func chgrp(path, group string) error {
	g, err := user.LookupGroup(group)
	if err != nil {
		return fmt.Errorf("socket.group: %w", err)
	}
	gid, err := strconv.Atoi(g.Gid)
	if err != nil {
		return fmt.Errorf("socket.group: %w", err)
	}
	if err := os.Chown(path, -1, gid); err != nil {
		return fmt.Errorf("socket.group: %w", err)
	}
	return nil
}
