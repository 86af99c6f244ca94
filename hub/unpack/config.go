package unpack

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Config configures an Unpacker. Store, Routes and Instance are required.
type Config struct {
	Store    *store.Store // EnsureStreams has created every stream
	Routes   Table
	Instance string // of this hub process, random

	Retain          time.Duration // how long a block stays at least; 0: 24 h
	RetainEvery     time.Duration // how often old blocks are looked for; 0: 1 min
	KeepClosed      time.Duration // how long the mark of a closed epoch stays; 0: 30 days
	LeaseRenew      time.Duration // 0: 1 s; a lease unchanged for three times as long is taken over
	CheckpointEvery time.Duration // at most so long unsaved; 0: 1 s

	OnMessages func(stream string, n int) // after n messages were stored
	OnDead     func(reason string)        // after a message went to DEAD

	// Fault is called at every labelled step (Points). A returned error takes the
	// place of the step's own. Tests only.
	Fault func(point string) error
	Log   *slog.Logger // nil: discard
	Now   func() time.Time
}

// Points lists the labels that Config.Fault sees.
func Points() []string {
	return []string{
		"lease:acquire", "lease:renew", "lease:release",
		"unpack:resume", "unpack:read", "unpack:publish", "unpack:commit", "unpack:checkpoint", "unpack:poison",
		"backfill:begin", "backfill:quiet", "backfill:end",
		"gap:read", "gap:publish", "gap:commit", "gap:checkpoint",
		"retain:scan", "retain:mark", "retain:purge",
	}
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Store == nil:
		return c, errors.New("unpack: no store")
	case c.Instance == "":
		return c, errors.New("unpack: no instance id")
	}
	if n := c.Store.MaxPayload(); n < PartBytes+partRoom {
		return c, fmt.Errorf("unpack: the NATS server takes messages of at most %d bytes; set its max_payload to 1MB or more", n)
	}
	for i, r := range c.Routes {
		if r.Match == "" || !r.Packed && (r.Stream == "" || r.Prefix == "") {
			return c, fmt.Errorf("unpack: route %d lacks match, stream or prefix", i)
		}
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.Retain, 24*time.Hour)
	def(&c.RetainEvery, time.Minute)
	def(&c.KeepClosed, 30*24*time.Hour)
	def(&c.LeaseRenew, time.Second)
	def(&c.CheckpointEvery, time.Second)
	if c.OnMessages == nil {
		c.OnMessages = func(string, int) {}
	}
	if c.OnDead == nil {
		c.OnDead = func(string) {}
	}
	if c.Fault == nil {
		c.Fault = func(string) error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}
