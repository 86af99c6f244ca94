package hub

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/webhook"
)

// keys lists the keys that Validate names, sorted.
func keys(t *testing.T, err error) (out []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var k *KeyError
		if !errors.As(e, &k) {
			t.Fatalf("not a KeyError: %v", e)
		}
		out = append(out, k.Key)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestZeroConfigIsTheDocumentedDefault(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Fatal(err)
	}
	c := Config{}.withDefaults()
	r := c.Routes[0]
	for got, want := range map[string]string{
		c.DataDir: "/var/lib/fieldpost-hub", c.NATS.Listen: "127.0.0.1:4222", c.HTTP.Listen: "127.0.0.1:8420", c.Auth.Mode: "auto",
		c.Blocks.MaxBytes.String(): "30%", c.Dead.MaxBytes.String(): "10%", r.MaxBytes.String(): "50%", c.NATS.MaxStore.String(): "auto",
		r.Match: ">", r.Stream: "EDGE", r.Prefix: "edge", r.Discard: "old", r.Compression: "s2",
	} {
		if got != want {
			t.Errorf("default %q, want %q", got, want)
		}
	}
	if !*r.Unpack || c.Blocks.Retain != 24*time.Hour || r.MaxAge != 168*time.Hour || c.Dead.MaxAge != 720*time.Hour || c.NATS.Replicas != 1 {
		t.Errorf("defaults: %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Errorf("the defaults written out: %v", err)
	}
}

func TestDefaultsShareNothing(t *testing.T) {
	given := Config{Routes: []Route{{Stream: "A"}}}
	given.withDefaults()
	if given.Routes[0].Prefix != "" || given.Routes[0].Unpack != nil {
		t.Errorf("the caller's routes were changed: %+v", given.Routes)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	route := func(r Route) func(*Config) {
		return func(c *Config) { c.Routes = []Route{{Match: "ok.>", Stream: "OK"}, r} }
	}
	hook := func(h webhook.Hook) func(*Config) { return func(c *Config) { c.Webhooks = []webhook.Hook{h} } }
	tests := []struct {
		change func(*Config)
		want   string // keys
		text   string // in the message
	}{
		{func(c *Config) { c.NATS.Listen = "0.0.0.0:4222" }, "nats.listen", "credentials are not available in this version; listen on 127.0.0.1"},
		{func(c *Config) { c.NATS.Listen = ":4222" }, "nats.listen", "auth.mode: open"},
		{func(c *Config) { c.NATS.Listen, c.Auth.Mode = "0.0.0.0:4222", AuthOpen }, "", ""},
		{func(c *Config) { c.NATS.Listen = "hub.example:4222" }, "nats.listen", ""},
		{func(c *Config) { c.NATS.Listen = "[::1]:0" }, "", ""},
		{func(c *Config) { c.NATS.Listen = "4222" }, "nats.listen", "host:port"},
		{func(c *Config) { c.NATS.Listen = "127.0.0.1:99999" }, "nats.listen", "port"},
		{func(c *Config) { c.HTTP.Listen, c.Auth.Mode = "0.0.0.0:8420", AuthOpen }, "http.listen", "TLS and tokens"},
		{func(c *Config) { c.Auth.Mode = AuthRequired }, "auth.mode", "not available in this version"},
		{func(c *Config) { c.Auth.Mode = "none" }, "auth.mode", "auto, required, open"},
		{func(c *Config) { c.NATS.MaxStore.Percent = 50 }, "nats.max_store", ""},
		{func(c *Config) { c.NATS.MaxStore.Bytes = -1 }, "nats.max_store", ""},
		{func(c *Config) { c.NATS.Replicas = 3 }, "nats.replicas", "nats.urls"},
		{func(c *Config) { c.NATS.Replicas, c.NATS.URLs = 3, []string{"nats://c:4222"} }, "", ""},
		{func(c *Config) { c.NATS.Replicas = 9 }, "nats.replicas", ""},
		{func(c *Config) { c.NATS.URLs = []string{" "} }, "nats.urls[0]", ""},
		{func(c *Config) { c.NATS.Creds = "x" }, "nats.creds", ""},
		{func(c *Config) { c.NATS.TLS.CA = "x" }, "nats.tls", "not available"},
		{func(c *Config) { c.Blocks.MaxBytes = Size{Percent: 45} }, "nats.max_store", "110%"},
		{func(c *Config) { c.Blocks.Retain = -time.Hour }, "blocks.retain", ""},
		{func(c *Config) { c.Dead.MaxAge = time.Millisecond }, "dead.max_age", ""},
		{func(c *Config) { c.Dead.MaxBytes = Size{Bytes: 5, Percent: 5} }, "dead.max_bytes", ""},
		{route(Route{Stream: "OK", Prefix: "x"}), "nats.max_store routes[1].stream", "taken by routes[0]"},
		{route(Route{Stream: "BLOCKS", Prefix: "x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", "reserved"},
		{route(Route{Stream: "KV_x", Prefix: "x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", "reserved"},
		{route(Route{Stream: "RETRY", Prefix: "x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", "reserved"},
		{route(Route{Stream: "Advisories", Prefix: "x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", "reserved"},
		{route(Route{Stream: "gap", Prefix: "x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", "reserved"},
		{route(Route{Stream: "a.b", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].stream", ""},
		{route(Route{Stream: "B", Prefix: "fp.x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].prefix", "reserved"},
		{route(Route{Stream: "B", Prefix: "retry", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].prefix", "reserved"},
		{route(Route{Stream: "B", Prefix: "ok.more", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].prefix", "overlaps"},
		{route(Route{Stream: "B", Prefix: "okay", MaxBytes: Size{Bytes: 1 << 20}}), "", ""},
		{route(Route{Stream: "B", Prefix: "x.*", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].prefix", ""},
		{route(Route{Stream: "B", Match: ">.x", MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].match", ""},
		{route(Route{Stream: "B", Match: "alarm.*.>", MaxBytes: Size{Bytes: 1 << 20}}), "", ""},
		{route(Route{Stream: "B", Discard: "none", Compression: "zip", MaxAge: 1, MaxBytes: Size{Bytes: 1 << 20}}), "routes[1].compression routes[1].discard routes[1].max_age", ""},
		{func(c *Config) {
			c.Commands = Commands{TTL: time.Hour, AckWait: time.Minute, MaxDeliver: 3, MaxPending: 5}
		}, "", ""},
		{func(c *Config) {
			c.Commands = Commands{TTL: 1000 * time.Hour, AckWait: 1, MaxDeliver: -1, MaxPending: -1, MaxBytes: Size{Percent: 101}}
		}, "commands.ack_wait commands.max_bytes commands.max_deliver commands.max_pending commands.ttl nats.max_store", "720h"},
		{hook(webhook.Hook{Name: "a", URL: "https://x/y"}), "", ""},
		{hook(webhook.Hook{Name: "a b", URL: "ftp://x"}), "webhooks[0].name webhooks[0].url", "https://"},
		{hook(webhook.Hook{Name: "a", URL: "http://x", Batch: 5000, Wait: time.Hour, Timeout: 1, MaxDeliver: -1}),
			"webhooks[0].batch webhooks[0].max_deliver webhooks[0].timeout webhooks[0].wait", ""},
		{hook(webhook.Hook{Name: "a", URL: "http://x", Stream: "NONE"}), "webhooks[0].stream", "not the stream of a route"},
		{hook(webhook.Hook{Name: "a", URL: "http://x", Filter: "alarm.>"}), "webhooks[0].filter", "begin with edge."},
		{hook(webhook.Hook{Name: "a", URL: "http://x", Filter: "edge.>.x"}), "webhooks[0].filter", ""},
		{func(c *Config) {
			c.Webhooks = []webhook.Hook{{Name: "a", URL: "http://x"}, {Name: "a", URL: "http://y"}}
		}, "webhooks[1].name", "taken by webhooks[0]"},
		{func(c *Config) { c.HTTP = HTTP{TLS: HTTPTLS{Cert: "x"}, TokenFile: "y", MetricsOpen: true} }, "http.metrics_open http.tls http.token_file", "not available"},
	}
	for i, tt := range tests {
		var c Config
		tt.change(&c)
		err := c.Validate()
		if got := strings.Join(keys(t, err), " "); got != tt.want {
			t.Errorf("%d: keys %q, want %q (%v)", i, got, tt.want, err)
		}
		if err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%d: %v lacks %q", i, err, tt.text)
		}
		if _, newErr := New(c); (newErr == nil) != (err == nil) {
			t.Errorf("%d: New: %v", i, newErr)
		}
	}
}

func TestSizeOf(t *testing.T) {
	for s, want := range map[Size]int64{{Percent: 30}: 300, {Bytes: 7}: 7, {Percent: 100}: 1000, {}: 0} {
		if got := s.Of(1000); got != want {
			t.Errorf("%v of 1000 is %d, want %d", s, got, want)
		}
	}
	if got := (Size{Percent: 70}).Of(1<<62 - 1); got <= 0 || got > 1<<62 {
		t.Errorf("a large share overflows: %d", got)
	}
	for s, want := range map[Size]string{{Bytes: 1 << 20}: "1MiB", {Bytes: 1000}: "1000", {Bytes: 3 << 40}: "3TiB"} {
		if s.String() != want {
			t.Errorf("%d bytes print as %s", s.Bytes, s)
		}
	}
}
