package model

import (
	"encoding/json"
	"fmt"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// instance is one hub process.
type instance struct {
	w        *world
	name     string
	recv     *uplink.Receiver
	requests map[uint64]*conn
	sessions map[wire.SessionID]*conn
	gone     bool
}

// operation is something that an instance asked of the ledger. It takes effect
// at one moment, also if its instance has died, and is answered at another.
type operation struct {
	in     *instance
	read   *uplink.DoRead
	commit *uplink.DoCommit
	answer uplink.RecvEvent // once it has taken effect
}

func (w *world) startInstance() *instance {
	w.processes++
	in := &instance{w: w, name: fmt.Sprint("i", w.processes), requests: map[uint64]*conn{}, sessions: map[wire.SessionID]*conn{},
		recv: uplink.NewReceiver(uplink.ReceiverConfig{HubID: "hub", MaxBatches: 1 + w.rng.IntN(4), BatchBlocks: 1 + w.rng.IntN(6), Judge: w.judge()})}
	return in
}

// judge is the ledger rules, or what is left of them.
func (w *world) judge() func(wire.Ranges, *wire.Header, bool) uplink.Verdict {
	if !w.rules.NoOverlapCheck {
		return nil
	}
	return func(received wire.Ranges, h *wire.Header, fifo bool) uplink.Verdict {
		if v := uplink.Judge(received, h, fifo); v != uplink.Partial {
			return v
		}
		return uplink.Store
	}
}

func (in *instance) step(ev uplink.RecvEvent) {
	for _, act := range in.recv.Step(in.w.now, ev) {
		in.do(act)
	}
}

func (in *instance) do(act uplink.RecvAction) {
	switch act := act.(type) {
	case uplink.DoReply:
		c := in.requests[act.Request]
		delete(in.requests, act.Request)
		r := &wire.OpenReply{Protocol: wire.Protocol, HubID: "hub", Time: in.w.now.UnixMilli(), Error: act.Err}
		if act.Err == nil {
			id := wire.Epoch(act.Session)
			r.Session, r.Instance, r.Received = &id, in.name, act.Received
			r.MaxPayload, r.Window = 300+in.w.rng.IntN(3000), 1<<20
			in.sessions[act.Session] = c
		}
		in.send(c, uplink.OpenReplied{Reply: r})
	case uplink.DoIgnore:
		delete(in.requests, act.Request)
	case uplink.DoAck:
		ack := act.Ack
		in.send(in.sessions[act.Session], uplink.Acked{Session: act.Session.Tag(), Ack: &ack})
	case uplink.DoEnd:
		c := in.sessions[act.Session]
		delete(in.sessions, act.Session)
		if act.Err != nil {
			in.send(c, uplink.Ended{Session: act.Session.Tag(), Err: act.Err})
		}
	case uplink.DoRead:
		in.w.operations = append(in.w.operations, &operation{in: in, read: &act})
	case uplink.DoCommit:
		in.w.operations = append(in.w.operations, &operation{in: in, commit: &act})
	case uplink.DoConfirm, uplink.DoClose, uplink.DoCount:
	default:
		panic(fmt.Sprintf("the model does not know %T", act))
	}
}

func (in *instance) send(c *conn, ev uplink.Event) {
	if c != nil && !c.dead {
		c.down = append(c.down, ev)
	}
}

// effect lets an operation take effect, or be answered if it has.
func (w *world) effect(op *operation) (over bool) {
	if op.answer != nil {
		if !op.in.gone {
			op.in.step(op.answer)
		}
		return true
	}
	if op.read != nil {
		r := w.ledger.last[subject{op.read.Device, op.read.Flow}]
		op.answer = uplink.RecvRead{Read: op.read.Read, Last: r.seq, Received: r.received}
		return false
	}
	done := uplink.RecvDone{Batch: op.commit.Batch}
	n, luck := len(op.commit.Blocks), w.rng.IntN(12)
	if w.calm > 0 {
		luck = 11
	}
	if luck == 0 { // never arrived
		done.Outcome = uplink.OutcomeUnknown
		op.answer = done
		return false
	}
	if luck == 1 { // a storage error in mid-commit
		n = w.rng.IntN(n + 1)
	}
	last, err := w.ledger.commit(op.commit.Blocks, n)
	switch {
	case luck <= 2: // the answer is lost
		done.Outcome = uplink.OutcomeUnknown
	case err != nil:
		done.Outcome = uplink.OutcomeGuard
	default:
		done.Outcome, done.Last = uplink.OutcomeStored, last
	}
	op.answer = done
	return false
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the model's own types
	}
	return b
}
