package hub

import (
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Config is hub.yaml as a struct. The zero value of every field is the default
// that its comment names.
type Config struct {
	DataDir  string   `yaml:"data_dir"` // /var/lib/fieldpost-hub
	NATS     NATS     `yaml:"nats"`
	Auth     Auth     `yaml:"auth"`
	Blocks   Blocks   `yaml:"blocks"`
	Routes   []Route  `yaml:"routes"` // one: everything to EDGE
	Dead     Dead     `yaml:"dead"`
	Commands Commands `yaml:"commands"`
	Webhooks []any    `yaml:"webhooks"` // none
	HTTP     HTTP     `yaml:"http"`

	// Version is what status, metrics and log say of the program; "dev".
	Version string           `yaml:"-"`
	Log     *slog.Logger     `yaml:"-"` // discard
	Now     func() time.Time `yaml:"-"` // time.Now
	// Fault is called at every labelled step of the hub and of its parts. A
	// returned error takes the place of the step's own. Tests only.
	Fault func(point string) error `yaml:"-"`
}

// NATS says where the streams live: in the embedded server, or, if URLs are
// given, in that cluster.
type NATS struct {
	Listen   string   `yaml:"listen"`    // 127.0.0.1:4222; port 0 takes a free one
	MaxStore Size     `yaml:"max_store"` // auto: 70 % of free space at first start, then fixed
	TLS      TLS      `yaml:"tls"`
	URLs     []string `yaml:"urls"`  // none: the embedded server
	Creds    string   `yaml:"creds"` // credentials file for URLs
	Replicas int      `yaml:"replicas"`
}

// TLS names certificate files.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

// HTTPTLS names the certificate files of the HTTP listener.
type HTTPTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Auth says who may connect: auto (open on loopback, credentials elsewhere),
// required or open.
type Auth struct {
	Mode string `yaml:"mode"` // auto
}

// Blocks is the ledger.
type Blocks struct {
	Retain   time.Duration `yaml:"retain"`    // 24h
	MaxBytes Size          `yaml:"max_bytes"` // 30% of max_store
}

// Route sends the messages whose subject matches to one stream.
type Route struct {
	Match       string        `yaml:"match"`       // ">"; the first route that matches takes the message
	Stream      string        `yaml:"stream"`      // EDGE
	Prefix      string        `yaml:"prefix"`      // the stream's name in lower case
	Unpack      *bool         `yaml:"unpack"`      // true
	MaxAge      time.Duration `yaml:"max_age"`     // 168h
	MaxBytes    Size          `yaml:"max_bytes"`   // 50% of max_store
	Discard     string        `yaml:"discard"`     // old; or new
	Compression string        `yaml:"compression"` // s2; or none
}

// Dead is the stream of what nobody could take.
type Dead struct {
	MaxAge   time.Duration `yaml:"max_age"`   // 720h
	MaxBytes Size          `yaml:"max_bytes"` // 10% of max_store
}

// Commands is the way back to the devices.
type Commands struct {
	TTL        time.Duration `yaml:"ttl"`         // 24h
	AckWait    time.Duration `yaml:"ack_wait"`    // 30s
	MaxDeliver int           `yaml:"max_deliver"` // 10
	MaxPending int           `yaml:"max_pending"` // 1000
	MaxBytes   Size          `yaml:"max_bytes"`   // 5% of max_store
}

// HTTP is the admin API, health and metrics.
type HTTP struct {
	Listen      string  `yaml:"listen"` // 127.0.0.1:8420; port 0 takes a free one
	TLS         HTTPTLS `yaml:"tls"`
	TokenFile   string  `yaml:"token_file"`
	MetricsOpen bool    `yaml:"metrics_open"`
}

// The modes of Auth.
const (
	AuthAuto     = "auto"
	AuthRequired = "required"
	AuthOpen     = "open"
)

// WithDefaults returns c with every zero value replaced by its default. It
// shares nothing with c that it changes.
func (c Config) WithDefaults() Config {
	or(&c.DataDir, "/var/lib/fieldpost-hub")
	or(&c.NATS.Listen, "127.0.0.1:4222")
	or(&c.NATS.Replicas, 1)
	or(&c.Auth.Mode, AuthAuto)
	or(&c.Blocks.Retain, 24*time.Hour)
	or(&c.Blocks.MaxBytes, Size{Percent: 30})
	or(&c.Dead.MaxAge, 720*time.Hour)
	or(&c.Dead.MaxBytes, Size{Percent: 10})
	or(&c.Commands.TTL, 24*time.Hour)
	or(&c.Commands.AckWait, 30*time.Second)
	or(&c.Commands.MaxDeliver, 10)
	or(&c.Commands.MaxPending, 1000)
	or(&c.Commands.MaxBytes, Size{Percent: 5})
	or(&c.HTTP.Listen, "127.0.0.1:8420")
	or(&c.Version, "dev")
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Fault == nil {
		c.Fault = func(string) error { return nil }
	}
	c.Routes = slices.Clone(c.Routes)
	if len(c.Routes) == 0 {
		c.Routes = []Route{{}}
	}
	for i := range c.Routes {
		c.Routes[i].defaults()
	}
	return c
}

func (r *Route) defaults() {
	or(&r.Match, ">")
	or(&r.Stream, "EDGE")
	or(&r.Prefix, strings.ToLower(r.Stream))
	if r.Unpack == nil {
		r.Unpack = new(bool)
		*r.Unpack = true
	}
	or(&r.MaxAge, 168*time.Hour)
	or(&r.MaxBytes, Size{Percent: 50})
	or(&r.Discard, "old")
	or(&r.Compression, "s2")
}

// or sets *p to def if it is zero.
func or[T comparable](p *T, def T) {
	var zero T
	if *p == zero {
		*p = def
	}
}
