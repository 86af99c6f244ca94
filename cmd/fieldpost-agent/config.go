package main

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/fieldpost/fieldpost/agent"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func configuration() cli.Config {
	return cli.Config{
		Example: conf.AgentExample,
		Load: func(s conf.Source) (any, conf.Origins, error) {
			file, _, origins, err := load(s)
			return file, origins, err
		},
		Check: func(s conf.Source) ([]string, error) {
			_, cfg, _, err := loadKeyed(s)
			if err != nil {
				return nil, err
			}
			return append(cfg.LaneNotes(), cfg.KeyNotes()...), nil
		},
	}
}

// loadKeyed is load, and the keys of the spool.
func loadKeyed(s conf.Source) (*conf.Agent, agent.Config, conf.Origins, error) {
	file, cfg, origins, err := load(s)
	if err == nil {
		err = readKeys(file, &cfg, origins)
	}
	return file, cfg, origins, err
}

// load reads everything and checks it as far as that is possible without
// starting: what `run` would refuse, `config check` refuses.
func load(s conf.Source) (*conf.Agent, agent.Config, conf.Origins, error) {
	file, origins, err := conf.LoadAgent(s)
	if err != nil {
		return nil, agent.Config{}, nil, err
	}
	cfg, err := toAgent(file)
	if err := errors.Join(err, cfg.Validate()); err != nil {
		return nil, agent.Config{}, nil, conf.Place(err, origins)
	}
	return file, cfg, origins, nil
}

// overlaid is f with what the hub wants of it.
func overlaid(f *conf.Agent, object []byte) (agent.Config, error) {
	f, err := f.Overlay(object)
	if err != nil {
		return agent.Config{}, err
	}
	cfg, err := toAgent(f)
	if err := errors.Join(err, cfg.Validate()); err != nil {
		return agent.Config{}, conf.InOverlay(err)
	}
	return cfg, nil
}

// toAgent is complete even if it finds a mistake, so that others are found too.
func toAgent(f *conf.Agent) (agent.Config, error) {
	lanes, err := laneRules(f.Lanes)
	windows, mistakes := linkWindows(f.Link.Windows)
	err = errors.Join(err, mistakes)
	cfg := agent.Config{
		Device:  f.Device,
		Labels:  f.Labels,
		DataDir: f.DataDir,
		Socket: agent.SocketConfig{
			Path: f.Socket.Path, Mode: fs.FileMode(f.Socket.Mode), Group: f.Socket.Group,
			MaxPayload: int64(f.Socket.MaxPayload), MaxInflight: int64(f.Socket.MaxInflight),
		},
		Hub: agent.HubConfig{URLs: f.Hub.URLs, Creds: f.Hub.Creds, CA: f.Hub.CA},
		Spool: agent.SpoolConfig{
			MaxBytes: int64(f.Spool.MaxBytes), KeepFree: max(int64(f.Spool.KeepFree), 1), // 0 in Config is the default
			WhenFull: f.Spool.WhenFull, MaxAge: time.Duration(f.Spool.MaxAge), CommitDelay: time.Duration(f.Spool.CommitDelay),
			Order: f.Spool.Order, FreshShare: int(f.Spool.FreshShare), Durability: f.Spool.Durability,
		},
		Lanes: lanes,
		Link: agent.LinkConfig{
			Class: f.Link.Class, MaxRate: int64(f.Link.MaxRate), Flush: time.Duration(f.Link.Flush),
			DailyBytes: int64(f.Link.DailyBytes), Windows: windows,
		},
		Access: make([]agent.AccessRule, len(f.Access)),
		MQTT: agent.MQTTConfig{
			Listen: f.MQTT.Listen, TLSCert: f.MQTT.TLS.Cert, TLSKey: f.MQTT.TLS.Key,
			UsersFile: f.MQTT.UsersFile, ACLFile: f.MQTT.ACLFile,
		},
		Syslog:  agent.SyslogConfig{Socket: f.Syslog.Socket},
		Metrics: agent.MetricsConfig{Listen: f.Metrics.Listen},
		Version: cli.Version(version),
		Level:   f.Log.Level.Slog(),
	}
	if cfg.Spool.CommitDelay == 0 {
		cfg.Spool.CommitDelay = -1 // 0 in Config is the default
	}
	return cfg, err
}

func laneRules(in []conf.LaneRule) (out []agent.LaneRule, mistakes error) {
	for i, r := range in {
		l, err := wire.ParseLane(r.Lane)
		if err != nil {
			mistakes = errors.Join(mistakes, fmt.Errorf("lanes[%d].lane: %w", i, err))
		}
		out = append(out, agent.LaneRule{Match: r.Match, Lane: l})
	}
	return out, mistakes
}

func linkWindows(in []conf.Window) (out []agent.LinkWindow, mistakes error) {
	for i, w := range in {
		win := agent.LinkWindow{Class: w.Class, Cron: w.Cron, For: time.Duration(w.For)}
		for _, name := range w.Lanes {
			l, err := wire.ParseLane(name)
			if err != nil {
				mistakes = errors.Join(mistakes, fmt.Errorf("link.windows[%d].lanes: %w", i, err))
			}
			win.Lanes = append(win.Lanes, l)
		}
		out = append(out, win)
	}
	return out, mistakes
}
