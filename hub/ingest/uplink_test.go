package ingest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// source is a spool in memory: messages are cut into blocks of the given size.
type source struct {
	t       testing.TB
	mu      sync.Mutex
	enc     *wire.Encoder
	per     uint64
	size    int // of a payload
	last    map[wire.Flow]uint64
	got     map[wire.Flow]wire.Ranges
	done    chan struct{}
	updates chan struct{}
}

func newSource(t testing.TB, per uint64, last map[wire.Flow]uint64) *source {
	s := &source{
		t: t, enc: wire.NewEncoder(wire.Fast), per: per, size: 60, last: last,
		got: map[wire.Flow]wire.Ranges{}, done: make(chan struct{}), updates: make(chan struct{}, 1),
	}
	s.updates <- struct{}{}
	return s
}

func (s *source) Flows() []wire.FlowHeld {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []wire.FlowHeld
	for f, last := range s.last {
		if missing := s.got[f].Missing(wire.Range{First: 1, Last: last}); len(missing) > 0 {
			out = append(out, wire.FlowHeld{Flow: f, Base: 1, First: missing[0].First, Last: last})
		}
	}
	slices.SortFunc(out, func(a, b wire.FlowHeld) int {
		if a.Lane != b.Lane {
			return int(a.Lane) - int(b.Lane)
		}
		return slices.Compare(a.Epoch[:], b.Epoch[:])
	})
	return out
}

func (s *source) Read(f wire.Flow, from uint64) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = max(from, 1)
	if from > s.last[f] {
		return nil, io.EOF
	}
	first := (from-1)/s.per*s.per + 1
	return block(s.t, s.enc, f, first, min(first+s.per-1, s.last[f]), s.size), nil
}

func (s *source) Received(f wire.Flow, set wire.Ranges) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[f] = s.got[f].Union(set)
	for f, last := range s.last {
		if !s.got[f].Contains(wire.Range{First: 1, Last: last}) {
			return nil
		}
	}
	select {
	case <-s.done:
	default:
		close(s.done)
	}
	return nil
}

func (s *source) Updates() <-chan struct{} { return s.updates }

type pins struct {
	mu         sync.Mutex
	hub, token string
}

func (p *pins) HubID() string { p.mu.Lock(); defer p.mu.Unlock(); return p.hub }
func (p *pins) Token() string { p.mu.Lock(); defer p.mu.Unlock(); return p.token }
func (p *pins) SetHubID(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hub = id
	return nil
}
func (p *pins) SetToken(t string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token = t
	return nil
}

// dialer cuts each connection after a while, unless cut is 0. Each lives a little
// longer than the one before, so that there is an end on slow machines too.
type dialer struct {
	*link.NATS
	cut time.Duration
}

func (d *dialer) Dial(ctx context.Context) (link.Conn, error) {
	c, err := d.NATS.Dial(ctx)
	if err == nil && d.cut > 0 {
		time.AfterFunc(d.cut, c.Close)
		d.cut += d.cut / 8
	}
	return c, err
}

// startUplink sends from src until the test ends.
func startUplink(t testing.TB, urls []string, device, process string, src *source, cut time.Duration) {
	t.Helper()
	d, err := link.NewNATS(link.Config{URLs: urls, Device: device})
	if err != nil {
		t.Fatal(err)
	}
	up := uplink.New(uplink.Config{
		Device: device, Process: process, Source: src, Pins: &pins{}, Dialer: &dialer{d, cut},
		Rand: func() float64 { return 0.1 },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- up.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func runUplink(t testing.TB, url, device string, flows map[wire.Flow]uint64) {
	t.Helper()
	src := newSource(t, 7, flows)
	startUplink(t, []string{url}, device, "p", src, 0)
	src.wait(t)
}

func (s *source) wait(t testing.TB) {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(5 * time.Minute):
		t.Fatal("not everything is acked")
	}
}

// checkLedger reads the ledger as unpacking will: every sequence of every flow
// once, in order, with its own content. It returns how many blocks came in pieces.
func checkLedger(t testing.TB, msgs []store.Stored, flows map[wire.Flow]uint64) (large int) {
	t.Helper()
	dec := wire.NewDecoder()
	next := map[wire.Flow]uint64{}
	var parts []byte // of the block at hand
	for _, m := range msgs {
		if v := m.Header.Get(hdrPiece); v != "" {
			parts = append(parts, m.Data...)
			if i, n, _ := strings.Cut(v, "/"); i != n {
				if m.Header[hdrReceived] != nil {
					t.Errorf("message %d: piece %s has a received set", m.Seq, v)
				}
				continue
			}
			m.Data, parts = parts, nil
			large++
		}
		b, err := dec.Decode(m.Data, false)
		if err != nil {
			t.Fatalf("message %d: %v", m.Seq, err)
		}
		if b.First != next[b.Flow]+1 {
			t.Errorf("message %d: %s %s follows %d", m.Seq, b.Flow, b.Range(), next[b.Flow])
		}
		next[b.Flow] = b.Last()
		if got, want := m.Header.Get(hdrReceived), fmt.Sprintf("1-%d", b.Last()); got != want {
			t.Errorf("message %d: received %s, want %s", m.Seq, got, want)
		}
		for i, msg := range b.Messages {
			if want := payload(b.Flow, b.First+uint64(i), max(60, len(msg.Payload))); string(msg.Payload) != string(want) {
				t.Errorf("%s %d holds %.99q", b.Flow, b.First+uint64(i), msg.Payload)
			}
		}
	}
	for f, last := range flows {
		if next[f] != last {
			t.Errorf("%s ends with %d, want %d", f, next[f], last)
		}
	}
	return large
}
