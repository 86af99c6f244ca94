package admin

import (
	"encoding/json"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// NewCommand is the body of POST /v1/devices/{device}/commands and, with Labels,
// of POST /v1/commands. One of Payload, PayloadB64 and JSON may be set.
type NewCommand struct {
	ID         string            `json:"id,omitempty"` // "": drawn; the same one again is the same command
	Subject    string            `json:"subject"`
	Payload    string            `json:"payload,omitempty"`
	PayloadB64 []byte            `json:"payload_b64,omitempty"`
	JSON       json.RawMessage   `json:"json,omitempty"`
	TTL        string            `json:"ttl,omitempty"`    // duration; "": commands.ttl
	Labels     map[string]string `json:"labels,omitempty"` // of the devices that get it, as they are now
}

// Command is GET /v1/commands/{id}.
type Command struct {
	ID         string            `json:"id"`
	Device     string            `json:"device"`
	Group      string            `json:"group,omitempty"` // id of the group that it is of
	Subject    string            `json:"subject"`
	State      wire.CommandState `json:"state"`
	Payload    []byte            `json:"payload_b64,omitempty"` // left out of lists
	Sent       time.Time         `json:"sent"`
	Expires    time.Time         `json:"expires"`
	Delivered  time.Time         `json:"delivered,omitzero"` // durable at the device
	Settled    time.Time         `json:"settled,omitzero"`
	Deliveries int               `json:"deliveries,omitempty"` // to programs
	Cancelling bool              `json:"cancelling,omitempty"` // asked for, while the device has it
	Reason     string            `json:"reason,omitempty"`
	Result     []byte            `json:"result_b64,omitempty"` // what the program returned
}

// Commands is GET /v1/commands?device=&state=&group=&after=&limit=: one page,
// oldest first.
type Commands struct {
	Commands []Command `json:"commands"`
	Next     string    `json:"next,omitempty"` // value of after for the next page
}

// CommandGroup is what POST /v1/commands answers, and GET /v1/commands/groups/{id}.
type CommandGroup struct {
	ID      string                    `json:"id"`
	Labels  map[string]string         `json:"labels"`
	Subject string                    `json:"subject"`
	Sent    time.Time                 `json:"sent"`
	Devices int                       `json:"devices"` // that it was sent to
	States  map[wire.CommandState]int `json:"states"`
	// Complete says that every device with the labels has been sent to. If the hub
	// died before, send the same id again: it goes on.
	Complete bool              `json:"complete"`
	Missed   int               `json:"missed,omitempty"`  // devices that have max_pending commands already
	Refused  map[string]string `json:"refused,omitempty"` // the first of them, with the reason
}
