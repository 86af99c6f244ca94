package settings

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Commands is the store of commands, in whose requests and answers the settings ride.
type Commands interface {
	Ask(limit int) wire.CommandRequest
	Take(asked wire.CommandRequest, r *wire.CommandReply) (all bool, err error)
	Updates() <-chan struct{}
}

// Exchange is a store of commands that speaks of settings too.
type Exchange struct {
	Commands
	s       *Store
	updates chan struct{} // capacity 1
}

// Exchange adds the settings to what is said of commands; Run of it has to run.
func (s *Store) Exchange(c Commands) *Exchange {
	return &Exchange{Commands: c, s: s, updates: make(chan struct{}, 1)}
}

// Run passes on what either store has to say, until ctx ends.
func (e *Exchange) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.Commands.Updates():
		case <-e.s.updates:
		}
		wake(e.updates)
	}
}

// Updates receives a value when there is something to say.
func (e *Exchange) Updates() <-chan struct{} { return e.updates }

// Ask is what to say to the hub, in at most limit bytes (0: any number).
func (e *Exchange) Ask(limit int) wire.CommandRequest {
	e.s.mu.Lock()
	report := e.s.durable.report()
	e.s.mu.Unlock()
	if limit <= 0 {
		limit = wire.MaxCommandMessage
	}
	if b, err := json.Marshal(report); err == nil {
		limit = max(1, limit-len(b)-len(`,"desired":`))
	}
	req := e.Commands.Ask(limit)
	req.Desired = &report
	return req
}

// Take makes an answer durable, and puts settings into effect.
func (e *Exchange) Take(asked wire.CommandRequest, r *wire.CommandReply) (all bool, err error) {
	mine := e.s.take(asked.Desired, r.Desired) // first: a trial needs no disk for commands
	all, err = e.Commands.Take(asked, r)
	return all, errors.Join(mine, err)
}
