package testenv

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Fleet is many agents' uplinks in this process, over real connections to the
// hub; each has a spool in memory.
type Fleet struct {
	w       *World
	members []*member
	stop    context.CancelFunc
	wg      sync.WaitGroup

	mu    sync.Mutex
	enc   *wire.Encoder
	dials []time.Time // attempts to connect
	opens []time.Time // sessions that opened
	acks  []time.Duration
}

// StartFleet runs n uplinks that begin to connect at once.
func (w *World) StartFleet(n int) *Fleet {
	w.TB.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &Fleet{w: w, stop: cancel, enc: wire.NewEncoder(wire.Fast)}
	w.TB.Cleanup(f.Stop)
	for i := range n {
		m := &member{fleet: f, device: fmt.Sprintf("unit-%d", i), updates: make(chan struct{}, 1)}
		m.flow = wire.Flow{Epoch: wire.NewEpoch(), Lane: wire.Normal}
		d, err := link.NewNATS(link.Config{URLs: []string{"nats://" + w.NATS}, Device: m.device})
		if err != nil {
			w.TB.Fatalf("%v", err)
		}
		m.dialer = d
		m.up = uplink.New(uplink.Config{Device: m.device, Source: m, Pins: m, Dialer: m,
			Epoch: func() wire.Epoch { return m.flow.Epoch }, Hooks: uplink.Hooks{Transition: m.transition}})
		f.members = append(f.members, m)
		f.wg.Go(func() { m.up.Run(ctx) })
	}
	return f
}

// Stop ends all of them and waits.
func (f *Fleet) Stop() { f.stop(); f.wg.Wait() }

// Publish adds one message to every spool.
func (f *Fleet) Publish() {
	for _, m := range f.members {
		m.publish()
	}
}

// Up is how many have a session.
func (f *Fleet) Up() (n int) {
	for _, m := range f.members {
		if m.up.Status().Up {
			n++
		}
	}
	return n
}

// Acks is how long each message that has been acked since the last call took from
// its publication.
func (f *Fleet) Acks() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	acks := f.acks
	f.acks = nil
	return acks
}

// Since is when connections were tried and sessions opened after a moment.
func (f *Fleet) Since(t time.Time) (dials, opens []time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	after := func(ts []time.Time) []time.Time {
		return slices.DeleteFunc(slices.Clone(ts), func(at time.Time) bool { return at.Before(t) })
	}
	return after(f.dials), after(f.opens)
}

// member is one agent: its spool, pins and dialer.
type member struct {
	fleet   *Fleet
	device  string
	dialer  link.Dialer
	up      *uplink.Uplink
	updates chan struct{}

	mu         sync.Mutex
	flow       wire.Flow
	blocks     [][]byte    // of one message each, from sequence 1 on
	sent       []time.Time // the same
	opened     time.Time   // the last session
	received   wire.Ranges
	hub, token string
}

func (m *member) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq := uint64(len(m.blocks) + 1)
	p := Published{Device: m.device, Source: "fleet", N: int(seq), Lane: m.flow.Lane, Subject: "fleet", Payload: fmt.Appendf(nil, "%s %d", m.device, seq)}
	now := time.Now().UnixMilli()
	b := &wire.Block{Header: wire.Header{Flow: m.flow, Kind: wire.KindMessages, Base: 1, First: seq, Count: 1, Accepted: now},
		Messages: []wire.Message{{Subject: p.Subject, Payload: p.Payload, Time: now}}}
	m.fleet.mu.Lock()
	data, err := m.fleet.enc.Append(nil, b)
	m.fleet.mu.Unlock()
	if err != nil {
		panic(err) // of a block that is made here
	}
	m.blocks, m.sent = append(m.blocks, data), append(m.sent, time.Now())
	m.fleet.w.History.Sent(p)
	m.fleet.w.History.Acked(p, Receipt{m.flow.Epoch.String(), m.flow.Lane.String(), seq})
	select {
	case m.updates <- struct{}{}:
	default:
	}
}

func (m *member) transition(up bool) {
	if !up {
		return
	}
	now := time.Now()
	m.mu.Lock()
	m.opened = now
	m.mu.Unlock()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.opens = append(m.fleet.opens, now)
}

// Dial implements link.Dialer.
func (m *member) Dial(ctx context.Context) (link.Conn, error) {
	m.fleet.mu.Lock()
	m.fleet.dials = append(m.fleet.dials, time.Now())
	m.fleet.mu.Unlock()
	return m.dialer.Dial(ctx)
}

// Flows implements uplink.Source; what the hub has is held no more.
func (m *member) Flows() []wire.FlowHeld {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := uint64(len(m.blocks))
	if last == 0 {
		return nil
	}
	missing := m.received.Missing(wire.Range{First: 1, Last: last})
	if len(missing) == 0 {
		return nil
	}
	return []wire.FlowHeld{{Flow: m.flow, Base: 1, First: missing[0].First, Last: last}}
}

// Read implements uplink.Source.
func (m *member) Read(_ wire.Flow, from uint64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if from > uint64(len(m.blocks)) {
		return nil, io.EOF
	}
	return m.blocks[from-1], nil
}

// Received implements uplink.Source.
func (m *member) Received(_ wire.Flow, set wire.Ranges) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var acks []time.Duration
	if n := uint64(len(m.sent)); n > 0 {
		for _, r := range m.received.Missing(wire.Range{First: 1, Last: n}) {
			for seq := r.First; seq <= r.Last; seq++ {
				if set.Contains(wire.Range{First: seq, Last: seq}) {
					acks = append(acks, time.Since(m.sent[seq-1]))
				}
			}
		}
	}
	m.received = m.received.Union(set)
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.acks = append(m.fleet.acks, acks...)
	return nil
}

// Updates implements uplink.Source.
func (m *member) Updates() <-chan struct{} { return m.updates }

// HubID implements uplink.Pins, as do the next three.
func (m *member) HubID() string { m.mu.Lock(); defer m.mu.Unlock(); return m.hub }

// SetHubID keeps it in memory.
func (m *member) SetHubID(id string) error { m.mu.Lock(); defer m.mu.Unlock(); m.hub = id; return nil }

// Token is the last one saved.
func (m *member) Token() string { m.mu.Lock(); defer m.mu.Unlock(); return m.token }

// SetToken keeps it in memory.
func (m *member) SetToken(t string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.token = t
	return nil
}
