package hub

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/webhook"
)

// Config is hub.yaml as a struct. The zero value of every field is the default
// that its comment names.
type Config struct {
	DataDir  string // /var/lib/fieldpost-hub
	NATS     NATS
	Auth     Auth
	Blocks   Blocks
	Routes   []Route // one: everything to EDGE
	Dead     Dead
	Commands Commands
	Webhooks []webhook.Hook // none; Stream: as Filter begins, else that of the route that takes the rest
	HTTP     HTTP

	// Version is what status, metrics and log say of the program; "dev".
	Version string
	Log     *slog.Logger     // discard
	Now     func() time.Time // time.Now
	// Fault is called at every labelled step of the hub and of its parts. A
	// returned error takes the place of the step's own. Tests only.
	Fault func(point string) error
}

// NATS says where the streams live: in the embedded server, or, if URLs are
// given, in that cluster.
type NATS struct {
	Listen   string // 127.0.0.1:4222; port 0 takes a free one
	MaxStore Size   // auto: 70 % of free space at first start, then fixed
	TLS      TLS
	URLs     []string // none: the embedded server
	Creds    string   // credentials file for URLs
	Replicas int
}

// TLS names certificate files.
type TLS struct {
	Cert string
	Key  string
	CA   string
}

// HTTPTLS names the certificate files of the HTTP listener.
type HTTPTLS struct {
	Cert string
	Key  string
}

// Auth says who may connect: auto (open on loopback, credentials elsewhere),
// required or open.
type Auth struct {
	Mode string // auto
}

// Blocks is the ledger.
type Blocks struct {
	Retain   time.Duration // 24h
	MaxBytes Size          // 30% of max_store
}

// Route sends the messages whose subject matches to one stream. A packed one has
// no stream: its messages stay in the ledger, and what is set of a stream's
// settings is not used (Config.Notes says so).
type Route struct {
	Match       string        // ">"; the first route that matches takes the message
	Stream      string        // EDGE
	Prefix      string        // the stream's name in lower case
	Unpack      *bool         // true
	MaxAge      time.Duration // 168h
	MaxBytes    Size          // 50% of max_store
	Discard     string        // old; or new
	Compression string        // s2; or none
}

// Dead is the stream of what nobody could take.
type Dead struct {
	MaxAge   time.Duration // 720h
	MaxBytes Size          // 10% of max_store
}

// Commands is the way back to the devices.
type Commands struct {
	TTL        time.Duration // 24h
	AckWait    time.Duration // 30s
	MaxDeliver int           // 10
	MaxPending int           // 1000
	MaxBytes   Size          // 5% of max_store
}

// HTTP is the admin API, health and metrics.
type HTTP struct {
	Listen      string // 127.0.0.1:8420; port 0 takes a free one
	TLS         HTTPTLS
	TokenFile   string
	MetricsOpen bool
}

// The modes of Auth.
const (
	AuthAuto     = "auto"
	AuthRequired = "required"
	AuthOpen     = "open"
)

// withDefaults returns c with every zero value replaced by its default. It
// shares nothing with c that it changes.
func (c Config) withDefaults() Config {
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
	c.Webhooks = slices.Clone(c.Webhooks)
	for i := range c.Webhooks {
		h := &c.Webhooks[i]
		if r, err := c.unpacked(h.Stream, h.Filter); err == nil {
			or(&h.Stream, r.Stream)
		}
		c.Webhooks[i] = c.Webhooks[i].WithDefaults()
	}
	return c
}

func (r *Route) defaults() {
	or(&r.Match, ">")
	or(&r.MaxAge, 168*time.Hour)
	if r.Unpack == nil {
		r.Unpack = new(bool)
		*r.Unpack = true
	}
	if r.packed() {
		return
	}
	or(&r.Stream, "EDGE")
	or(&r.Prefix, strings.ToLower(r.Stream))
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
