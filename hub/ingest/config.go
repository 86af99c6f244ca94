package ingest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Store is the ledger. Its methods must be safe for concurrent use.
type Store interface {
	PublishBatch(ctx context.Context, msgs []store.Msg) (last uint64, err error)
	Last(ctx context.Context, stream, subject string) (store.Stored, error)
}

// Registry keeps what is known of devices. It is called from one goroutine and
// must not block.
type Registry interface {
	// Opened notes a session and returns the token to be made durable and a notice
	// for a person, either possibly empty.
	Opened(device string, o *wire.Open, s wire.SessionID) (token, notice string)
	// Confirmed notes that the device has made the token durable.
	Confirmed(device, token string)
	// Ended notes the end of a session; bye means that the agent ended it.
	Ended(device string, s wire.SessionID, bye bool)
}

// Config configures an Ingest. Conn, Store and HubID are required.
type Config struct {
	Conn     *nats.Conn // for sessions; lives as long as Run
	Store    Store
	Registry Registry // nil: none
	HubID    string

	Instance string // a subject token, new with every process; "": random
	Stream   string // of the ledger; "": BLOCKS
	// MaxPayload is the largest message that the ledger takes, headers included;
	// 0: that of Conn.
	MaxPayload int
	// Limits bounds what devices can ask of this instance. HubID and MaxBlock are
	// filled in.
	Limits uplink.ReceiverConfig

	ReadTimeout  time.Duration // for one read of the ledger; 0: 5 s
	WriteTimeout time.Duration // for one batch; 0: 15 s
	StopTimeout  time.Duration // Run waits so long for batches under way; 0: 5 s

	Hooks Hooks
	Fault func(point string) error // at every labelled step (Points). Tests only
	Log   *slog.Logger             // nil: discard
}

// Hooks feed metrics. Each may be nil. They are called from one goroutine and
// must not block.
type Hooks struct {
	// Block counts blocks: stored, void (stored too), duplicate (received before),
	// partial and early (against the rules, the session ended), failed (in a batch
	// that was not stored; they are tried again).
	Block func(result string, n int)
	// Messages counts messages of blocks that were stored.
	Messages func(n uint64)
	// Acked is told of every stored block how long it took from its arrival.
	Acked func(time.Duration)
	// Rejected counts opens and sessions that were refused or ended (a code of
	// wire.SessionError) and messages that were not looked at: unknown_session,
	// repeated_frame, malformed, stopping, bad_device, bad_reply, overrun.
	Rejected func(reason string)
	// Closed tells that a device will send nothing more in an epoch.
	Closed func(device string, e wire.Epoch)
}

// Points lists the labels that Config.Fault sees: before a batch is handed over,
// when its answer has come, before a read, and before a reply, ack or end of a
// session is sent. An error takes the place of the step's own; a message to a
// device is then not sent.
func Points() []string {
	return []string{"commit:publish", "commit:answer", "read", "open:reply", "ack:send", "end:send"}
}

// headroom is what the ledger's headers add to a block: a received set of 64
// ranges is at most 2.7 KB, the rest a few hundred bytes.
const headroom = 8 << 10

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Conn == nil || c.Store == nil || c.HubID == "":
		return c, errors.New("ingest: Conn, Store and HubID are required")
	case strings.ContainsAny(c.Instance, ".*> \t\r\n"):
		return c, errors.New("ingest: the instance's name is not a subject token")
	}
	if c.Instance == "" {
		var b [5]byte
		rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
		c.Instance = "i" + hex.EncodeToString(b[:])
	}
	if c.Stream == "" {
		c.Stream = store.Blocks
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = int(c.Conn.MaxPayload())
	}
	if c.MaxPayload < 2*headroom {
		return c, errors.New("ingest: messages of less than 16 KiB cannot carry blocks; raise the server's max_payload")
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = 5 * time.Second
	}
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 15 * time.Second
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 5 * time.Second
	}
	if c.Registry == nil {
		c.Registry = noRegistry{}
	}
	if c.Fault == nil {
		c.Fault = func(string) error { return nil }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Limits.Window == 0 {
		c.Limits.Window = 32 << 20 // 1 Gbit/s with a round trip of 200 ms has 25 MB under way
	}
	c.Limits.HubID, c.Limits.MaxBlock = c.HubID, c.MaxPayload-headroom
	c.Hooks = c.Hooks.withDefaults()
	return c, nil
}

func (h Hooks) withDefaults() Hooks {
	if h.Block == nil {
		h.Block = func(string, int) {}
	}
	if h.Messages == nil {
		h.Messages = func(uint64) {}
	}
	if h.Acked == nil {
		h.Acked = func(time.Duration) {}
	}
	if h.Rejected == nil {
		h.Rejected = func(string) {}
	}
	if h.Closed == nil {
		h.Closed = func(string, wire.Epoch) {}
	}
	return h
}

type noRegistry struct{}

func (noRegistry) Opened(string, *wire.Open, wire.SessionID) (token, notice string) { return "", "" }
func (noRegistry) Confirmed(string, string)                                         {}
func (noRegistry) Ended(string, wire.SessionID, bool)                               {}
