// Package admin is the hub's HTTP API as its clients see it: the shapes of the
// answers, and the calls that the command line makes.
//
// Every call takes a context and returns either the answer or an error that
// says what to do; *Problem is what the hub itself refused.
//
// Reading order: types.go, client.go, routes.go, tail.go, import.go, dead.go,
// command.go, command_client.go, trace.go, audit.go.
package admin

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Status is GET /v1/status.
type Status struct {
	HubID    string        `json:"hub_id"`
	Version  string        `json:"version"`
	Instance string        `json:"instance"`
	Started  time.Time     `json:"started"`
	Ready    bool          `json:"ready"`
	Reasons  []string      `json:"reasons"`         // why not ready; never null
	Notes    []string      `json:"notes,omitempty"` // what somebody should know although the work is done
	NATS     string        `json:"nats"`            // where agents and back ends connect
	Streams  []Stream      `json:"streams"`
	Routes   []Route       `json:"routes"`
	Devices  DeviceNumbers `json:"devices"`
	Ledger   Ledger        `json:"ledger"`
	Webhooks []Webhook     `json:"webhooks,omitempty"`
}

// Webhook is one webhook.
type Webhook struct {
	Name   string `json:"name"`
	URL    string `json:"url"` // scheme and host; the rest may be secret
	Stream string `json:"stream"`
	Error  string `json:"error,omitempty"` // why it does not get on
}

// Stream is one stream's fill.
type Stream struct {
	Name     string `json:"name"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	MaxBytes int64  `json:"max_bytes"` // -1: no limit of its own
	First    uint64 `json:"first_seq"`
	Last     uint64 `json:"last_seq"`
}

// Route is how far one route has come. A packed one has no stream: its messages
// stay in BLOCKS.
type Route struct {
	Match  string `json:"match"`
	Stream string `json:"stream"`
	Prefix string `json:"prefix"`
	Packed bool   `json:"packed,omitempty"`
	Lag    uint64 `json:"lag_blocks"`
	Lost   uint64 `json:"lost_blocks,omitempty"` // removed from BLOCKS before this stream had them
}

// DeviceNumbers counts the registry.
type DeviceNumbers struct {
	Online  int    `json:"online"`
	Total   int    `json:"total"`
	Backlog uint64 `json:"backlog"`           // messages that they hold, as they last said
	Loading bool   `json:"loading,omitempty"` // the list is still being read: there are more
}

// Ledger is the newest position of BLOCKS.
type Ledger struct {
	Seq uint64 `json:"seq"`
}

// Device is one device as the registry knows it. The registry only shows;
// nothing depends on it.
type Device struct {
	Device     string                      `json:"device"`
	Online     bool                        `json:"online"`
	Since      time.Time                   `json:"since"`   // of online
	Seen       time.Time                   `json:"seen"`    // last heard of
	Created    time.Time                   `json:"created"` // first heard of
	Version    string                      `json:"version"`
	Process    string                      `json:"process"`
	Started    time.Time                   `json:"started,omitzero"` // the process
	Instance   string                      `json:"instance"`         // hub instance of the last session
	Epoch      string                      `json:"epoch,omitempty"`
	Class      string                      `json:"class,omitempty"`
	Every      int                         `json:"every,omitempty"` // seconds between heartbeats
	Backlog    map[string]wire.LaneBacklog `json:"backlog"`
	Disk       Disk                        `json:"disk"`
	Dropped    map[string]uint64           `json:"dropped,omitempty"`
	Quarantine uint64                      `json:"quarantine,omitempty"` // segments
	Labels     map[string]string           `json:"labels,omitempty"`
	Clones     *Clones                     `json:"clones,omitempty"`          // nil: never reported
	Imported   time.Time                   `json:"imported,omitzero"`         // the last file of it was
	Clock      *int64                      `json:"clock_offset_ms,omitempty"` // of its clock before the hub's, at the last heartbeat; nil: it did not say
	Error      *DeviceError                `json:"last_error,omitempty"`
	Links      []Link                      `json:"links,omitempty"` // of one device that is asked for: its last changes, 16 at most, the oldest first
}

// Reasons of a Link. None: it is not known.
const (
	LinkSession    = "session_opened"     // online: the agent opened a session
	LinkHeartbeat  = "heartbeat"          // online: a heartbeat came first
	LinkEnded      = "session_ended"      // offline: the agent said so
	LinkLost       = "connection_lost"    // offline: nothing is connected any more
	LinkSilent     = "heartbeats_stopped" // offline: none came for two and a half times their interval
	LinkHubStarted = "hub_restarted"      // offline: it did not come back after the hub had started
)

// Link is a change between online and offline.
type Link struct {
	At     time.Time `json:"at"` // when the hub knew it, to the second
	Online bool      `json:"online"`
	Reason string    `json:"reason,omitempty"`
}

// Disk is the spool's.
type Disk struct {
	Used int64 `json:"used"`
	Max  int64 `json:"max"`
}

// DeviceError is what last was wrong with a device, or is, as it says itself.
type DeviceError struct {
	Text string    `json:"text"`
	At   time.Time `json:"at"` // by the device's clock
}

// Clones says how often the device came with a state that is not the one it
// left with: a copy of its disk, a restored backup, or a wiped spool.
type Clones struct {
	Reports uint64    `json:"reports"`
	Last    time.Time `json:"last"`
}

// Devices is GET /v1/devices?filter=&sort=&after=&limit=: one page, sorted by device
// unless sort is backlog (most first), oldest or seen (longest ago first).
type Devices struct {
	Devices []Device `json:"devices"`
	Next    string   `json:"next,omitempty"` // value of after for the next page
	Online  int      `json:"online"`         // of all that the filter takes
	Total   int      `json:"total"`
	// Loading says that the hub has just started and still reads the list: there
	// are more devices.
	Loading bool `json:"loading,omitempty"`
}

// Message is one line of GET /v1/tail and GET /v1/messages.
type Message struct {
	Subject    string              `json:"subject"`
	Seq        uint64              `json:"seq"`  // in the route's stream
	Time       time.Time           `json:"time"` // stored
	Headers    map[string][]string `json:"headers,omitempty"`
	Payload    []byte              `json:"-"`                    // payload if UTF-8 without NUL, else payload_b64
	Ack        string              `json:"ack,omitempty"`        // of a group: for POST /v1/ack
	Deliveries uint64              `json:"deliveries,omitempty"` // of a group: 1 the first time
}

// Ack is POST /v1/ack: what became of messages of a group.
type Ack struct {
	Acks   []string `json:"acks"`
	Action string   `json:"action,omitempty"` // ack (default), nak, term or progress
	Delay  string   `json:"delay,omitempty"`  // of nak: a duration such as 10s
	Reason string   `json:"reason,omitempty"` // of term
}

// NewMessage is a stored message as clients see it: without the headers that are
// JetStream's own.
func NewMessage(subject string, headers map[string][]string, payload []byte, seq uint64, stored time.Time) Message {
	m := Message{Subject: subject, Seq: seq, Time: stored.UTC(), Payload: payload}
	for key, values := range headers {
		if strings.HasPrefix(key, "Nats-") {
			continue
		}
		if m.Headers == nil {
			m.Headers = map[string][]string{}
		}
		m.Headers[key] = values
	}
	return m
}

// Original makes a message of RETRY what it was in its stream.
func (m *Message) Original() {
	first := func(key string) string {
		if v := m.Headers[key]; len(v) > 0 {
			return v[0]
		}
		return ""
	}
	if subject := first("Fieldpost-Subject"); subject != "" {
		m.Subject = subject
	}
	if seq, err := strconv.ParseUint(first("Fieldpost-Stream-Seq"), 10, 64); err == nil {
		m.Seq = seq
	}
}

type messageJSON struct {
	plainMessage
	Text   *string `json:"payload,omitempty"`
	Base64 []byte  `json:"payload_b64,omitempty"`
}

type plainMessage Message

// MarshalJSON writes payload or payload_b64.
func (m Message) MarshalJSON() ([]byte, error) {
	out := messageJSON{plainMessage: plainMessage(m)}
	if utf8.Valid(m.Payload) && bytes.IndexByte(m.Payload, 0) < 0 {
		text := string(m.Payload)
		out.Text = &text
	} else {
		out.Base64 = m.Payload
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // payloads are for programs and terminals
	err := enc.Encode(out)
	return buf.Bytes(), err
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Message) UnmarshalJSON(b []byte) error {
	var in messageJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*m = Message(in.plainMessage)
	if m.Payload = in.Base64; in.Text != nil {
		m.Payload = []byte(*in.Text)
	}
	return nil
}

// ExportType is the media type of a portable file (sync/wire/EXPORT.md).
const ExportType = "application/vnd.fieldpost.export"

// Imported is POST /v1/import: what became of a portable file.
type Imported struct {
	Device   string            `json:"device"`
	HubID    string            `json:"hub_id,omitempty"`  // that the device was pinned to
	Version  string            `json:"version,omitempty"` // of the agent
	Exported time.Time         `json:"exported"`
	File     wire.ExportTotals `json:"file"`    // what was read
	Stored   ImportedPart      `json:"stored"`  // was not there before
	Already  ImportedPart      `json:"already"` // was
	Recut    uint64            `json:"recut"`   // blocks of which a part was there
}

// ImportedPart counts sequences.
type ImportedPart struct {
	Messages uint64 `json:"messages"`
	Gone     uint64 `json:"gone"` // voids: removed on the device for a reason
}

// Problem is an application/problem+json answer.
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail + " (" + p.Code + ")" }
