package uplink

import (
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeHub is the least that a hub has to be: sessions, and a ledger by the
// rules of ledger.go that stores at once.
type fakeHub struct {
	mu         sync.Mutex
	id         string
	instance   string
	ledger     map[wire.Flow]*fakeLedger
	sessions   map[wire.SessionID]*fakeSession
	last       uint64 // session
	maxPayload int
	large      int // blocks that came in chunks
	window     int
	fifo       bool                // else blocks need not be in order
	stream     bool                // the hub reads compressed streams
	closed     map[wire.Epoch]bool // reported drained
	token      string              // handed out with the next session
	confirmed  string
	dec        *wire.Decoder
	chunks     [wire.MaxSlots]fakeChunks // of the last session, that the next one may go on with
}

// fakeChunks is a block that has come in part.
type fakeChunks struct {
	data []byte
	size int
}

// add takes in a chunk and returns the block once it is whole.
func (f *fakeChunks) add(c wire.Chunk) (block []byte, ok bool) {
	if c.First {
		*f = fakeChunks{size: len(c.Data) + int(c.Left)}
	}
	f.data = append(f.data, c.Data...)
	if len(f.data)+int(c.Left) != f.size {
		return nil, false
	}
	if block = f.data; c.Left == 0 {
		*f = fakeChunks{}
	}
	return block, true
}

// partials lists the blocks of which something is there.
func partials(chunks []fakeChunks) (out []wire.Partial) {
	for i, f := range chunks {
		if len(f.data) > 0 {
			out = append(out, wire.Partial{Slot: uint8(i), Bytes: len(f.data), Size: f.size, CRC: wire.UpdateCRC(0, f.data)})
		}
	}
	return out
}

type fakeLedger struct {
	received wire.Ranges
	messages []uint64 // sequences stored, as the payloads say
	live     []uint64 // those in frames that were no backfill
	backfill []uint64 // and those in frames that were
	voids    wire.Ranges
}

type fakeSession struct {
	counter uint64
	process string
	stream  *wire.StreamDecoder
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		id: "hub1", instance: "i1", ledger: map[wire.Flow]*fakeLedger{}, sessions: map[wire.SessionID]*fakeSession{},
		maxPayload: 1 << 20, window: 8 << 20, fifo: true, stream: true, closed: map[wire.Epoch]bool{}, dec: wire.NewDecoder(),
	}
}

// open answers an open request.
func (h *fakeHub) open(o *wire.Open) *wire.OpenReply {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.HubID != "" && o.HubID != h.id {
		return &wire.OpenReply{Protocol: wire.Protocol, HubID: h.id, Error: &wire.SessionError{Code: wire.CodeWrongHub, Detail: "another"}}
	}
	for id, s := range h.sessions {
		if s.process == o.Process {
			delete(h.sessions, id)
		}
	}
	h.last++
	id := wire.SessionID{byte(h.last >> 8), byte(h.last), 1}
	h.sessions[id] = &fakeSession{process: o.Process, stream: wire.NewStreamDecoder()}
	r := &wire.OpenReply{
		Protocol: wire.Protocol, Session: (*wire.Epoch)(&id), Instance: h.instance, HubID: h.id, Token: h.token,
		MaxPayload: h.maxPayload, Window: h.window, Time: 1, Partial: partials(h.chunks[:]),
	}
	if h.stream {
		r.Stream = wire.StreamName
	}
	for _, f := range o.Flows {
		if l := h.ledger[f.Flow]; l != nil {
			r.Received = append(r.Received, wire.FlowReceived{Flow: f.Flow, Ranges: l.received})
		}
	}
	return r
}

// frame takes in a frame; exactly one of the results is set, none after a bye.
func (h *fakeHub) frame(data []byte) (wire.SessionID, *wire.Ack, *wire.SessionError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, err := wire.ParseFrame(data)
	var s *fakeSession
	for id, o := range h.sessions {
		if err == nil && f.Of(id) {
			f.Session, s = id, o
		}
	}
	end := func(code string) (wire.SessionID, *wire.Ack, *wire.SessionError) {
		delete(h.sessions, f.Session)
		return f.Session, nil, &wire.SessionError{Code: code, Detail: "fake"}
	}
	switch {
	case err != nil:
		return end(wire.CodeCorrupt)
	case s == nil && len(h.sessions) > 0: // a late one
		return f.Session, nil, nil
	case s == nil:
		return end(wire.CodeIdle)
	case f.Counter != s.counter+1:
		return end(wire.CodeGap)
	}
	s.counter++
	ack := &wire.Ack{Counter: s.counter}
	switch f.Type {
	case wire.FrameConfirm:
		h.confirmed = string(f.Body)
	case wire.FrameDrained:
		h.closed[wire.Epoch(f.Body)] = true
	case wire.FrameBye:
		delete(h.sessions, f.Session)
		return f.Session, nil, nil
	case wire.FrameChunk:
		c, err := wire.ParseChunk(f.Body)
		if err != nil || len(f.Body) > h.maxPayload {
			return end(wire.CodeCorrupt)
		}
		block, ok := h.chunks[c.Slot].add(c)
		if !ok {
			return end(wire.CodeCorrupt)
		}
		if c.Left > 0 {
			break
		}
		f.Type, f.Body = wire.FrameBlock, block
		h.large++
		flow, code := h.store(s, f)
		if code != "" {
			return end(code)
		}
		ack.Flows = []wire.FlowReceived{{Flow: flow, Ranges: h.ledger[flow].received}}
	case wire.FrameBlock, wire.FrameStream:
		if len(f.Body) > h.maxPayload {
			return end(wire.CodeRefused)
		}
		flow, code := h.store(s, f)
		if code != "" {
			return end(code)
		}
		ack.Flows = []wire.FlowReceived{{Flow: flow, Ranges: h.ledger[flow].received}}
	}
	return f.Session, ack, nil
}

func (h *fakeHub) store(s *fakeSession, f wire.Frame) (wire.Flow, string) {
	var b *wire.Block
	var err error
	if f.Type == wire.FrameStream {
		b, err = s.stream.Decode(f.Body)
	} else {
		b, err = h.dec.Decode(f.Body, false)
	}
	if err != nil {
		return wire.Flow{}, wire.CodeCorrupt
	}
	l := h.ledger[b.Flow]
	if l == nil {
		l = &fakeLedger{}
		h.ledger[b.Flow] = l
	}
	switch Judge(l.received, &b.Header, h.fifo) {
	case Partial:
		return b.Flow, wire.CodePartial
	case Early:
		return b.Flow, wire.CodeEarly
	case Store:
		l.received = l.received.Add(b.Range())
		if b.Kind == wire.KindVoid {
			l.voids = l.voids.Add(b.Range())
		}
		for i := range b.Messages {
			seq := sequenceOf(&b.Messages[i])
			l.messages = append(l.messages, seq)
			if f.Backfill {
				l.backfill = append(l.backfill, seq)
			} else {
				l.live = append(l.live, seq)
			}
		}
	}
	return b.Flow, ""
}

// rewind is a hub restored from a backup: the last n sequences of every flow
// are lost, and so are all sessions.
func (h *fakeHub) rewind(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.sessions)
	for _, l := range h.ledger {
		if len(l.received) == 0 {
			continue
		}
		end := l.received[len(l.received)-1].Last
		keep := max(end, n) - n
		l.received, l.voids = upTo(l.received, keep), upTo(l.voids, keep)
		for _, list := range []*[]uint64{&l.messages, &l.live, &l.backfill} {
			*list = slices.DeleteFunc(*list, func(seq uint64) bool { return seq > keep })
		}
	}
}

// upTo is the part of a set that does not pass last.
func upTo(s wire.Ranges, last uint64) (out wire.Ranges) {
	for _, r := range s {
		if r.First <= last {
			out = out.Add(wire.Range{First: r.First, Last: min(r.Last, last)})
		}
	}
	return out
}

// sequenceOf reads what fakeSpool put at the start of the payload.
func sequenceOf(m *wire.Message) uint64 {
	n := 0
	for n < len(m.Payload) && n < 19 && m.Payload[n] >= '0' && m.Payload[n] <= '9' {
		n++
	}
	seq, _ := strconv.ParseUint(string(m.Payload[:n]), 10, 64)
	return seq
}

// check compares the ledger with what was appended: each flow's messages are
// there exactly once and in order, apart from voids.
func (h *fakeHub) check(flows []*fakeFlow) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range flows {
		l := h.ledger[f.Flow]
		if l == nil {
			return fmt.Errorf("flow %s: nothing arrived", f.Flow)
		}
		want := f.base
		messages := l.messages
		if !h.fifo {
			if !slices.IsSorted(l.live) || !slices.IsSorted(l.backfill) {
				return fmt.Errorf("flow %s: not in order: live %d, backfill %d", f.Flow, l.live, l.backfill)
			}
			messages = slices.Sorted(slices.Values(messages))
		}
		for _, seq := range messages {
			for l.voids.Contains(wire.Range{First: want, Last: want}) {
				want++
			}
			if seq != want {
				return fmt.Errorf("flow %s: sequence %d came where %d was due", f.Flow, seq, want)
			}
			want++
		}
		for l.voids.Contains(wire.Range{First: want, Last: want}) {
			want++
		}
		if want != f.last+1 {
			return fmt.Errorf("flow %s: %d to %d did not arrive", f.Flow, want, f.last)
		}
	}
	return nil
}

// answerOf is the end of a session as its agent hears of it.
func answerOf(h *fakeHub, id wire.SessionID, end *wire.SessionError) Ended {
	if id == (wire.SessionID{}) {
		return Ended{"", h.instance, end}
	}
	return Ended{id.Tag(), "", end}
}

// subjectOf is where a hub tells it.
func subjectOf(h *fakeHub, device string, id wire.SessionID) string {
	if id == (wire.SessionID{}) {
		return wire.StraySubject(device, h.instance)
	}
	return wire.SessionSubject(device, id)
}
