package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestReceiversRace lets several receivers, agents and clones loose on one
// ledger, with lost, late and repeated frames, answers and batches. The ledger
// must hold every sequence at most once and in order, and whatever was acked;
// when the trouble is over, everything must arrive.
func TestReceiversRace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newReceiverModel(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") })
		if err := m.run(rapid.IntRange(20, 300).Draw(t, "steps")); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReceiversRaceSeeds is the same over many fixed seeds, evenly drawn.
func TestReceiversRaceSeeds(t *testing.T) {
	seeds := uint64(3000)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := newReceiverModel(rng.IntN)
		if err := m.run(300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestReceiversRaceFinds switches off one rule of the ledger at a time: the
// model must notice, or it proves nothing.
func TestReceiversRaceFinds(t *testing.T) {
	for name, breakRule := range map[string]func(*receiverModel){
		"guard":              func(m *receiverModel) { m.noGuard = true },
		"compare ranges":     func(m *receiverModel) { m.staleRanges = true },
		"set in each header": func(m *receiverModel) { m.loseHeader = true },
		"ack what is stored": func(m *receiverModel) { m.lie = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				rng := rand.New(rand.NewPCG(seed, 1))
				m := newReceiverModel(rng.IntN)
				breakRule(m)
				if err := m.run(300); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing found")
		})
	}
}

// receiverModel is the world around the receivers.
type receiverModel struct {
	draw      func(n int) int
	now       time.Time
	ledger    modelLedger
	instances []*modelInstance
	agents    []*modelAgent
	sessions  byte
	calm      bool // no trouble any more
	err       error

	noGuard, staleRanges, loseHeader, lie bool // rules switched off
}

type modelLedger struct {
	seq   uint64
	last  map[string]ledgerMsg   // newest message by subject
	older map[string][]ledgerMsg // those before it
	held  map[string]wire.Ranges // what was ever stored, from the blocks themselves
}

type ledgerMsg struct {
	seq      uint64
	received wire.Ranges
}

type modelInstance struct {
	r       *Receiver
	events  []RecvEvent // answers on their way
	late    []DoCommit  // given up by the instance, but may still be stored
	openers map[uint64]*modelAgent
	request uint64
}

// modelAgent is one process of a device; clones share its old flows.
type modelAgent struct {
	device, process string
	fifo            bool
	flows           []modelFlow

	at      *modelInstance
	session wire.SessionID
	open    bool
	counter uint64
	wire    [][]byte // frames on their way, in order
	late    []modelFrame
}

type modelFlow struct {
	flow     wire.Flow
	last     uint64
	received wire.Ranges
	next     uint64 // to send in this session
}

type modelFrame struct {
	at   *modelInstance
	data []byte
}

func newReceiverModel(draw func(int) int) *receiverModel {
	m := &receiverModel{draw: draw, now: time.Unix(1_800_000_000, 0)}
	m.ledger = modelLedger{last: map[string]ledgerMsg{}, older: map[string][]ledgerMsg{}, held: map[string]wire.Ranges{}}
	for range 2 + draw(2) {
		m.instances = append(m.instances, &modelInstance{
			r:       NewReceiver(ReceiverConfig{HubID: "hub1", OpenEvery: time.Millisecond, BatchBlocks: 4, MaxBatches: 2, EarlyBlocks: 2}),
			openers: map[uint64]*modelAgent{},
		})
	}
	for d := range 2 {
		shared := wire.Flow{Epoch: wire.Epoch{1, byte(d)}, Lane: wire.Normal}
		for c := range 1 + draw(2) {
			a := &modelAgent{device: string(rune('a' + d)), process: fmt.Sprintf("p%d-%d", d, c), fifo: true}
			own := wire.Flow{Epoch: wire.Epoch{2 + byte(c), byte(d)}, Lane: wire.Normal}
			a.flows = []modelFlow{{flow: shared, last: 12}, {flow: own, last: uint64(6 + draw(8))}}
			m.agents = append(m.agents, a)
		}
	}
	return m
}

// run does random steps, then lets the world recover.
func (m *receiverModel) run(steps int) error {
	for range steps {
		if m.step(); m.err != nil {
			return m.err
		}
	}
	m.calm = true
	for range 400 {
		for _, a := range m.agents {
			m.goOn(a)
		}
		for _, in := range m.instances {
			m.deliver(in, 0)
			m.tick(in)
		}
		if m.err != nil {
			return m.err
		}
		if m.complete() {
			return m.settled()
		}
		m.now = m.now.Add(100 * time.Millisecond)
	}
	return fmt.Errorf("it does not end: %s", m.state())
}

func (m *receiverModel) step() {
	a := m.agents[m.draw(len(m.agents))]
	in := m.instances[m.draw(len(m.instances))]
	switch m.draw(12) {
	case 0: // the link is lost: frames on their way may still come, at any time
		for _, f := range a.wire {
			a.late = append(a.late, modelFrame{a.at, f})
		}
		a.wire, a.open, a.session = nil, false, wire.SessionID{}
		m.connect(a, in)
	case 1, 2, 3:
		m.sendOne(a)
	case 4, 5, 6:
		m.takeFrame(a)
	case 7: // a late frame, or one again
		if len(a.late) > 0 {
			f := a.late[m.draw(len(a.late))]
			m.do(f.at, RecvFrame{Device: a.device, Data: f.data})
		}
	case 8: // a frame is lost
		if len(a.wire) > 0 {
			a.wire = a.wire[1:]
		}
	case 9:
		m.deliver(in, 1+m.draw(3))
	case 10:
		m.tick(in)
		if m.draw(4) == 0 {
			m.now = m.now.Add(time.Duration(1+m.draw(3000)) * time.Millisecond)
		}
	case 11: // a batch that was given up is stored after all; or a mark is set
		if len(in.late) > 0 {
			c := in.late[0]
			in.late = in.late[1:]
			m.store(c.Blocks, len(c.Blocks))
		} else if f := a.flows[m.draw(len(a.flows))]; m.draw(3) == 0 {
			m.mark(a.device, f.flow)
		}
	}
}

// goOn is what an agent does when all is well.
func (m *receiverModel) goOn(a *modelAgent) {
	if a.at == nil {
		m.connect(a, m.instances[0])
	}
	m.sendOne(a)
	if a.open { // finds lost frames, repeats lost acks
		a.counter++
		a.wire = append(a.wire, wire.AppendFrame(nil, wire.Frame{Type: wire.FramePing, Session: a.session, Counter: a.counter}))
	}
	for len(a.wire) > 0 && m.err == nil {
		m.takeFrame(a)
	}
}

// settled checks that nothing is left over in the receivers.
func (m *receiverModel) settled() error {
	for i, in := range m.instances {
		for range 10 {
			m.now = m.now.Add(time.Minute)
			m.tick(in)
			m.deliver(in, 0)
		}
		in.r.Step(m.now, RecvStop{Now: true})
		m.now = m.now.Add(time.Hour)
		m.tick(in)
		if d, s, q := in.r.Load(); d+s+int(q) > 0 || len(in.r.retries)+len(in.r.troubled)+len(in.r.reads) > 0 {
			return fmt.Errorf("instance %d is left with %d devices, %d sessions, %d bytes", i, d, s, q)
		}
	}
	return m.err
}

func (m *receiverModel) connect(a *modelAgent, in *modelInstance) {
	a.at, a.open, a.counter = in, false, 0
	m.sessions++
	a.session = wire.SessionID{m.sessions, byte(len(in.openers))}
	o := wire.Open{Protocol: wire.Protocol, Process: a.process, Order: "fifo"}
	for _, f := range a.flows {
		o.Flows = append(o.Flows, wire.FlowHeld{Flow: f.flow, Base: 1, First: 1, Last: f.last})
	}
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	in.request++
	in.openers[in.request] = a
	m.do(in, RecvOpen{Request: in.request, Device: a.device, Session: a.session, Data: data})
}

// sendOne puts the next block of the oldest flow that is not complete on the
// wire, cut at random.
func (m *receiverModel) sendOne(a *modelAgent) {
	if !a.open {
		return
	}
	for i := range a.flows {
		f := &a.flows[i]
		if f.received.Contains(wire.Range{First: 1, Last: f.last}) {
			continue
		}
		if f.next > f.last {
			return // all sent, the next flow waits for the acks
		}
		r := wire.Range{First: f.next, Last: min(f.last, f.next+uint64(m.draw(4)))}
		f.next = r.Last + 1
		block, err := wire.AppendVoid(nil, wire.Header{Flow: f.flow, Base: 1, First: r.First, Count: r.Len(), Reason: wire.ReasonTTL})
		if err != nil {
			panic(err)
		}
		a.counter++
		a.wire = append(a.wire, wire.AppendFrame(nil, wire.Frame{Type: wire.FrameBlock, Session: a.session, Counter: a.counter, Body: block}))
		return
	}
}

func (m *receiverModel) takeFrame(a *modelAgent) {
	if len(a.wire) == 0 {
		return
	}
	f := a.wire[0]
	a.wire = a.wire[1:]
	a.late = append(a.late, modelFrame{a.at, f})
	m.do(a.at, RecvFrame{Device: a.device, Data: f})
}

func (m *receiverModel) tick(in *modelInstance) { m.do(in, RecvTick{}) }

// deliver hands an instance the answers that are on their way, at most n unless 0.
func (m *receiverModel) deliver(in *modelInstance, n int) {
	for i := 0; len(in.events) > 0 && (n == 0 || i < n); i++ {
		ev := in.events[0]
		in.events = in.events[1:]
		m.do(in, ev)
	}
}

func (m *receiverModel) do(in *modelInstance, ev RecvEvent) {
	for _, act := range slices.Clone(in.r.Step(m.now, ev)) {
		m.act(in, act)
	}
}

func (m *receiverModel) act(in *modelInstance, act RecvAction) {
	switch act := act.(type) {
	case DoRead:
		ev := RecvRead{Read: act.Read}
		if subject := wire.BlockSubject(act.Device, act.Flow); m.chance(10) {
			ev.Err = errors.New("no leader")
		} else {
			msg := m.ledger.last[subject]
			if old := m.ledger.older[subject]; m.staleRanges && len(old) > 0 {
				msg.received = old[len(old)-1].received
			}
			ev.Last, ev.Received = msg.seq, msg.received
		}
		in.events = append(in.events, ev)
	case DoCommit:
		m.commit(in, act)
	case DoReply:
		a := in.openers[act.Request]
		if a.at != in || act.Err == nil && a.session != act.Session {
			return // too late
		}
		if act.Err != nil {
			m.reconnect(a)
			return
		}
		a.open = true
		for _, r := range act.Received {
			m.acked(a, r, true)
		}
	case DoAck:
		for _, a := range m.agents {
			if a.session == act.Session && a.at == in && !m.chance(5) {
				for _, r := range act.Ack.Flows {
					m.acked(a, r, false)
				}
			}
		}
	case DoEnd:
		for _, a := range m.agents {
			if a.session == act.Session && a.at == in && a.open {
				m.reconnect(a)
			}
		}
	}
}

// chance is true once in n, while there is trouble.
func (m *receiverModel) chance(n int) bool { return !m.calm && m.draw(n) == n-1 }

func (m *receiverModel) reconnect(a *modelAgent) {
	a.wire, a.open, a.session = nil, false, wire.SessionID{}
	m.now = m.now.Add(time.Millisecond)
	a.at = nil // goOn or a lost link connects again
}

// acked checks that what is acked is in the ledger.
func (m *receiverModel) acked(a *modelAgent, r wire.FlowReceived, first bool) {
	held := m.ledger.held[wire.BlockSubject(a.device, r.Flow)]
	for _, x := range r.Ranges {
		if !held.Contains(x) {
			m.err = fmt.Errorf("%s was told %s %s; the ledger holds %s", a.process, r.Flow, x, held)
		}
	}
	for i := range a.flows {
		if f := &a.flows[i]; f.flow == r.Flow {
			f.received = f.received.Union(r.Ranges)
			if first {
				f.next = next(f.received, 1)
			}
		}
	}
}

// commit decides the fate of a batch.
func (m *receiverModel) commit(in *modelInstance, c DoCommit) {
	ev := RecvDone{Batch: c.Batch, Outcome: OutcomeUnknown}
	fate := 7
	if !m.calm {
		fate = m.draw(8)
	}
	switch fate {
	case 0: // lost for good
		if m.lie {
			ev.Outcome, ev.Last = OutcomeStored, m.ledger.seq+uint64(len(c.Blocks))
		}
	case 1: // given up, and perhaps stored later
		in.late = append(in.late, c)
	case 2: // stored, the answer is lost
		m.store(c.Blocks, len(c.Blocks))
	case 3: // a disk error in the middle
		m.store(c.Blocks, m.draw(len(c.Blocks)+1))
	case 4:
		ev.Outcome = OutcomeFull
	default:
		ev.Outcome = OutcomeGuard
		if m.store(c.Blocks, len(c.Blocks)) {
			ev.Outcome, ev.Last = OutcomeStored, m.ledger.seq
		}
	}
	in.events = append(in.events, ev)
}

// store is JetStream: all guards hold, or nothing is stored. It checks that no
// sequence comes twice, and that order is kept.
func (m *receiverModel) store(blocks []LedgerBlock, n int) bool {
	for _, b := range blocks {
		if b.Guarded && !m.noGuard && m.ledger.last[wire.BlockSubject(b.Device, b.Flow)].seq != b.Guard {
			return false
		}
	}
	for _, b := range blocks[:n] {
		subject := wire.BlockSubject(b.Device, b.Flow)
		held := m.ledger.held[subject]
		if held.Overlaps(b.Range) {
			m.err = fmt.Errorf("%s: %s is stored twice; held %s", subject, b.Range, held)
		}
		if b.Range.First != next(held, 1) {
			m.err = fmt.Errorf("%s: %s is out of order; held %s", subject, b.Range, held)
		}
		held = held.Add(b.Range)
		m.ledger.held[subject] = held
		if !m.loseHeader && !slices.Equal(held, b.Received) {
			m.err = fmt.Errorf("%s: %s carries %s; held %s", subject, b.Range, b.Received, held)
		}
		received := b.Received
		if m.loseHeader {
			received = wire.Ranges{b.Range}
		}
		m.append(subject, received)
	}
	return true
}

func (m *receiverModel) append(subject string, received wire.Ranges) {
	if last := m.ledger.last[subject]; last.seq > 0 {
		m.ledger.older[subject] = append(m.ledger.older[subject], last)
	}
	m.ledger.seq++
	m.ledger.last[subject] = ledgerMsg{m.ledger.seq, received}
}

// mark is the hub emptying a subject: the received set stays, under a new sequence.
func (m *receiverModel) mark(device string, f wire.Flow) {
	subject := wire.BlockSubject(device, f)
	if last, ok := m.ledger.last[subject]; ok {
		m.append(subject, last.received)
		m.ledger.older[subject] = nil
	}
}

func (m *receiverModel) complete() bool {
	for _, a := range m.agents {
		for _, f := range a.flows {
			if !f.received.Contains(wire.Range{First: 1, Last: f.last}) {
				return false
			}
		}
	}
	return true
}

func (m *receiverModel) state() (s string) {
	for _, a := range m.agents {
		s += fmt.Sprintf("\n%s open=%v", a.process, a.open)
		for _, f := range a.flows {
			s += fmt.Sprintf(" %s[%s of %d]", f.flow, f.received, f.last)
		}
	}
	return s
}
