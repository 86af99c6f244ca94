package commands

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of messages in COMMANDS.
const (
	HdrSubject    = "Fieldpost-Subject"
	HdrID         = "Fieldpost-Id" // and Nats-Msg-Id
	HdrGroup      = "Fieldpost-Group"
	HdrTTL        = "Fieldpost-Ttl"         // a duration, from the time of the message
	HdrAckWait    = "Fieldpost-Ack-Wait"    // a duration
	HdrMaxDeliver = "Fieldpost-Max-Deliver" // a number
)

const devicePrefix = "fp.cmd."

// command is a message of COMMANDS.
type command struct {
	record     // as it was when it was sent
	payload    []byte
	ackWait    time.Duration
	maxDeliver int
}

// message is what is stored of a command.
func (c *command) message(ttl time.Duration) store.Msg {
	h := nats.Header{
		HdrSubject: {c.Subject}, HdrID: {c.ID}, nats.MsgIdHdr: {c.ID}, HdrTTL: {ttl.String()},
		HdrAckWait: {c.ackWait.String()}, HdrMaxDeliver: {strconv.Itoa(c.maxDeliver)},
	}
	if c.Group != "" {
		h[HdrGroup] = []string{c.Group}
	}
	return store.Msg{Subject: wire.CommandSubject(c.Device), Header: h, Data: c.payload}
}

// parse reads a message of the incarnation. Only hubs write there, but for whom
// an operator lets in.
func parse(m store.Stored, incarnation string) (*command, error) {
	c := &command{record: record{
		ID: m.Header.Get(HdrID), Group: m.Header.Get(HdrGroup), Subject: m.Header.Get(HdrSubject), State: wire.CommandPending,
		Stream: incarnation, Seq: m.Seq, Sent: m.Time.UnixMilli(),
	}, payload: m.Data}
	if len(m.Subject) > len(devicePrefix) {
		c.Device = m.Subject[len(devicePrefix):]
	}
	ttl, err := time.ParseDuration(m.Header.Get(HdrTTL))
	if err == nil {
		c.ackWait, err = time.ParseDuration(m.Header.Get(HdrAckWait))
	}
	if err == nil {
		c.maxDeliver, err = strconv.Atoi(m.Header.Get(HdrMaxDeliver))
	}
	if err == nil {
		err = wire.CheckSubject(c.Subject)
	}
	if err != nil || !isID(c.ID) || ttl <= 0 || c.ackWait < time.Millisecond || c.maxDeliver < 1 || len(c.payload) > wire.MaxCommand {
		return nil, fmt.Errorf("commands: message %d of %s is not a command: somebody else wrote it; remove it with `nats stream rmm %[2]s %[1]d`", m.Seq, store.Commands)
	}
	c.Sum = sum(c.Subject, c.payload)
	c.Expires = c.Sent + max(ttl.Milliseconds(), 1)
	return c, nil
}

// isID reports whether s can be an id: it is a token of the bucket's keys.
func isID(s string) bool { return wire.CheckDevice(s) == nil }
