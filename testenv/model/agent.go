package model

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

var errCut = errors.New("the link is gone")

// agent is a disk and, while it runs, a sender.
type agent struct {
	w      *world
	device string
	spool  *spool
	backup *spool // an older copy of its disk
	sender *uplink.Sender
	conn   *conn
	events []uplink.Event // to be stepped
}

func (a *agent) start() {
	a.spool.start(a.w.rules.SameEpoch)
	a.w.processes++
	a.sender = uplink.NewSender(uplink.SenderConfig{
		Version: "model", Process: fmt.Sprint("p", a.w.processes), HubID: "hub",
		Window: 200 + a.w.rng.IntN(4000),
		Rand:   rand.New(rand.NewPCG(a.w.rng.Uint64(), 1)).Float64,
	})
	a.events = nil
	a.spooled()
}

// crash is kill -9, or power loss: what was acked is on disk.
func (a *agent) crash() {
	a.cut()
	a.start()
}

func (a *agent) cut() {
	if a.conn != nil {
		a.conn.kill(a.w.rng)
		a.conn = nil
	}
}

func (a *agent) publish() {
	a.w.published++
	m := message{a.w.published}
	lane := []wire.Lane{wire.Urgent, wire.Normal, wire.Normal, wire.Bulk}[a.w.rng.IntN(4)]
	flow, seq := a.spool.append(a.w.rng, lane, m)
	a.w.check.acked[m.id] = place{subject{a.device, flow}, seq}
	a.spooled()
}

func (a *agent) list() uplink.Spooled {
	return uplink.Spooled{Flows: a.spool.held(), Current: a.spool.epoch, Known: true}
}

func (a *agent) spooled() {
	a.events = append(a.events, a.list())
	a.run()
}

// run steps the sender until nothing is left to do at once.
func (a *agent) run() {
	for len(a.events) > 0 {
		ev := a.events[0]
		a.events = a.events[1:]
		for _, act := range a.sender.Step(a.w.now, ev) {
			a.do(act)
		}
	}
}

func (a *agent) do(act uplink.Action) {
	switch act := act.(type) {
	case uplink.Dial:
		a.conn = &conn{agent: a}
		a.w.conns = append(a.w.conns, a.conn)
		if a.w.calm == 0 && a.w.rng.IntN(4) == 0 {
			a.cut()
			a.events = append(a.events, uplink.Unlinked{Err: errCut})
			return
		}
		a.events = append(a.events, uplink.Linked{MaxPayload: 1 << 20})
	case uplink.List:
		a.events = append(a.events, a.list())
	case uplink.Hangup:
		a.cut()
	case uplink.SendOpen:
		o := act.Open
		a.conn.up = append(a.conn.up, upMessage{open: &o})
	case uplink.SendFrame:
		a.conn.up = append(a.conn.up, upMessage{instance: act.Instance, frame: wire.AppendFrame(nil, act.Frame)})
	case uplink.Load:
		data, err := a.spool.read(a.w.rng, a.w.enc, act.Flow, act.From)
		a.events = append(a.events, uplink.Loaded{Flow: act.Flow, From: act.From, Data: data, Err: err})
	case uplink.MarkReceived:
		if f := a.spool.find(act.Flow); f != nil {
			a.w.check.told(a.device, f, act.Set)
		}
		a.spool.setReceived(a.w.rng, act.Flow, act.Set)
		a.events = append(a.events, a.list())
	case uplink.SaveToken:
		a.events = append(a.events, uplink.TokenSaved(act))
	case uplink.PinHub, uplink.Notice, uplink.Redelivered, uplink.Rewound, uplink.Sampled:
	default:
		panic(fmt.Sprintf("the model does not know %T", act))
	}
}

// damage replaces or hurts the disk and starts again.
func (a *agent) damage() {
	rng := a.w.rng
	a.cut()
	before := a.spool
	switch rng.IntN(4) {
	case 0: // wiped
		a.spool = newSpool()
		a.w.risk(before)
	case 1: // restored from an older copy
		if a.backup != nil {
			a.spool = a.backup.copy()
			a.w.risk(before)
		}
	case 2: // a backup is taken
		a.backup = a.spool.copy()
	case 3: // the head is cut
		for _, m := range a.spool.cutHead(wire.Normal, 1+rng.IntN(5)) {
			a.w.check.atRisk[m.id] = true
		}
	}
	a.start()
}

// clone starts a copy of the disk beside the original.
func (a *agent) clone() {
	c := &agent{w: a.w, device: a.device, spool: a.spool.copy()}
	a.w.agents = append(a.w.agents, c)
	c.start()
}

// risk notes what was on a disk that is gone.
func (w *world) risk(s *spool) {
	for _, f := range s.flows {
		for _, m := range f.msgs {
			w.check.atRisk[m.id] = true
		}
	}
}
