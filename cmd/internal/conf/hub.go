package conf

import (
	_ "embed" // the example
	"strings"
	"time"
)

// HubExample is the commented example; it is also where the defaults come from.
//
//go:embed hub.yaml
var HubExample []byte

// Hub is hub.yaml. The comments beside the keys are in the example.
type Hub struct {
	DataDir  string    `yaml:"data_dir"`
	NATS     NATS      `yaml:"nats"`
	Auth     Auth      `yaml:"auth"`
	Blocks   Blocks    `yaml:"blocks"`
	Routes   []Route   `yaml:"routes"`
	Dead     Dead      `yaml:"dead"`
	Commands Commands  `yaml:"commands"`
	Webhooks []Webhook `yaml:"webhooks"`
	HTTP     HTTP      `yaml:"http"`
	Log      Log       `yaml:"log"`
}

// NATS is the embedded server or the cluster that takes its place.
type NATS struct {
	Listen   string   `yaml:"listen"`
	MaxStore AutoSize `yaml:"max_store"`
	TLS      NATSTLS  `yaml:"tls"`
	URLs     []string `yaml:"urls" secret:"url"`
	Creds    string   `yaml:"creds"`
	Replicas int      `yaml:"replicas"`
}

// NATSTLS names the files of the embedded server's TLS.
type NATSTLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	CA   string `yaml:"ca"`
}

// Auth says who must show credentials.
type Auth struct {
	Mode string `yaml:"mode"`
}

// Blocks is the ledger.
type Blocks struct {
	Retain   Duration `yaml:"retain"`
	MaxBytes Share    `yaml:"max_bytes"`
}

// Route puts messages into a stream.
type Route struct {
	Match       string   `yaml:"match"`
	Stream      string   `yaml:"stream"`
	Prefix      string   `yaml:"prefix"`
	Unpack      bool     `yaml:"unpack"`
	MaxAge      Duration `yaml:"max_age"`
	MaxBytes    Share    `yaml:"max_bytes"`
	Discard     string   `yaml:"discard"`
	Compression string   `yaml:"compression"`
}

// inherit makes a route that names only some keys complete.
func (r *Route) inherit(proto any) {
	*r = *proto.(*Route)
	r.Prefix = ""
}

func (r *Route) complete() {
	if r.Prefix == "" {
		r.Prefix = strings.ToLower(r.Stream)
	}
}

// Dead is the stream of what nobody could take.
type Dead struct {
	MaxAge   Duration `yaml:"max_age"`
	MaxBytes Share    `yaml:"max_bytes"`
}

// Commands is the way to the devices.
type Commands struct {
	TTL        Duration `yaml:"ttl"`
	AckWait    Duration `yaml:"ack_wait"`
	MaxDeliver int      `yaml:"max_deliver"`
	MaxPending int      `yaml:"max_pending"`
	MaxBytes   Share    `yaml:"max_bytes"`
}

// Webhook is a URL that is sent a stream's messages. Zero values are the hub's
// defaults.
type Webhook struct {
	Name       string   `yaml:"name"`
	URL        string   `yaml:"url" secret:"url"`
	Stream     string   `yaml:"stream"`
	Filter     string   `yaml:"filter"`
	SecretFile string   `yaml:"secret_file"`
	Batch      int      `yaml:"batch"`
	Wait       Duration `yaml:"wait"`
	Timeout    Duration `yaml:"timeout"`
	MaxDeliver int      `yaml:"max_deliver"`
}

func (w *Webhook) inherit(any) {}

// complete gives a webhook that names only some keys the defaults of the others.
func (w *Webhook) complete() {
	if w.Batch == 0 {
		w.Batch = 100
	}
	if w.Wait == 0 {
		w.Wait = Duration(time.Second)
	}
	if w.Timeout == 0 {
		w.Timeout = Duration(10 * time.Second)
	}
}

// HTTP is the API.
type HTTP struct {
	Listen      string  `yaml:"listen"`
	TLS         KeyPair `yaml:"tls"`
	TokenFile   string  `yaml:"token_file"`
	MetricsOpen bool    `yaml:"metrics_open"`
}
