package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// daysHub is a hub: one instance at a time over a ledger that stays.
type daysHub struct {
	d        *days
	r        *Receiver
	instance int // number; 0: none runs
	last     int
	request  uint64
	replies  map[uint64]func(Event)
	wakeAt   time.Time
	slow     time.Duration // of a commit, at most
	since    time.Time     // when this instance began

	seq    uint64
	flows  map[wire.Flow]*daysFlow
	closed map[wire.Epoch]bool
	dec    *wire.Decoder
}

// daysFlow is a flow in the ledger.
type daysFlow struct {
	last     uint64 // sequence of its last message, the guard
	received wire.Ranges
	messages uint64
}

func newDaysHub(d *days) *daysHub {
	return &daysHub{d: d, flows: map[wire.Flow]*daysFlow{}, closed: map[wire.Epoch]bool{}, dec: wire.NewDecoder()}
}

func (h *daysHub) name() string { return fmt.Sprintf("i%d", h.instance) }

func (h *daysHub) start() {
	h.last++
	h.instance, h.since = h.last, h.d.now
	h.r = NewReceiver(ReceiverConfig{HubID: "hub1", Window: 8 << 20, MaxBlock: h.d.cfg.maxPayload})
	h.replies, h.wakeAt = map[uint64]func(Event){}, time.Time{}
	h.slow = 20 * time.Millisecond
	if h.d.chance(4) {
		h.slow = 300 * time.Millisecond
	}
	h.step(RecvTick{})
}

// restart ends the instance, in good order or not; another comes, with its name
// and its memory empty. The connection may stay, as in a cluster.
func (h *daysHub) restart() {
	if h.instance == 0 {
		return
	}
	stays := h.d.chance(3)
	if h.d.chance(2) {
		h.step(RecvStop{Now: true})
	}
	h.r, h.instance = nil, 0
	if !stays {
		h.d.link.drop(errors.New("EOF"))
	}
	h.d.after(h.d.between(100*time.Millisecond, 30*time.Second), h.start)
}

// step feeds the instance and does what it asks for.
func (h *daysHub) step(ev RecvEvent) {
	if h.r == nil {
		return
	}
	out := slices.Clone(h.r.Step(h.d.now, ev))
	if _, tick := ev.(RecvTick); !tick {
		out = append(out, h.r.Step(h.d.now, RecvTick{})...)
	}
	for _, a := range out {
		h.do(a)
	}
	if h.r == nil {
		return
	}
	if next := h.r.Next(); h.wakeAt.IsZero() || next.Before(h.wakeAt) || !h.wakeAt.After(h.d.now) {
		h.wakeAt = latest(next, h.d.now.Add(time.Millisecond))
		if _, sessions, queued := h.r.Load(); sessions == 0 && queued == 0 {
			h.wakeAt = h.d.now.Add(time.Minute) // nothing of it is of interest
		}
		at, r := h.wakeAt, h.r
		h.d.at(at, func() {
			if h.r == r && h.wakeAt.Equal(at) {
				h.step(RecvTick{})
			}
		})
	}
}

// later hands an answer to the instance, if it still runs then.
func (h *daysHub) later(t time.Duration, ev RecvEvent) {
	r := h.r
	h.d.after(t, func() {
		if h.r == r {
			h.step(ev)
		}
	})
}

func (h *daysHub) do(a RecvAction) {
	switch a := a.(type) {
	case DoReply:
		h.reply(a)
	case DoIgnore:
		delete(h.replies, a.Request)
	case DoAck:
		h.d.link.answer(30, Acked{a.Session.Tag(), &a.Ack})
	case DoEnd:
		if a.Stray {
			h.d.link.answer(40, Ended{Instance: h.name(), Err: a.Err})
		} else if a.Err != nil {
			h.d.link.answer(40, Ended{a.Session.Tag(), "", a.Err})
		}
	case DoRead:
		f := h.flow(a.Flow)
		ev := RecvRead{Read: a.Read, Last: f.last, Received: f.received}
		h.later(h.d.between(time.Millisecond, 10*time.Millisecond), ev)
	case DoCommit:
		h.commit(a)
	case DoClose:
		h.closed[a.Epoch] = true
	}
}

func (h *daysHub) flow(w wire.Flow) *daysFlow {
	f := h.flows[w]
	if f == nil {
		f = &daysFlow{}
		h.flows[w] = f
	}
	return f
}

func (h *daysHub) reply(a DoReply) {
	answer := h.replies[a.Request]
	delete(h.replies, a.Request)
	r := &wire.OpenReply{Protocol: wire.Protocol, Error: a.Err, HubID: "hub1", Time: h.d.now.UnixMilli()}
	if a.Err == nil {
		id := wire.Epoch(a.Session)
		r.Session, r.Instance, r.Received = &id, h.name(), a.Received
		r.MaxPayload, r.Window, r.Token = h.d.cfg.maxPayload, 8<<20, "t"+id.String()
		if !h.d.cfg.noStream {
			r.Stream = wire.StreamName
		}
	}
	answer(OpenReplied{r})
}

// open takes an open request; without an instance nobody is there to answer.
func (h *daysHub) open(o wire.Open, reply func(Event)) {
	if h.r == nil {
		reply(OpenFailed{errors.New("no hub listens")})
		return
	}
	data, err := json.Marshal(o)
	if err != nil {
		h.d.fail("open: %v", err)
		return
	}
	h.request++
	h.replies[h.request] = reply
	session := wire.SessionID(wire.Epoch{byte(h.d.rng.Uint32()), byte(h.d.rng.Uint32()), byte(h.d.rng.Uint32()), byte(h.request >> 8), byte(h.request), byte(h.last)})
	h.step(RecvOpen{Request: h.request, Device: "dev", Session: session, Data: data})
}

// frame takes what came for an instance: its name comes first.
func (h *daysHub) frame(data []byte) {
	if h.r != nil && int(data[0]) == h.instance%256 {
		h.step(RecvFrame{Device: "dev", Data: data[1:]})
	}
}

// commit stores a batch, if the guards hold; the answer may be lost.
func (h *daysHub) commit(a DoCommit) {
	ev := RecvDone{Batch: a.Batch, Outcome: OutcomeUnknown}
	fate := h.d.rng.IntN(200)
	if fate != 0 || h.d.agent.quiet {
		ev.Outcome = OutcomeGuard
		if h.store(a.Blocks) {
			ev.Outcome, ev.Last = OutcomeStored, h.seq
		}
		if fate == 1 && !h.d.agent.quiet {
			ev.Outcome = OutcomeUnknown
		}
	}
	h.later(h.d.between(time.Millisecond, h.slow), ev)
}

func (h *daysHub) store(blocks []LedgerBlock) bool {
	for _, b := range blocks {
		if b.Guarded && h.flow(b.Flow).last != b.Guard {
			return false
		}
	}
	for _, b := range blocks {
		f := h.flow(b.Flow)
		if f.received.Overlaps(b.Range) {
			h.d.fail("%s %s is stored twice; held %s", b.Flow, b.Range, f.received)
		}
		if base := h.d.agent.spool.find(b.Flow).base; !h.d.cfg.fresh && b.Range.First != next(f.received, base) {
			h.d.fail("%s %s is out of order; held %s", b.Flow, b.Range, f.received)
		}
		f.received = f.received.Add(b.Range)
		if !slices.Equal(f.received, b.Received) {
			h.d.fail("%s %s carries %s; held %s", b.Flow, b.Range, b.Received, f.received)
		}
		h.seq++
		f.last = h.seq
		h.content(f, &b)
		h.d.watch.stored(&b)
	}
	return true
}

// content checks that a block holds what the spool was given.
func (h *daysHub) content(f *daysFlow, b *LedgerBlock) {
	got, err := h.dec.Decode(b.Data, false)
	if err != nil || got.Range() != b.Range || got.Flow != b.Flow || b.Void != 0 {
		h.d.fail("%s %s: void %s, stored as %s: %v", b.Flow, b.Range, b.Void, got.Range(), err)
		return
	}
	for i := range got.Messages {
		if seq := sequenceOf(&got.Messages[i]); seq != b.Range.First+uint64(i) {
			h.d.fail("%s %d holds the message %d", b.Flow, b.Range.First+uint64(i), seq)
		}
	}
	f.messages += uint64(len(got.Messages))
}
