package uplink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeSpool is a spool in memory: Source and Pins.
type fakeSpool struct {
	mu       sync.Mutex
	epoch    wire.Epoch // zero until the first message of a run
	runs     byte
	flows    []*fakeFlow // in the order in which they began
	updates  chan struct{}
	hub, tok string
	trims    bool             // Received removes blocks; else it only notes them
	bad      map[string]error // reads that fail, by "flow/from"
	reads    int              // blocks read
	enc      *wire.Encoder
	rnd      *rand.Rand
}

type fakeFlow struct {
	wire.Flow
	base, last uint64
	blocks     []fakeBlock
	received   wire.Ranges // as last told
}

type fakeBlock struct {
	r    wire.Range
	data []byte
}

func newFakeSpool() *fakeSpool {
	s := &fakeSpool{
		updates: make(chan struct{}, 1), trims: true, bad: map[string]error{},
		enc: wire.NewEncoder(wire.Fast), rnd: rand.New(rand.NewPCG(1, 2)),
	}
	s.restart()
	return s
}

// restart begins a new run of the agent.
func (s *fakeSpool) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.epoch = wire.Epoch{}
}

// append stores n messages of size bytes as one block.
func (s *fakeSpool) append(lane wire.Lane, n, size int) *fakeFlow {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flow(lane)
	b := wire.Block{Header: wire.Header{Flow: f.Flow, Kind: wire.KindMessages, Base: f.base, First: f.last + 1, Count: uint64(n), Accepted: 1_800_000_000_000}}
	for i := range n {
		b.Messages = append(b.Messages, wire.Message{
			Subject: "m", Payload: s.payload(f.last+1+uint64(i), size), Time: 1_800_000_000_000,
		})
	}
	data, err := s.enc.Append(nil, &b)
	if err != nil {
		panic(err)
	}
	f.blocks = append(f.blocks, fakeBlock{b.Range(), data})
	f.last += uint64(n)
	wake(s.updates)
	return f
}

func (s *fakeSpool) payload(seq uint64, size int) []byte {
	p := fmt.Appendf(nil, "%d.", seq)
	for len(p) < size {
		p = binary.LittleEndian.AppendUint64(p, s.rnd.Uint64())
	}
	return p
}

// void stores a durable void of n sequences.
func (s *fakeSpool) void(lane wire.Lane, n int, why wire.Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flow(lane)
	h := wire.Header{Flow: f.Flow, Kind: wire.KindVoid, Reason: why, Base: f.base, First: f.last + 1, Count: uint64(n), Accepted: 1_800_000_000_000}
	data, err := wire.AppendVoid(nil, h)
	if err != nil {
		panic(err)
	}
	f.blocks = append(f.blocks, fakeBlock{h.Range(), data})
	f.last += uint64(n)
	wake(s.updates)
}

// flow is the current epoch's flow of a lane; numbering goes on from the last epoch.
func (s *fakeSpool) flow(lane wire.Lane) *fakeFlow {
	if s.epoch.IsZero() {
		s.epoch = wire.Epoch{s.runs}
	}
	base := uint64(1)
	for _, f := range s.flows {
		if f.Lane == lane && f.Epoch == s.epoch {
			return f
		}
		if f.Lane == lane {
			base = f.last + 1
		}
	}
	f := &fakeFlow{Flow: wire.Flow{Epoch: s.epoch, Lane: lane}, base: base, last: base - 1}
	s.flows = append(s.flows, f)
	return f
}

// held is what the spool still has of the flow.
func (f *fakeFlow) held() (out wire.Ranges) {
	for _, b := range f.blocks {
		out = out.Add(b.r)
	}
	return out
}

func (s *fakeSpool) find(w wire.Flow) *fakeFlow {
	for _, f := range s.flows {
		if f.Flow == w {
			return f
		}
	}
	return nil
}

// drop loses blocks that lie within r without a void.
func (s *fakeSpool) drop(w wire.Flow, r wire.Range) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(w)
	f.blocks = slices.DeleteFunc(f.blocks, func(b fakeBlock) bool { return wire.Ranges{r}.Contains(b.r) })
}

func (s *fakeSpool) Flows() (out []wire.FlowHeld) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lane := range wire.Lane(wire.NumLanes) {
		for _, f := range s.flows {
			if f.Lane == lane && len(f.blocks) > 0 {
				out = append(out, wire.FlowHeld{Flow: f.Flow, Base: f.base, First: f.blocks[0].r.First, Last: f.last})
			}
		}
	}
	return out
}

func (s *fakeSpool) Read(w wire.Flow, from uint64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if err := s.bad[fmt.Sprintf("%s/%d", w, from)]; err != nil {
		return nil, err
	}
	if f := s.find(w); f != nil {
		for _, b := range f.blocks {
			if b.r.Last >= from {
				return b.data, nil
			}
		}
	}
	return nil, fmt.Errorf("fake: nothing more: %w", io.EOF)
}

func (s *fakeSpool) Received(w wire.Flow, set wire.Ranges) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.find(w)
	if f == nil {
		return errors.New("fake: no such flow")
	}
	f.received = f.received.Union(set)
	if s.trims {
		f.blocks = slices.DeleteFunc(f.blocks, func(b fakeBlock) bool { return f.received.Contains(b.r) })
	}
	return nil
}

func (s *fakeSpool) Updates() <-chan struct{} { return s.updates }

// current is what Config.Epoch asks for.
func (s *fakeSpool) current() wire.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

func (s *fakeSpool) list() Spooled {
	return Spooled{Flows: s.Flows(), Current: s.current(), Known: true}
}

// taken is how many blocks were read.
func (s *fakeSpool) taken() int { s.mu.Lock(); defer s.mu.Unlock(); return s.reads }

// told is how many sequences the hub is known to have.
func (s *fakeSpool) told() (n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		n += f.received.Len()
	}
	return n
}

// drained reports whether the hub is known to have everything.
func (s *fakeSpool) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.flows {
		if !f.received.Contains(wire.Range{First: f.base, Last: f.last}) {
			return false
		}
	}
	return true
}

func (s *fakeSpool) HubID() string { s.mu.Lock(); defer s.mu.Unlock(); return s.hub }
func (s *fakeSpool) Token() string { s.mu.Lock(); defer s.mu.Unlock(); return s.tok }

func (s *fakeSpool) SetHubID(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub = id
	return nil
}

func (s *fakeSpool) SetToken(t string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tok = t
	return nil
}
