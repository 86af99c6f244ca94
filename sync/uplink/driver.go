package uplink

import "context"

// Uplink runs one device's sessions with its hub.
type Uplink struct{ cfg Config }

// New returns an uplink; Run does its work.
func New(cfg Config) *Uplink { return &Uplink{cfg: cfg} }

// Run sends until ctx ends; it returns when nothing of it runs any more.
func (u *Uplink) Run(ctx context.Context) error { panic("uplink: run") }

// Kick retries at once: the host's link has come up.
func (u *Uplink) Kick() {}

// Changed sends a heartbeat soon: the agent's state has changed.
func (u *Uplink) Changed() {}

// Status is the current state, for people.
func (u *Uplink) Status() Status { return Status{} }

// ResetHub forgets the pinned hub: the next one that answers is accepted.
func (u *Uplink) ResetHub() error { return nil }
