package deadletter

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Config configures Letters. Store and Streams are required.
type Config struct {
	Store   *store.Store // EnsureStreams has created every stream
	Streams []string     // of the routes

	// AckWait is how long an instance may take for a batch before another one
	// tries; 0: 30 s.
	AckWait time.Duration
	OnDead  func(reason string) // after a letter was stored

	// Fault is called at every labelled step (Points). A returned error takes the
	// place of the step's own. Tests only.
	Fault func(point string) error
	Log   *slog.Logger // nil: discard
}

// Points lists the labels that Config.Fault sees.
func Points() []string {
	return []string{
		"dead:fetch", "dead:read", "dead:claim", "dead:claimed", "dead:publish", "dead:published", "dead:ack", "dead:return",
		"retry:read", "retry:claim", "retry:claimed", "retry:publish", "retry:published", "dead:settle", "dead:remove",
	}
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || len(c.Streams) == 0 {
		return c, errors.New("deadletter: no store, or no streams")
	}
	c.Streams = append(slices.Clone(c.Streams), store.Retry)
	if c.AckWait == 0 {
		c.AckWait = 30 * time.Second
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
	return c, nil
}
