package unpack

import (
	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Headers of a message in a route's stream. The keys are in canonical form and
// stored verbatim.
const (
	HdrEpoch    = "Fieldpost-Epoch"
	HdrSeq      = "Fieldpost-Seq"
	HdrTime     = "Fieldpost-Time"
	HdrBlock    = "Fieldpost-Block" // <ledger sequence>/<index>; in DEAD the ledger sequence alone, unless one block makes several messages
	HdrLane     = "Fieldpost-Lane"
	HdrID       = "Fieldpost-Id"
	HdrClock    = "Fieldpost-Clock"
	HdrPart     = "Fieldpost-Part"     // <i>/<n>
	HdrBackfill = "Fieldpost-Backfill" // "true": newer messages of the lane were stored before
)

// slot is the place of one message in a batch. Its header map is filled anew for
// every message and allocated once.
type slot struct {
	h     nats.Header
	v     [9]string
	extra bool // h holds more than the four that every message has
}

// fill writes o into the slot and returns it as a message, valid until the next.
func (s *slot) fill(o *Out, epoch string, lane wire.Lane) store.Msg {
	if s.h == nil || s.extra {
		s.base()
	}
	s.v[0], s.v[1], s.v[2], s.v[3] = epoch, o.seq, o.time, o.block
	if lane != wire.Normal {
		s.set(4, HdrLane, lane.String())
	}
	if o.Msg.ID != "" {
		s.set(5, HdrID, o.Msg.ID)
	}
	if o.Msg.Unsynced {
		s.set(6, HdrClock, "unsynced")
	}
	if o.Parts > 1 {
		s.set(7, HdrPart, wire.PartName(o.Part, o.Parts))
	}
	if o.Backfill {
		s.set(8, HdrBackfill, "true")
	}
	for _, p := range o.Msg.Headers {
		s.extra = true
		s.h[p.Key] = append(s.h[p.Key], p.Value)
	}
	return store.Msg{Subject: o.Subject, Header: s.h, Data: o.Data}
}

func (s *slot) base() {
	if s.h == nil {
		s.h = make(nats.Header, 8)
	}
	clear(s.h)
	s.extra = false
	for i, k := range [...]string{HdrEpoch, HdrSeq, HdrTime, HdrBlock} {
		s.h[k] = s.v[i : i+1 : i+1]
	}
}

func (s *slot) set(i int, key, value string) {
	s.extra = true
	s.v[i] = value
	s.h[key] = s.v[i : i+1 : i+1]
}

// Message returns o as the stream holds it. Epoch and lane are those of its block.
func (o *Out) Message(f wire.Flow) store.Msg {
	var s slot
	return s.fill(o, f.Epoch.String(), f.Lane)
}
