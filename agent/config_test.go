package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestValidate(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the zero value is the default: %v", err)
	}
	for key, change := range map[string]func(*Config){
		"device":               func(c *Config) { c.Device = "a.b" },
		"socket.path":          func(c *Config) { c.Socket.Path = "/" + strings.Repeat("p", 120) },
		"socket.mode":          func(c *Config) { c.Socket.Mode = 0o10660 },
		"socket.max_payload":   func(c *Config) { c.Socket.MaxPayload = 9 << 20 },
		"socket.max_inflight":  func(c *Config) { c.Socket.MaxInflight = 1000 },
		"hub.urls":             func(c *Config) { c.Hub.URLs = []string{"http://x"} },
		"spool.max_bytes":      func(c *Config) { c.Spool.MaxBytes = 1000 },
		"spool.keep_free":      func(c *Config) { c.Spool.KeepFree = -1 },
		"spool.when_full":      func(c *Config) { c.Spool.WhenFull = "panic" },
		"spool.max_age":        func(c *Config) { c.Spool.MaxAge = -time.Hour },
		"spool.order":          func(c *Config) { c.Spool.Order = "lifo" },
		"spool.fresh_share":    func(c *Config) { c.Spool.FreshShare = 101 },
		"spool.durability":     func(c *Config) { c.Spool.Durability = "none" },
		"spool.key_file":       func(c *Config) { c.Spool.Keys = [][]byte{{1}} },
		"lanes[1].match":       func(c *Config) { c.Lanes = []LaneRule{{"a", wire.Bulk}, {"a.>.b", wire.Bulk}} },
		"lanes[0].lane":        func(c *Config) { c.Lanes = []LaneRule{{"a", 7}} },
		"link.class":           func(c *Config) { c.Link.Class = "free" },
		"link.max_rate":        func(c *Config) { c.Link.MaxRate = -1 },
		"link.flush":           func(c *Config) { c.Link.Flush = -1 },
		"link.daily_bytes":     func(c *Config) { c.Link.DailyBytes = -1 },
		"link.windows[0].cron": func(c *Config) { c.Link.Windows = make([]LinkWindow, 1) },
		"link.windows[0]":      func(c *Config) { c.Link.Windows = []LinkWindow{{Cron: "0 1 * * *", For: time.Hour}} },
		"link.windows[0].class": func(c *Config) {
			c.Link.Windows = []LinkWindow{{"a b", []wire.Lane{wire.Bulk}, "0 1 * * *", time.Hour}}
		},
		"access":         func(c *Config) { c.Access = make([]AccessRule, 1) },
		"mqtt":           func(c *Config) { c.MQTT.Listen = ":1883" },
		"syslog.socket":  func(c *Config) { c.Syslog.Socket = "/dev/log" },
		"metrics.listen": func(c *Config) { c.Metrics.Listen = ":9" },
	} {
		var c Config
		change(&c)
		err := c.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("New, %s: %v", key, err)
		}
	}
	both := Config{Device: "?", Metrics: MetricsConfig{Listen: ":9"}}
	if err := both.Validate(); !strings.Contains(err.Error(), "device: ") || !strings.Contains(err.Error(), "metrics.listen: ") {
		t.Errorf("both faults are named: %v", err)
	}
}

func TestDeviceFromHost(t *testing.T) {
	for host, want := range map[string]string{
		"press-04":               "press-04",
		"press_04.plant.example": "press_04",
		"Prüfstand 7":            "Pr-fstand-7",
		"localhost":              "",
		"LocalHost.localdomain":  "",
		"":                       "",
		".example":               "",
		"é":                      "",
		strings.Repeat("x", 65):  "",
		strings.Repeat("x", 64):  strings.Repeat("x", 64),
	} {
		got, err := deviceFromHost(host)
		if got != want || (want == "") != errors.Is(err, ErrConfig) {
			t.Errorf("%q: %q %v, want %q", host, got, err, want)
		}
	}
}

func TestFilters(t *testing.T) {
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{">", "a", true}, {">", "a.b", true}, {"a", "a", true}, {"a", "b", false}, {"a", "a.b", false}, {"a.b", "a", false},
		{"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true}, {"a.>", "b.c", false},
		{"*", "a", true}, {"*", "a.b", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"*.b", "a.b", true},
		{"*.*.c", "a.b.c", true}, {"*.>", "a", false}, {"ab", "a", false},
	} {
		if err := wire.CheckFilter(c.filter); err != nil {
			t.Error(err)
		}
		if got := wire.MatchFilter(c.filter, c.subject); got != c.want {
			t.Errorf("%q takes %q: %v", c.filter, c.subject, got)
		}
	}
	for _, f := range []string{"", "a..b", ".", "a.>.b", "a*", ">a", "a b", "a\x00", "\xff", strings.Repeat("x", 256)} {
		if wire.CheckFilter(f) == nil {
			t.Errorf("%q passed", f)
		}
	}
}
