package store

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"
)

// Config says where the streams live. With URLs they live in that cluster,
// else in a server embedded in this process.
type Config struct {
	Dir        string // data folder of the embedded server; used by one process at a time
	Listen     string // address of the embedded server; "127.0.0.1:4222"; port 0 or -1 takes a free one
	MaxStore   int64  // bytes that all streams of the embedded server may take; 0: three quarters of what is free now
	MaxPayload int    // largest message of the embedded server; 0: 1 MiB
	// AllowRemote lets clients connect without credentials to an address that is
	// not loopback. Without it such an address is refused.
	AllowRemote bool
	Offline     bool // the embedded server does not listen: it is this process's alone
	Unsynced    bool // the embedded server does not sync each write; whoever closes it syncs its folder (SyncFolder)
	// Protect lists subjects, besides those of this package's own streams, that
	// only the hub may publish to at the embedded server: those of the routes.
	Protect []string

	URLs     []string // of one cluster
	Creds    string   // credentials file; may be empty
	Replicas int      // of every stream; 0: 1

	Timeout time.Duration // for one answer of JetStream; 0: 10 s

	// Fault is called at every labelled step (Points). A returned error takes the
	// place of the step's own. Tests only.
	Fault func(point string) error
	Log   *slog.Logger // nil: discard
}

// Points lists the labels that Config.Fault sees: before the first message of a
// batch, before its commit, and when its answer has come.
func Points() []string { return []string{"batch:send", "batch:commit", "batch:answer"} }

func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:4222"
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = 1 << 20
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Fault == nil {
		c.Fault = func(string) error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.URLs) > 0 {
		return c, nil
	}
	switch {
	case c.Dir == "":
		return c, errors.New("store: no data folder for the embedded server; set data_dir, or nats.urls to use a cluster")
	case c.Replicas != 1:
		return c, fmt.Errorf("store: the embedded server keeps one replica, not %d; set nats.replicas to 1, or nats.urls to use a cluster", c.Replicas)
	}
	host, _, err := splitListen(c.Listen)
	if err != nil {
		return c, err
	}
	if ip := net.ParseIP(host); !c.AllowRemote && !c.Offline && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return c, fmt.Errorf("store: %s is not a loopback address, so clients need credentials; listen on 127.0.0.1", c.Listen)
	}
	return c, nil
}

// splitListen returns host and port; port −1 means any free one.
func splitListen(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err == nil {
		port, err = strconv.Atoi(p)
	}
	if err != nil || port < -1 || port > 65535 {
		return "", 0, fmt.Errorf("store: listen address %q is not like 127.0.0.1:4222", addr)
	}
	if port == 0 {
		port = -1
	}
	return host, port, nil
}
