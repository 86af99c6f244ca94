package hub

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/commands"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// KeyError says which key of hub.yaml is wrong, and what to write instead.
type KeyError struct {
	Key string // "nats.listen", "routes[0].prefix"
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

// ErrNotAvailable marks keys that are known and not built yet.
var ErrNotAvailable = errors.New("not available in this version")

// problems collects KeyErrors.
type problems []error

func (p *problems) add(key, format string, args ...any) {
	*p = append(*p, &KeyError{Key: key, Err: fmt.Errorf(format, args...)})
}

func (p *problems) later(key, instead string) {
	p.add(key, "%w; %s", ErrNotAvailable, instead)
}

// Validate reports everything that is wrong with c: nil, or *KeyErrors joined.
func (c Config) Validate() error {
	c = c.withDefaults()
	var p problems
	c.checkListeners(&p)
	c.checkStore(&p)
	c.checkRoutes(&p)
	c.checkWebhooks(&p)
	c.checkCommands(&p)
	c.checkLater(&p)
	return errors.Join(p...)
}

func (c *Config) checkListeners(p *problems) {
	switch c.Auth.Mode {
	case AuthAuto, AuthOpen:
	case AuthRequired:
		p.add("auth.mode", "credentials are %w; use auto or open", ErrNotAvailable)
	default:
		p.add("auth.mode", "%q is not one of auto, required, open", c.Auth.Mode)
	}
	if remote := checkListen(p, "nats.listen", c.NATS.Listen); remote && len(c.NATS.URLs) == 0 && c.Auth.Mode != AuthOpen {
		p.add("nats.listen", "%s can be reached by others, and credentials are %w; listen on 127.0.0.1, or set auth.mode: open to let everybody in",
			c.NATS.Listen, ErrNotAvailable)
	}
	if checkListen(p, "http.listen", c.HTTP.Listen) {
		p.add("http.listen", "%s can be reached by others, and TLS and tokens are %w; listen on 127.0.0.1", c.HTTP.Listen, ErrNotAvailable)
	}
}

// checkListen reports whether others can reach the address: without
// credentials whoever connects may read and write everything.
func checkListen(p *problems, key, addr string) (remote bool) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		p.add(key, "%q is not host:port, such as 127.0.0.1:4222", addr)
		return false
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		p.add(key, "port %q is not 0 to 65535", port)
		return false
	}
	return !loopback(host)
}

// loopback does not resolve names: the answer could change after the check.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c *Config) checkStore(p *problems) {
	if c.NATS.MaxStore.Percent > 0 {
		p.add("nats.max_store", "a share of what? write a size such as 20GiB, or auto for 70%% of the free space")
	}
	if c.NATS.Replicas < 1 || c.NATS.Replicas > 5 {
		p.add("nats.replicas", "%d is not 1 to 5", c.NATS.Replicas)
	} else if c.NATS.Replicas > 1 && len(c.NATS.URLs) == 0 {
		p.add("nats.replicas", "the embedded server is one; name a cluster in nats.urls for %d replicas", c.NATS.Replicas)
	}
	if c.NATS.Creds != "" && len(c.NATS.URLs) == 0 {
		p.add("nats.creds", "is for nats.urls; remove it, or name the cluster")
	}
	for i, u := range c.NATS.URLs {
		if strings.TrimSpace(u) == "" {
			p.add(fmt.Sprintf("nats.urls[%d]", i), "is empty; write nats://host:4222")
		}
	}
	c.NATS.MaxStore.check(p, "nats.max_store")
	c.Blocks.MaxBytes.check(p, "blocks.max_bytes")
	c.Dead.MaxBytes.check(p, "dead.max_bytes")
	positive(p, "blocks.retain", c.Blocks.Retain)
	positive(p, "dead.max_age", c.Dead.MaxAge)
	share := c.Blocks.MaxBytes.Percent + c.Dead.MaxBytes.Percent + c.Commands.MaxBytes.Percent
	for _, r := range c.Routes {
		if !r.packed() {
			share += r.MaxBytes.Percent
		}
	}
	if share > 100 {
		p.add("nats.max_store", "the shares of blocks, routes, dead and commands add up to %d%%; lower one max_bytes", share)
	}
}

func positive(p *problems, key string, d time.Duration) {
	if d < time.Second {
		p.add(key, "%s is less than a second", d)
	}
}

func (c *Config) checkCommands(p *problems) {
	m := c.Commands
	positive(p, "commands.ttl", m.TTL)
	if m.TTL > commands.MaxTTL {
		p.add("commands.ttl", "%s is more than the %s that are possible", m.TTL, commands.MaxTTL)
	}
	positive(p, "commands.ack_wait", m.AckWait)
	m.MaxBytes.check(p, "commands.max_bytes")
	if m.MaxDeliver < 1 || m.MaxDeliver > 1_000_000 {
		p.add("commands.max_deliver", "%d is not 1 to 1000000", m.MaxDeliver)
	}
	if m.MaxPending < 1 || m.MaxPending > 100_000 {
		p.add("commands.max_pending", "%d is not 1 to 100000", m.MaxPending)
	}
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c *Config) checkRoutes(p *problems) {
	streams, prefixes := map[string]int{}, map[string]int{}
	c.checkShadowed(p)
	for i, r := range c.Routes {
		key := func(k string) string { return fmt.Sprintf("routes[%d].%s", i, k) }
		if err := checkFilter(r.Match); err != nil {
			p.add(key("match"), "%v", err)
		}
		positive(p, key("max_age"), r.MaxAge)
		r.MaxBytes.check(p, key("max_bytes"))
		if r.packed() {
			r.checkPacked(p, key)
			continue // it has no stream
		}
		switch j, twice := streams[r.Stream]; {
		case !streamName.MatchString(r.Stream):
			p.add(key("stream"), "%q is not 1 to 64 of A-Z a-z 0-9 _ -", r.Stream)
		case store.Reserved(r.Stream):
			p.add(key("stream"), "%s is reserved; choose another name", r.Stream)
		case twice:
			p.add(key("stream"), "%s is taken by routes[%d]; a stream has one route", r.Stream, j)
		}
		streams[r.Stream] = i
		checkPrefix(p, key("prefix"), r.Prefix, prefixes)
		prefixes[r.Prefix] = i
		if r.Discard != "old" && r.Discard != "new" {
			p.add(key("discard"), "%q is not one of old, new", r.Discard)
		}
		if r.Compression != "s2" && r.Compression != "none" {
			p.add(key("compression"), "%q is not one of s2, none", r.Compression)
		}
	}
}

func (c *Config) checkWebhooks(p *problems) {
	names := map[string]int{}
	for i, h := range c.Webhooks {
		key := func(k string) string { return fmt.Sprintf("webhooks[%d].%s", i, k) }
		h.Check(func(k, problem string) { p.add(key(k), "%s", problem) })
		if j, twice := names[h.Name]; twice {
			p.add(key("name"), "%s is taken by webhooks[%d]", h.Name, j)
		}
		names[h.Name] = i
		at := slices.IndexFunc(c.Routes, func(r Route) bool { return r.Stream == h.Stream && *r.Unpack })
		if at < 0 {
			p.add(key("stream"), "%q is not the stream of a route that is unpacked", h.Stream)
		} else if h.Filter != "" && h.Filter != ">" {
			if err := checkFilter(h.Filter); err != nil {
				p.add(key("filter"), "%v", err)
			} else if !within(h.Filter, c.Routes[at].Prefix) {
				p.add(key("filter"), "%s: subjects in %s begin with %s., such as %[3]s.*.alarm.>", h.Filter, h.Stream, c.Routes[at].Prefix)
			}
		}
	}
}

func checkPrefix(p *problems, key, prefix string, taken map[string]int) {
	if err := wire.CheckSubject(prefix); err != nil {
		p.add(key, "%v", err)
		return
	}
	first, _, _ := strings.Cut(prefix, ".")
	if first == "fp" || first == "dead" || first == "retry" || strings.HasPrefix(first, "_INBOX") {
		p.add(key, "%s is reserved; choose another prefix", first)
	}
	for other, i := range taken {
		if strings.HasPrefix(prefix+".", other+".") || strings.HasPrefix(other+".", prefix+".") {
			p.add(key, "%s overlaps %s of routes[%d]; a subject belongs to one stream", prefix, other, i)
		}
	}
}

// checkFilter accepts a subject whose tokens may be *, the last one >.
func checkFilter(f string) error {
	tokens := strings.Split(f, ".")
	for i, t := range tokens {
		switch {
		case t == ">" && i == len(tokens)-1:
			tokens[i] = "x"
		case t == "*":
			tokens[i] = "x"
		}
	}
	if err := wire.CheckSubject(strings.Join(tokens, ".")); err != nil {
		return fmt.Errorf("filter %q: %w; * stands for one token, > for the rest", f, err)
	}
	return nil
}

// checkLater refuses what is known and not built yet: a key that is silently
// ignored is a promise broken.
func (c *Config) checkLater(p *problems) {
	if c.HTTP.TLS != (HTTPTLS{}) {
		p.later("http.tls", "listen on 127.0.0.1 behind a proxy that speaks TLS")
	}
	if c.HTTP.TokenFile != "" {
		p.later("http.token_file", "remove it")
	}
	if c.HTTP.MetricsOpen {
		p.later("http.metrics_open", "remove it; /metrics is open")
	}
	if !reflect.ValueOf(c.NATS.TLS).IsZero() {
		p.later("nats.tls", "remove it")
	}
}
