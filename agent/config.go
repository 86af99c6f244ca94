package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// ErrConfig is wrapped by everything that Validate refuses: the caller can only
// be helped by another configuration.
var ErrConfig = errors.New("configuration")

// Config mirrors agent.yaml. The zero value of every field is its documented default.
type Config struct {
	Device  string // empty: the first label of the host name
	Labels  map[string]string
	DataDir string // empty: /var/lib/fieldpost
	Socket  SocketConfig
	Hub     HubConfig
	Spool   SpoolConfig
	Lanes   []LaneRule // first match wins, where the publisher names no lane
	Link    LinkConfig
	Access  []AccessRule
	MQTT    MQTTConfig
	Syslog  SyslogConfig
	Metrics MetricsConfig

	Version string       // of the program, for status and metrics; empty: "dev"
	Log     *slog.Logger // nil: discard

	Level    slog.Level     // log.level
	LevelVar *slog.LevelVar // of Log, so that the level can be changed; nil: it cannot
	// Overlay is the configuration with a JSON object laid over it, of which log.level,
	// link and lanes may be keys; the error names what is wrong in it. nil: none of them may.
	Overlay func(object []byte) (Config, error)

	// Limits of waiting; tests shorten them.
	HeaderTimeout time.Duration // for a request's headers; 0: 10 s
	BodyTimeout   time.Duration // without a byte of a body; 0: 30 s
	StopTimeout   time.Duration // to finish what was accepted; 0: 20 s
	TrialTime     time.Duration // until the link has to be back with other settings; 0: 1 min

	// Dialer replaces the one that Hub describes. Tests only; nil in production.
	Dialer link.Dialer
	// Fault is called at every labelled step of the spool and of the commands.
	// Tests only; nil in production.
	Fault func(point string) error
}

// SocketConfig is the Unix socket for local programs.
type SocketConfig struct {
	Path        string      // empty: /run/fieldpost/agent.sock
	Mode        fs.FileMode // 0: 0660
	Group       string      // empty: left as it is
	MaxPayload  int64       // bytes of one message; 0: 512 KiB; at most 8 MiB
	MaxInflight int64       // bytes of all bodies in memory; 0: 8 MiB
}

// HubConfig says where the hub is. All URLs are one hub.
type HubConfig struct {
	URLs  []string // empty: nats://127.0.0.1:4222
	Creds string   // credentials file
	CA    string   // PEM file of certificate authorities; empty: the system's
}

// SpoolConfig bounds and tunes the spool.
type SpoolConfig struct {
	MaxBytes    int64         // real disk bytes; 0: auto, the smaller of 1 GiB and 25 % of the file system
	KeepFree    int64         // bytes left to others; 0: 64 MiB
	WhenFull    string        // reject (default) | drop-oldest
	MaxAge      time.Duration // 0: never
	CommitDelay time.Duration // 0: 2 ms; negative: none
	Order       string        // fifo (default) | fresh-first
	FreshShare  int           // percent; 0: 50
	Durability  string        // disk (default) | memory-first: weaker, see spool.Config.MemoryFirst
	Keys        [][]byte      // encrypt the spool: spool.Config.Keys
}

// whenFull is spool.when_full as the spool knows it.
var whenFull = map[string]spool.WhenFull{"reject": spool.Reject, "drop-oldest": spool.DropOldest}

// LaneRule gives messages whose subject matches a lane.
type LaneRule struct {
	Match string // subject filter with * and >
	Lane  wire.Lane
}

// LinkConfig says what the link costs.
type LinkConfig struct {
	Class      string        // unmetered (default) | metered | one that a window is for
	MaxRate    int64         // bytes a second; 0: unlimited
	Flush      time.Duration // how long small messages wait for company; 0: not at all; at most 1 min
	DailyBytes int64         // of a calendar day in local time; 0: unlimited; urgent counts, but passes
	Windows    []LinkWindow
}

// LinkWindow opens lanes at certain times only: see policy.Window.
type LinkWindow struct {
	Class string // empty: every class
	Lanes []wire.Lane
	Cron  string // see policy.Cron
	For   time.Duration
}

// AccessRule limits what one local user may do.
type AccessRule struct {
	UID       int
	Publish   []string
	Subscribe []string
	Rate      int64 // messages a second; 0: unlimited
	Bytes     int64 // bytes a second; 0: unlimited
}

// MQTTConfig is the optional MQTT listener.
type MQTTConfig struct {
	Listen    string // empty: none
	TLSCert   string
	TLSKey    string
	UsersFile string
	ACLFile   string
}

// SyslogConfig is the optional syslog listener.
type SyslogConfig struct{ Socket string }

// MetricsConfig is the optional TCP listener for metrics; they are on the socket always.
type MetricsConfig struct{ Listen string }

// Limits that are part of the contract.
const (
	maxPayloadLimit = 8 << 20 // socket.max_payload at most
	maxAtomicBody   = 4 << 20 // body of an atomic NDJSON publish
	minSpool        = 8 << 20 // what the spool needs for a head in every lane
)

// Validate reports every fault of the configuration, each with its yaml key.
// The error wraps ErrConfig. A feature that this version does not have is a
// fault when it is asked for.
func (c Config) Validate() error {
	c = c.withDefaults()
	var faults []error
	bad := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
	}
	later := func(asked bool, key string) {
		if asked {
			bad(key, "not available in this version; leave it out")
		}
	}
	if c.Device != "" {
		if err := wire.CheckDevice(c.Device); err != nil {
			bad("device", "%v", err)
		}
	}
	for k := range c.Labels {
		if k == "" {
			bad("labels", "a label has an empty name")
		}
	}
	c.Socket.validate(bad)
	if _, err := link.NewNATS(link.Config{URLs: c.Hub.URLs, Device: "any"}); err != nil { // opens nothing
		bad("hub.urls", "%v", err)
	}
	c.Spool.validate(bad, later)
	for i, r := range c.Lanes {
		if err := wire.CheckFilter(r.Match); err != nil {
			bad(fmt.Sprintf("lanes[%d].match", i), "%v", err)
		}
		if !r.Lane.Valid() {
			bad(fmt.Sprintf("lanes[%d].lane", i), "not one of urgent, normal, bulk")
		}
	}
	c.Link.validate(bad)
	later(len(c.Access) > 0, "access")
	later(c.MQTT != MQTTConfig{}, "mqtt")
	later(c.Syslog.Socket != "", "syslog.socket")
	later(c.Metrics.Listen != "", "metrics.listen")
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
}

func (s SocketConfig) validate(bad func(key, format string, args ...any)) {
	if n, limit := len(s.Path), maxSocketPath(); n > limit {
		bad("socket.path", "%d bytes long; this system allows %d, choose a shorter one", n, limit)
	}
	if s.Mode&^fs.ModePerm != 0 {
		bad("socket.mode", "%o is more than permission bits", s.Mode)
	}
	if s.MaxPayload < 1 || s.MaxPayload > maxPayloadLimit {
		bad("socket.max_payload", "%d is not between 1 and 8MiB", s.MaxPayload)
	}
	if s.MaxInflight < s.MaxPayload {
		bad("socket.max_inflight", "%d is less than max_payload, so that the largest message could never be taken", s.MaxInflight)
	}
}

func (s SpoolConfig) validate(bad func(key, format string, args ...any), later func(asked bool, key string)) {
	notNegative(bad, "spool.max_bytes", s.MaxBytes)
	if s.MaxBytes > 0 && s.MaxBytes < minSpool {
		bad("spool.max_bytes", "%d is less than the smallest spool, 8MiB", s.MaxBytes)
	}
	notNegative(bad, "spool.keep_free", s.KeepFree)
	oneOf(bad, "spool.when_full", s.WhenFull, "reject", "drop-oldest")
	notNegative(bad, "spool.max_age", int64(s.MaxAge))
	oneOf(bad, "spool.order", s.Order, "fifo", freshFirst)
	oneOf(bad, "spool.durability", s.Durability, "disk", memoryFirst)
	if s.FreshShare < 1 || s.FreshShare > 100 {
		bad("spool.fresh_share", "%d%% is not between 1%% and 100%%", s.FreshShare)
	}
	for i, key := range s.Keys {
		if n := len(key); n != 16 && n != 24 && n != 32 && (n != 0 || i > 0) {
			bad("spool.key_file", "key %d has %d bytes; a key has 16, 24 or 32", i+1, n)
		}
	}
}

func oneOf(bad func(key, format string, args ...any), key, got string, names ...string) {
	for _, n := range names {
		if got == n {
			return
		}
	}
	bad(key, "%q is not one of %s", got, strings.Join(names, ", "))
}

func notNegative(bad func(key, format string, args ...any), key string, n int64) {
	if n < 0 {
		bad(key, "%d is negative", n)
	}
}

// withDefaults fills in what is zero. The device stays empty: finding it can fail.
func (c Config) withDefaults() Config {
	def(&c.DataDir, "/var/lib/fieldpost")
	def(&c.Socket.Path, "/run/fieldpost/agent.sock")
	def(&c.Socket.Mode, 0o660)
	def(&c.Socket.MaxPayload, 512<<10)
	def(&c.Socket.MaxInflight, 8<<20)
	if len(c.Hub.URLs) == 0 {
		c.Hub.URLs = []string{"nats://127.0.0.1:4222"}
	}
	def(&c.Spool.WhenFull, "reject")
	def(&c.Spool.Order, "fifo")
	def(&c.Spool.FreshShare, 50)
	def(&c.Spool.Durability, "disk")
	def(&c.Link.Class, classUnmetered)
	def(&c.Version, "dev")
	def(&c.HeaderTimeout, 10*time.Second)
	def(&c.BodyTimeout, 30*time.Second)
	def(&c.StopTimeout, 20*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) spoolDir() string { return filepath.Join(c.DataDir, "spool") }

func (c Config) commandDir() string { return filepath.Join(c.DataDir, "commands") }

// device returns the configured id, or derives one from the host name: its
// first label, other characters as "-". A name that many hosts share is refused.
func (c Config) device() (string, error) {
	if c.Device != "" {
		return c.Device, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("%w: device: no host name (%v); set device", ErrConfig, err)
	}
	return deviceFromHost(host)
}

func deviceFromHost(host string) (string, error) {
	label, _, _ := strings.Cut(host, ".")
	id := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '-'
	}, label)
	if strings.EqualFold(id, "localhost") || strings.Trim(id, "-") == "" {
		return "", fmt.Errorf("%w: device: the host name %q does not tell this device from others; set device", ErrConfig, host)
	}
	if err := wire.CheckDevice(id); err != nil {
		return "", fmt.Errorf("%w: device: from the host name %q: %v; set device", ErrConfig, host, err)
	}
	return id, nil
}

// maxSocketPath is the longest path of a Unix socket (sun_path less its NUL).
func maxSocketPath() int {
	switch runtime.GOOS {
	case "darwin", "ios", "freebsd", "openbsd", "netbsd", "dragonfly":
		return 103
	}
	return 107
}
