package main

import (
	"fmt"
	"time"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
	"github.com/fieldpost/fieldpost/hub"
	"github.com/fieldpost/fieldpost/hub/webhook"
)

func configuration() cli.Config {
	return cli.Config{
		Example: conf.HubExample,
		Load: func(s conf.Source) (any, conf.Origins, error) {
			file, _, origins, err := load(s)
			return file, origins, err
		},
		Check: func(s conf.Source) ([]string, error) {
			_, cfg, _, err := load(s)
			return cfg.Notes(), err
		},
	}
}

// load reads everything and checks it as far as that is possible without
// starting: what `run` would refuse, `config check` refuses.
func load(s conf.Source) (*conf.Hub, hub.Config, conf.Origins, error) {
	file, origins, err := conf.LoadHub(s)
	if err != nil {
		return nil, hub.Config{}, nil, err
	}
	cfg := toHub(file, origins)
	if err := cfg.Validate(); err != nil {
		return nil, hub.Config{}, nil, conf.Place(err, origins)
	}
	return file, cfg, origins, nil
}

func toHub(f *conf.Hub, origins conf.Origins) hub.Config {
	cfg := hub.Config{
		DataDir: f.DataDir,
		NATS: hub.NATS{
			Listen: f.NATS.Listen, MaxStore: hub.Size{Bytes: int64(f.NATS.MaxStore)}, URLs: f.NATS.URLs,
			TLS:   hub.TLS{Cert: f.NATS.TLS.Cert, Key: f.NATS.TLS.Key, CA: f.NATS.TLS.CA},
			Creds: f.NATS.Creds, Replicas: f.NATS.Replicas,
		},
		Auth:   hub.Auth{Mode: f.Auth.Mode},
		Blocks: hub.Blocks{Retain: time.Duration(f.Blocks.Retain), MaxBytes: size(f.Blocks.MaxBytes)},
		Dead:   hub.Dead{MaxAge: time.Duration(f.Dead.MaxAge), MaxBytes: size(f.Dead.MaxBytes)},
		Commands: hub.Commands{
			TTL: time.Duration(f.Commands.TTL), AckWait: time.Duration(f.Commands.AckWait), MaxDeliver: f.Commands.MaxDeliver,
			MaxPending: f.Commands.MaxPending, MaxBytes: size(f.Commands.MaxBytes),
		},
		HTTP: hub.HTTP{
			Listen: f.HTTP.Listen, TLS: hub.HTTPTLS{Cert: f.HTTP.TLS.Cert, Key: f.HTTP.TLS.Key},
			TokenFile: f.HTTP.TokenFile, MetricsOpen: f.HTTP.MetricsOpen,
		},
		Version: cli.Version(version),
	}
	for _, w := range f.Webhooks {
		cfg.Webhooks = append(cfg.Webhooks, webhook.Hook{
			Name: w.Name, URL: w.URL, Stream: w.Stream, Filter: w.Filter, SecretFile: w.SecretFile,
			Batch: w.Batch, Wait: time.Duration(w.Wait), Timeout: time.Duration(w.Timeout), MaxDeliver: w.MaxDeliver,
		})
	}
	for i, r := range f.Routes {
		cfg.Routes = append(cfg.Routes, toRoute(r, func(key string) bool {
			at := origins[fmt.Sprintf("routes[%d].%s", i, key)]
			return at != "" && at != "default"
		}))
	}
	return cfg
}

// toRoute leaves out what a packed route has only by default.
func toRoute(r conf.Route, set func(key string) bool) hub.Route {
	out := hub.Route{
		Match: r.Match, Stream: r.Stream, Prefix: r.Prefix, Unpack: &r.Unpack, MaxAge: time.Duration(r.MaxAge),
		MaxBytes: size(r.MaxBytes), Discard: r.Discard, Compression: r.Compression,
	}
	if r.Unpack {
		return out
	}
	if !set("stream") {
		out.Stream = ""
	}
	if !set("prefix") {
		out.Prefix = ""
	}
	if !set("max_bytes") {
		out.MaxBytes = hub.Size{}
	}
	if !set("discard") {
		out.Discard = ""
	}
	if !set("compression") {
		out.Compression = ""
	}
	return out
}

func size(s conf.Share) hub.Size { return hub.Size{Bytes: int64(s.Bytes), Percent: int(s.Percent)} }
