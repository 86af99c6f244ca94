package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/commands"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// openCommands makes what brings commands to devices.
func (p *parts) openCommands() (err error) {
	cfg, m := p.hub.cfg, p.hub.metrics
	p.commands, err = commands.New(commands.Config{
		Store: p.store, Conn: p.conn, HubID: p.hubID, Devices: p.registry, Letters: p.dead, Desired: p.desired,
		TTL: cfg.Commands.TTL, AckWait: cfg.Commands.AckWait, MaxDeliver: cfg.Commands.MaxDeliver,
		OnTransition: func(to wire.CommandState) { m.command(to).Inc() },
		Rejected:     func(reason string) { m.rejected(reason).Inc() },
		Fault:        cfg.Fault, Log: cfg.Log, Now: cfg.Now,
	})
	return err
}

const (
	maxWaits       = 256              // requests that wait for a command at the same time
	maxWait        = 10 * time.Minute // of one of them
	groupFor       = 15 * time.Minute // that sending to many may take
	maxCommandBody = 2 << 20          // a payload at its limit, written in the least favourable way
)

// commandStates are the values of command_transitions_total{to}.
var commandStates = []wire.CommandState{
	wire.CommandPending, wire.CommandDelivered, wire.CommandAcked, wire.CommandFailed, wire.CommandExpired, wire.CommandCancelled,
}

// checkCommand looks at what a command is made of.
func checkCommand(n admin.NewCommand, group bool) (payload []byte, ttl time.Duration, err error) {
	payload, bodies := []byte(n.Payload), 0
	for _, set := range []bool{n.Payload != "", n.PayloadB64 != nil, n.JSON != nil} {
		if set {
			bodies++
		}
	}
	if n.PayloadB64 != nil {
		payload = n.PayloadB64
	} else if n.JSON != nil {
		payload = n.JSON
	}
	maxID := 64
	if group {
		maxID = commands.MaxGroupID
	}
	if n.TTL != "" {
		if ttl, err = time.ParseDuration(n.TTL); err != nil || ttl < time.Second || ttl > commands.MaxTTL {
			return nil, 0, fmt.Errorf("ttl %.40q is not a duration from 1s to %s, such as 1h", n.TTL, commands.MaxTTL)
		}
	}
	switch {
	case bodies > 1:
		return nil, 0, errors.New("only one of payload, payload_b64 and json can be set")
	case n.ID != "" && (wire.CheckDevice(n.ID) != nil || len(n.ID) > maxID):
		return nil, 0, fmt.Errorf("id %.80q is not 1 to %d of A-Z a-z 0-9 _ -", n.ID, maxID)
	case len(n.Subject) == 0:
		return nil, 0, errors.New("subject is missing: what the device's programs subscribe to, such as valve.set")
	}
	return payload, ttl, wire.CheckSubject(n.Subject)
}

// sendCommand stores a command for one device.
func (p *parts) sendCommand(ctx context.Context, device string, n admin.NewCommand, payload []byte, ttl time.Duration) (admin.Command, error) {
	return p.commands.Send(ctx, commands.NewCommand{ID: n.ID, Device: device, Subject: n.Subject, Payload: payload, TTL: ttl})
}

// commandProblem says which answer an error is.
func (h *Hub) commandProblem(err error) (status int, code, detail string) {
	switch {
	case errors.Is(err, commands.ErrUnknown):
		return 404, "not_found", "there is no such command or group (any more); GET /v1/commands lists the commands that are known"
	case errors.Is(err, commands.ErrTaken), errors.Is(err, commands.ErrOther), errors.Is(err, commands.ErrDiffers):
		return 409, "id_taken", strings.TrimPrefix(err.Error(), "commands: ") + "; choose another id"
	case errors.Is(err, store.ErrSubjectFull):
		return 429, "max_pending", fmt.Sprintf("the device has %d commands that are not settled, as many as commands.max_pending allows; wait until it has done some, cancel some, or raise it", h.cfg.Commands.MaxPending)
	case errors.Is(err, store.ErrFull):
		return 507, "full", "there is no room for commands: " + h.whenFull(store.Commands)
	case errors.Is(err, commands.ErrManyCancels):
		return 429, "quota", strings.TrimPrefix(err.Error(), "commands: ")
	case errors.Is(err, commands.ErrLoading):
		return 503, "starting", "the hub has just started and still reads the list of devices; try again in a moment, with the same id"
	}
	return 503, "unavailable", strings.TrimPrefix(err.Error(), "commands: ") + "; try again, with the same id"
}
