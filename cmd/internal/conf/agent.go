package conf

import (
	_ "embed" // the example
	"log/slog"
)

// AgentExample is the commented example; it is also where the defaults come from.
//
//go:embed agent.yaml
var AgentExample []byte

// Agent is agent.yaml. The comments beside the keys are in the example.
type Agent struct {
	Device  string            `yaml:"device"`
	Labels  map[string]string `yaml:"labels"`
	DataDir string            `yaml:"data_dir"`
	Socket  Socket            `yaml:"socket"`
	Hub     HubLink           `yaml:"hub"`
	Spool   Spool             `yaml:"spool"`
	Lanes   []LaneRule        `yaml:"lanes"`
	Link    Link              `yaml:"link"`
	Access  []AccessRule      `yaml:"access"`
	MQTT    MQTT              `yaml:"mqtt"`
	Syslog  Syslog            `yaml:"syslog"`
	Metrics Metrics           `yaml:"metrics"`
	Log     Log               `yaml:"log"`
}

// Socket is where local programs publish.
type Socket struct {
	Path        string `yaml:"path"`
	Mode        Mode   `yaml:"mode"`
	Group       string `yaml:"group"`
	MaxPayload  Size   `yaml:"max_payload"`
	MaxInflight Size   `yaml:"max_inflight"`
}

// HubLink is how the agent reaches its hub.
type HubLink struct {
	URLs  []string `yaml:"urls" secret:"url"`
	Creds string   `yaml:"creds"`
	CA    string   `yaml:"ca"`
}

// Spool is what is kept until the hub has it.
type Spool struct {
	MaxBytes    AutoSize `yaml:"max_bytes"`
	KeepFree    Size     `yaml:"keep_free"`
	WhenFull    string   `yaml:"when_full"`
	MaxAge      Duration `yaml:"max_age"`
	CommitDelay Duration `yaml:"commit_delay"`
	Order       string   `yaml:"order"`
	FreshShare  Percent  `yaml:"fresh_share"`
	Durability  string   `yaml:"durability"`
	KeyFile     string   `yaml:"key_file"`
}

// LaneRule puts the subjects that match into a lane.
type LaneRule struct {
	Match string `yaml:"match"`
	Lane  string `yaml:"lane"`
}

// Link says how the link may be used.
type Link struct {
	Class      string   `yaml:"class"`
	MaxRate    Size     `yaml:"max_rate"`
	Flush      Duration `yaml:"flush"`
	DailyBytes Size     `yaml:"daily_bytes"`
	Windows    []Window `yaml:"windows"`
}

// Window opens lanes at certain times only.
type Window struct {
	Class string   `yaml:"class"`
	Lanes []string `yaml:"lanes"`
	Cron  string   `yaml:"cron"`
	For   Duration `yaml:"for"`
}

// AccessRule says what one local user may do.
type AccessRule struct {
	UID       int      `yaml:"uid"`
	Publish   []string `yaml:"publish"`
	Subscribe []string `yaml:"subscribe"`
	Rate      int      `yaml:"rate"`  // messages a second
	Bytes     Size     `yaml:"bytes"` // a second
}

// MQTT is the listener for local MQTT clients.
type MQTT struct {
	Listen    string  `yaml:"listen"`
	TLS       KeyPair `yaml:"tls"`
	UsersFile string  `yaml:"users_file"`
	ACLFile   string  `yaml:"acl_file"`
}

// KeyPair names the files of a certificate.
type KeyPair struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Syslog is the listener for local syslog clients.
type Syslog struct {
	Socket string `yaml:"socket"`
}

// Metrics is the extra listener for Prometheus.
type Metrics struct {
	Listen string `yaml:"listen"`
}

// Log is what is logged and how.
type Log struct {
	Level  Level  `yaml:"level"`
	Format Format `yaml:"format"`
}

// Level is the least that is logged.
type Level string

// UnmarshalText refuses what slog has no name for.
func (l *Level) UnmarshalText(b []byte) error {
	return word((*string)(l), b, "debug", "info", "warn", "error")
}

// Slog is the level as the log has it.
func (l Level) Slog() (out slog.Level) {
	if err := out.UnmarshalText([]byte(l)); err != nil {
		panic("conf: " + err.Error()) // UnmarshalText lets only slog's own names through
	}
	return out
}

// Format is how a line of the log looks.
type Format string

// UnmarshalText refuses unknown formats.
func (f *Format) UnmarshalText(b []byte) error { return word((*string)(f), b, "auto", "text", "json") }
