package hub

import (
	"context"
	"errors"
)

// Hub is one hub instance.
type Hub struct {
	cfg Config // with defaults
}

// New checks cfg. Nothing is opened before Run.
func New(cfg Config) (*Hub, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Hub{cfg: cfg.WithDefaults()}, nil
}

// Run serves until ctx ends or something fails that a restart may mend.
func (h *Hub) Run(ctx context.Context) error { return errors.New("hub: not built yet") }
