package agent

import (
	"context"
	"errors"
)

const (
	classUnmetered = "unmetered"
	classMetered   = "metered"
)

// Agent is one agent process.
type Agent struct {
	cfg    Config
	device string
}

// New checks the configuration and finds the device id. Nothing is opened yet.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	device, err := cfg.device()
	if err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, device: device}, nil
}

// Device is the id under which the hub knows this agent.
func (a *Agent) Device() string { return a.device }

// Run serves until ctx ends, then finishes what was accepted and returns nil.
func (a *Agent) Run(ctx context.Context) error { return errors.New("agent: not built yet") }
