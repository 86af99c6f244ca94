package deadletter

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// LostCommand is a command that nobody has done.
type LostCommand struct {
	Incarnation string // of COMMANDS
	Seq         uint64 // there
	Subject     string // there
	Header      map[string][]string
	Payload     []byte
	Kept        bool   // Payload is what it was; else it is gone
	Reason      string // expired or failed
	Detail      string // for people
	Deliveries  int    // to programs
}

// commandWriter is who writes letters of commands: any instance may.
const commandWriter = "commands"

// Command puts the letter of a command into DEAD, once: it may be called again.
func (l *Letters) Command(ctx context.Context, c LostCommand) error {
	id := fmt.Sprintf("%s.%s.%d.%s", store.Commands, c.Incarnation, c.Seq, commandWriter)
	m := store.Msg{Subject: deadPrefix + store.Commands + "." + c.Subject, Header: nats.Header(maps.Clone(c.Header)), Data: c.Payload}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header[HdrReason] = []string{c.Reason}
	m.Header[HdrDeliveries] = []string{strconv.Itoa(c.Deliveries)}
	m.Header[HdrStream] = []string{store.Commands}
	m.Header[HdrStreamSeq] = []string{strconv.FormatUint(c.Seq, 10)}
	m.Header[hdrID] = []string{id}
	if detail := words(c.Detail); detail != "" {
		m.Header[HdrDetail] = []string{detail}
	}
	switch {
	case !c.Kept:
		withoutBody(&m, BodyGone, "the command has left COMMANDS before the hub could keep it")
	case size(&m) > l.cfg.Store.MaxPayload():
		shrink(&m)
	}
	return l.toDead.put(ctx, []*item{{key: id, by: commandWriter, msg: m, shrink: shrink}}, func(*item) { l.cfg.OnDead(c.Reason) })
}
