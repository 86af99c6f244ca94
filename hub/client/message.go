package client

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of messages in the streams of routes, and in RETRY.
const (
	hdrEpoch    = "Fieldpost-Epoch"
	hdrSeq      = "Fieldpost-Seq"
	hdrTime     = "Fieldpost-Time"
	hdrLane     = "Fieldpost-Lane"
	hdrID       = "Fieldpost-Id"
	hdrClock    = "Fieldpost-Clock"
	hdrPart     = "Fieldpost-Part"
	hdrBackfill = "Fieldpost-Backfill"

	hdrRetry     = "Fieldpost-Retry"
	hdrSubject   = "Fieldpost-Subject"
	hdrStream    = "Fieldpost-Stream"
	hdrStreamSeq = "Fieldpost-Stream-Seq"
)

// Message is one message of a device. Epoch, Lane and Seq together name it for
// ever: a program that remembers them with what it did recognises a redelivery.
type Message struct {
	Device  string
	Subject string      // the publisher's
	Payload []byte      // all of it, however many parts the stream holds it in
	Header  nats.Header // the publisher's own; nil if there are none
	ID      string      // the publisher's; empty if none

	Epoch    string // the run of the agent that accepted it
	Lane     string // urgent, normal or bulk
	Seq      uint64 // in its lane, growing by 1 within an epoch; a new epoch goes on anywhere
	Time     time.Time
	Unsynced bool // Time was taken from a clock that nobody had set
	Backfill bool // newer messages of the lane came before it

	Stream     string
	StreamSeq  uint64
	Stored     time.Time // when the stream took it
	Deliveries int       // of this message to the group, from 1
	Retry      int       // how often somebody has sent it again from DEAD; else 0

	// Malformed says what is wrong with a message that no hub has written like
	// this. Fields that could not be read are zero.
	Malformed error
}

// parseMessage reads a message as a stream holds it. prefixes are those of the
// stream's subjects. Nothing in it is trusted: it may not be from a hub.
func parseMessage(subject string, h nats.Header, prefixes []string) Message {
	var m Message
	m.Device, m.Subject, m.Malformed = splitSubject(subject, prefixes)
	note := func(key string, err error) {
		if err != nil && m.Malformed == nil {
			m.Malformed = fmt.Errorf("header %s: %w", key, err)
		}
	}
	epoch, err := wire.ParseEpoch(h.Get(hdrEpoch))
	note(hdrEpoch, err)
	if err == nil {
		m.Epoch = epoch.String()
	}
	m.Seq, err = parseSeq(h.Get(hdrSeq))
	note(hdrSeq, err)
	m.Time, err = time.Parse(time.RFC3339Nano, h.Get(hdrTime))
	note(hdrTime, err)
	m.Lane = wire.Normal.String()
	if v := h.Get(hdrLane); v != "" {
		lane, err := wire.ParseLane(v)
		note(hdrLane, err)
		if m.Lane = lane.String(); err != nil {
			m.Lane = ""
		}
	}
	m.ID, m.Unsynced, m.Backfill = h.Get(hdrID), h.Get(hdrClock) == "unsynced", h.Get(hdrBackfill) == "true"
	m.Header = ownHeader(h)
	return m
}

// splitSubject takes the route's prefix and the device off a subject.
func splitSubject(subject string, prefixes []string) (device, own string, err error) {
	for _, p := range prefixes {
		rest, ok := strings.CutPrefix(subject, p)
		if !ok {
			continue
		}
		device, own, ok = strings.Cut(rest, ".")
		if ok && own != "" && wire.CheckDevice(device) == nil {
			return device, own, nil
		}
	}
	return "", subject, fmt.Errorf("subject %q is not <prefix>.<device>.<subject>", subject)
}

// prefixesOf turns the subjects of a route's stream, "edge.>", into "edge.".
func prefixesOf(subjects []string) (out []string) {
	for _, s := range subjects {
		if p, ok := strings.CutSuffix(s, ">"); ok && p != "" {
			out = append(out, p)
		}
	}
	return out
}

func parseSeq(v string) (uint64, error) {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n == 0 || n > wire.MaxSeq {
		return 0, fmt.Errorf("%.32q is not a sequence", v)
	}
	return n, nil
}

// ownHeader is what the publisher set: all but what Fieldpost and NATS add.
func ownHeader(h nats.Header) (out nats.Header) {
	for k, v := range h {
		if strings.HasPrefix(k, "Fieldpost-") || strings.HasPrefix(k, "Nats-") {
			continue
		}
		if out == nil {
			out = nats.Header{}
		}
		out[k] = v
	}
	return out
}

// retryOf is what a message of RETRY says of itself.
type retryOf struct {
	subject, stream string
	seq             uint64
	n               int
}

func parseRetry(h nats.Header) (r retryOf, err error) {
	r.subject, r.stream = h.Get(hdrSubject), h.Get(hdrStream)
	if r.seq, err = parseSeq(h.Get(hdrStreamSeq)); err != nil {
		return r, fmt.Errorf("header %s: %w", hdrStreamSeq, err)
	}
	if r.n, err = strconv.Atoi(h.Get(hdrRetry)); err != nil || r.n < 1 {
		r.n = 1 // it is one, whatever it says
	}
	if r.subject == "" || r.stream == "" {
		return r, errors.New("a retry without " + hdrSubject + " or " + hdrStream)
	}
	return r, nil
}
