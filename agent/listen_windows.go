package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"

	"golang.org/x/sys/windows"
)

// isSocket: Windows shows a socket as a reparse point of unknown kind.
func isSocket(info fs.FileInfo) bool { return info.Mode()&(fs.ModeSocket|fs.ModeIrregular) != 0 }

func isRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// bind ignores mode and group: access follows the folder's list.
func bind(cfg SocketConfig, log *slog.Logger) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Path, Net: "unix"})
}
