package uplink

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestSenderDeliversExactlyOnce drives a sender against a ledger over a link
// that loses, cuts, delays and tears: in the end everything is there exactly
// once and in order, and the hub never had to see a void for what was not lost.
func TestSenderDeliversExactlyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newSenderWorld(t)
		for range rapid.IntRange(10, 200).Draw(t, "steps") {
			w.anything()
			w.invariants()
		}
		w.settle()
		flows := w.spool.flows
		if w.rewound { // what is no longer held anywhere is lost
			flows = slices.DeleteFunc(slices.Clone(flows), func(f *fakeFlow) bool { return len(f.blocks) == 0 })
		}
		if err := w.hub.check(flows); err != nil {
			t.Fatal(err)
		}
		for flow, l := range w.hub.ledger {
			if want := w.voids[flow]; l.voids.String() != want.String() && !w.rewound {
				t.Fatalf("flow %s: voids %s, the spool had %s", flow, l.voids, want)
			}
			for _, r := range w.spool.find(flow).held() {
				if l.voids.Overlaps(r) && !w.voids[flow].Overlaps(r) {
					t.Fatalf("flow %s: %s is held, and was sent as a void", flow, r)
				}
			}
		}
		for _, f := range w.spool.flows {
			if f.Epoch != w.spool.epoch && !w.hub.closed[f.Epoch] && w.lastRun[f.Epoch] {
				t.Fatalf("epoch %s was drained, and not reported", f.Epoch)
			}
		}
	})
}

// senderWorld is a sender, its spool, a hub and what is on its way between them.
type senderWorld struct {
	t     *rapid.T // to draw from
	tb    interface{ Fatalf(string, ...any) }
	now   time.Time
	spool *fakeSpool
	s     *Sender
	hub   *fakeHub

	linked  bool
	pending *wire.Open // not answered yet
	up      [][]byte   // frames on their way
	down    []Event    // answers on their way
	late    [][]byte   // frames of connections that are gone
	voids   map[wire.Flow]wire.Ranges
	rewound bool
	lastRun map[wire.Epoch]bool // epochs of which the spool held something when the last run began
}

func newSenderWorld(t *rapid.T) *senderWorld {
	w := &senderWorld{
		t: t, tb: t, now: time.Unix(1_800_000_000, 0), spool: newFakeSpool(), hub: newFakeHub(),
		voids: map[wire.Flow]wire.Ranges{}, lastRun: map[wire.Epoch]bool{},
	}
	w.spool.trims = rapid.Bool().Draw(t, "trims")
	w.hub.window = rapid.SampledFrom([]int{400, 4000, 1 << 20}).Draw(t, "window")
	w.hub.fifo = rapid.Bool().Draw(t, "fifo")
	w.hub.stream = rapid.Bool().Draw(t, "stream")
	w.hub.maxPayload = rapid.SampledFrom([]int{300, 1000, 1 << 20}).Draw(t, "max payload")
	w.start()
	return w
}

func (w *senderWorld) start() {
	w.s = NewSender(SenderConfig{
		Process: "p", HubID: w.spool.hub, Token: w.spool.tok, Window: w.hub.window, FreshFirst: !w.hub.fifo,
		Rand: func() float64 { return 0.5 },
	})
	clear(w.lastRun)
	for _, f := range w.spool.Flows() {
		w.lastRun[f.Epoch] = true
	}
	w.spooled()
}

func (w *senderWorld) spooled() { w.step(w.spool.list()) }

// anything is one step of the world.
func (w *senderWorld) anything() {
	t := w.t
	switch rapid.SampledFrom([]string{
		"append", "append", "hub", "hub", "hub", "agent", "agent", "agent", "open", "open",
		"cut", "drop", "tear", "forget ack", "late", "end", "tick", "restart", "kick", "void", "rewind",
	}).Draw(t, "step") {
	case "append":
		w.spool.append(wire.Lane(rapid.IntRange(0, 2).Draw(t, "lane")), rapid.IntRange(1, 20).Draw(t, "count"), rapid.OneOf(rapid.IntRange(0, 60), rapid.IntRange(200, 3000)).Draw(t, "size"))
		w.spooled()
	case "void":
		l := wire.Lane(rapid.IntRange(0, 2).Draw(t, "lane"))
		w.spool.void(l, rapid.IntRange(1, 20).Draw(t, "count"), wire.ReasonTTL)
		f := w.spool.flow(l)
		w.voids[f.Flow] = w.voids[f.Flow].Add(f.blocks[len(f.blocks)-1].r)
		w.spooled()
	case "hub":
		w.hubTakes()
	case "agent":
		w.agentTakes()
	case "open":
		w.connect()
	case "cut":
		w.cut()
	case "drop":
		if len(w.up) > 0 {
			i := rapid.IntRange(0, len(w.up)-1).Draw(t, "frame")
			w.up = append(w.up[:i:i], w.up[i+1:]...)
		}
	case "tear":
		if len(w.up) > 0 {
			i := rapid.IntRange(0, len(w.up)-1).Draw(t, "frame")
			w.up[i] = w.up[i][:rapid.IntRange(0, len(w.up[i])).Draw(t, "length")]
		}
	case "forget ack":
		if len(w.down) > 0 {
			w.down = w.down[1:]
		}
	case "late": // a frame of an old connection, long after
		if len(w.late) > 0 {
			i := rapid.IntRange(0, len(w.late)-1).Draw(t, "frame")
			w.hub.frame(w.late[i])
			w.late = append(w.late[:i:i], w.late[i+1:]...)
		}
	case "end":
		code := rapid.SampledFrom([]string{wire.CodeUnavailable, wire.CodeReplaced, wire.CodeStopping}).Draw(t, "code")
		w.down = append(w.down, Ended{w.s.id.Tag(), "", &wire.SessionError{Code: code}})
	case "tick":
		w.tick()
	case "restart":
		w.cut()
		w.spool.restart()
		w.start()
	case "rewind":
		if rapid.Bool().Draw(t, "really") {
			w.cut()
			w.hub.rewind(uint64(rapid.IntRange(0, 30).Draw(t, "sequences")))
			w.rewound = true
		}
	case "kick":
		w.step(Kicked{})
	}
}

func (w *senderWorld) hubTakes() {
	if len(w.up) == 0 {
		return
	}
	data := w.up[0]
	w.up = w.up[1:]
	switch id, ack, end := w.hub.frame(data); {
	case ack != nil:
		w.down = append(w.down, Acked{id.Tag(), ack})
	case end != nil:
		w.down = append(w.down, answerOf(w.hub, id, end))
	}
}

func (w *senderWorld) agentTakes() {
	if len(w.down) == 0 {
		return
	}
	ev := w.down[0]
	w.down = w.down[1:]
	w.step(ev)
}

// connect completes what the sender is waiting for.
func (w *senderWorld) connect() {
	switch w.s.phase {
	case phaseDialing:
		w.linked = true
		w.step(Linked{})
	case phaseOpening:
		if w.pending != nil {
			o := w.pending
			w.pending = nil
			w.step(OpenReplied{w.hub.open(o)})
		}
	}
}

func (w *senderWorld) cut() {
	w.late = append(w.late, w.up...)
	w.up, w.down, w.pending = nil, nil, nil
	if w.linked || w.s.phase == phaseDialing {
		w.linked = false
		w.step(Unlinked{errors.New("cut")})
	}
}

func (w *senderWorld) tick() {
	if d := w.s.Deadline(); !d.IsZero() {
		w.now = latest(w.now, d)
		w.step(Ticked{})
	}
}

// settle lets the world work without faults until everything has arrived.
func (w *senderWorld) settle() {
	for range 200_000 {
		switch {
		case len(w.up) > 0:
			w.hubTakes()
		case len(w.down) > 0:
			w.agentTakes()
		case w.s.phase == phaseDialing || w.s.phase == phaseOpening && w.pending != nil:
			w.connect()
		case w.s.phase == phaseOpen && w.idle():
			return
		default:
			w.tick()
		}
	}
	w.tb.Fatalf("not drained: phase %d, problem %v, in flight %d", w.s.phase, w.s.Problem(), w.s.window.inflight)
}

// idle reports that the sender believes the hub to have everything.
func (w *senderWorld) idle() bool {
	for i := range w.s.lanes {
		if l := &w.s.lanes[i]; l.active(false) != nil || l.active(true) != nil {
			return false
		}
	}
	return true
}

func (w *senderWorld) step(ev Event) {
	todo := []Event{ev}
	for len(todo) > 0 {
		ev, todo = todo[0], todo[1:]
		for _, a := range w.s.Step(w.now, ev) {
			switch a := a.(type) {
			case Hangup:
				w.late = append(w.late, w.up...)
				w.up, w.down, w.pending, w.linked = nil, nil, nil, false
			case List:
				todo = append(todo, w.spool.list())
			case SendOpen:
				w.pending = &a.Open
			case SendFrame:
				w.up = append(w.up, wire.AppendFrame(nil, a.Frame))
				todo = append(todo, Written{len(a.Frame.Body)})
			case Load:
				data, err := w.spool.Read(a.Flow, a.From)
				todo = append(todo, Loaded{a.Flow, a.From, data, err})
			case MarkReceived:
				w.spool.Received(a.Flow, a.Set)
			case PinHub:
				w.spool.hub = a.ID
			}
		}
	}
}

// invariants hold after every step.
func (w *senderWorld) invariants() {
	inflight := 0
	for i := range w.s.lanes {
		l := &w.s.lanes[i]
		for _, fl := range l.flights {
			inflight += fl.bytes
		}
		if len(l.flights) > 0 && l.flights[0].flow != l.flights[len(l.flights)-1].flow && !w.s.cfg.FreshFirst {
			w.tb.Fatalf("lane %s has two epochs in flight", wire.Lane(i))
		}
	}
	if inflight != w.s.window.inflight {
		w.tb.Fatalf("in flight %d, the window says %d", inflight, w.s.window.inflight)
	}
	if frames := len(w.up); inflight > w.hub.window && frames > 1 {
		single := 0
		for i := range w.s.lanes {
			single += len(w.s.lanes[i].flights)
		}
		if single > 1 {
			w.tb.Fatalf("%d bytes in flight, the hub allows %d", inflight, w.hub.window)
		}
	}
}
