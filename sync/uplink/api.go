package uplink

import (
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Source is the spool as the uplink sees it.
type Source interface {
	Flows() []wire.FlowHeld
	Read(f wire.Flow, from uint64) ([]byte, error)
	Received(f wire.Flow, set wire.Ranges) error
	Updates() <-chan struct{}
}

// Pins are the two durable facts of the session.
type Pins interface {
	HubID() string
	SetHubID(id string) error
	Token() string
	SetToken(t string) error
}

// Status is a snapshot for people.
type Status struct {
	Up        bool
	Hub       string // address, and instance when known
	Since     time.Time
	RTT       time.Duration
	LastError string
}
