package hub

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	lookAge    = 500 * time.Millisecond // a sighting younger than this is not taken anew
	lookFor    = 5 * time.Second        // it takes no longer
	probeEvery = 10 * time.Second
	probeMost  = 2 // probes that may fail before another server of the cluster is tried
	// fullMargin is what a stream must still take to count as not full: the largest
	// block, or a tenth of a small stream.
	fullMargin = 1 << 20
)

// sighting is the streams at one moment.
type sighting struct {
	at       time.Time
	streams  []admin.Stream
	lag      []uint64 // by route, blocks
	ledger   uint64   // last sequence of BLOCKS
	lost     []uint64 // by route, blocks that were removed before they were unpacked
	unrouted uint64   // messages that no route takes
	err      error    // of reading them
}

func (s sighting) stream(name string) admin.Stream {
	for _, st := range s.streams {
		if st.Name == name {
			return st
		}
	}
	return admin.Stream{}
}

// monitor looks at the streams for status, metrics and readiness.
type monitor struct {
	hub     *Hub
	parts   *parts
	looking chan struct{} // has a value while somebody reads the streams
	misses  int           // probes that failed one after another; owned by run

	mu     sync.Mutex
	last   sighting   // guarded by mu
	probed error      // of the last write probe; guarded by mu
	failed error      // of the embedded server, until it starts anew; guarded by mu
	seen   inspection // guarded by mu
}

func newMonitor(p *parts) *monitor {
	return &monitor{hub: p.hub, parts: p, looking: make(chan struct{}, 1), last: sighting{lag: make([]uint64, len(p.hub.cfg.Routes))}}
}

// run keeps the gauges fresh and probes that the store takes writes.
func (m *monitor) run(ctx context.Context) error {
	tick := time.NewTicker(m.hub.probeEvery)
	defer tick.Stop()
	for {
		m.probe(ctx)
		m.inspect(ctx)
		m.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// probe writes one small value; JetStream answers when it is durable.
func (m *monitor) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	kv, err := m.parts.store.KV(ctx, store.HubBucket)
	if err == nil {
		err = m.hub.cfg.Fault("probe:write")
	}
	if err == nil {
		_, err = kv.PutString(ctx, "probe", m.hub.instance)
	}
	if ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return // stopping
	}
	m.mu.Lock()
	was := m.probed
	m.probed = err
	m.mu.Unlock()
	if m.misses++; err == nil {
		m.misses = 0
	} else if m.misses >= probeMost && m.parts.store.Leave() {
		m.misses = 0
		m.hub.cfg.Log.Warn("the cluster takes no writes through the server in use; another one is tried", "err", err)
	}
	switch {
	case err != nil && was == nil:
		m.hub.cfg.Log.Error("the store takes no writes", "err", err)
	case err == nil && was != nil:
		m.hub.cfg.Log.Info("the store takes writes again")
	}
}

// fail notes that the embedded server stores no more until it starts anew, or
// that it does.
func (m *monitor) fail(err error) {
	m.mu.Lock()
	was := m.failed
	m.failed = err
	m.mu.Unlock()
	if was == nil && err != nil {
		m.hub.cfg.Log.Error("the embedded server has failed", "err", err)
	}
}

// look returns a sighting that is fresh enough, and shows it in the metrics.
// A caller that is gone leaves the last one standing.
func (m *monitor) look(ctx context.Context) sighting {
	select {
	case m.looking <- struct{}{}:
		defer func() { <-m.looking }()
	case <-ctx.Done():
		return m.latest()
	}
	last := m.latest()
	if time.Since(last.at) < lookAge {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	s := m.read(ctx, last)
	if s.err != nil && ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded {
		return last
	}
	s.at = time.Now()
	m.mu.Lock()
	m.last = s
	m.mu.Unlock()
	m.hub.metrics.show(s, m.parts.registry.Numbers())
	return s
}

func (m *monitor) latest() sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// read takes a sighting; of a stream that cannot be read the last one stands.
func (m *monitor) read(ctx context.Context, last sighting) sighting {
	s := sighting{lag: make([]uint64, len(m.hub.cfg.Routes)), lost: m.parts.lost()}
	names := []string{store.Blocks}
	for _, r := range m.hub.cfg.Routes {
		if !r.packed() {
			names = append(names, r.Stream)
		}
	}
	for _, name := range append(names, store.Dead, store.Retry, store.Advisories, store.Commands) {
		info, err := m.parts.store.Info(ctx, name)
		if err != nil {
			s.err = err
			s.streams = append(s.streams, last.stream(name))
			continue
		}
		s.streams = append(s.streams, admin.Stream{Name: name, Messages: info.Messages, Bytes: info.Bytes,
			MaxBytes: info.MaxBytes, First: info.First, Last: info.Last})
	}
	s.ledger = s.stream(store.Blocks).Last
	s.unrouted = m.parts.unpack.Unrouted().Messages
	for i := range s.lag {
		s.lag[i] = m.parts.lag(i, s.ledger)
	}
	return s
}

// reasons says why the store does not do its work; empty if it does.
func (m *monitor) reasons(ctx context.Context) (out []string) {
	s := m.look(ctx)
	m.mu.Lock()
	probed, failed, found := m.probed, m.failed, m.seen
	m.mu.Unlock()
	out = append(out, found.reasons...)
	if found.err != nil {
		out = append(out, found.err.Error())
	}
	if err := m.parts.store.Err(); err != nil {
		out = append(out, err.Error())
	}
	if failed != nil {
		out = append(out, failed.Error())
	} else if probed != nil {
		out = append(out, "the store takes no writes: "+probed.Error())
	}
	if s.err != nil {
		out = append(out, "a stream cannot be read: "+s.err.Error())
	}
	for _, u := range m.parts.unpack.Status() {
		if u.Err != nil {
			out = append(out, fmt.Sprintf("unpacking into %s is held up: %v", u.Stream, u.Err))
		}
	}
	if err := m.parts.dead.Err(); err != nil {
		out = append(out, "dead letters are held up: "+err.Error())
	}
	if err := m.parts.desired.Err(); err != nil {
		out = append(out, "desired settings are held up: "+err.Error())
	}
	if err := m.parts.commands.Err(); err != nil {
		out = append(out, "commands are held up: "+err.Error())
	}
	for _, st := range s.streams {
		if isFull(st) && m.hub.refusesWhenFull(st.Name) {
			out = append(out, fmt.Sprintf("stream %s is full: %d of %d bytes; %s", st.Name, st.Bytes, st.MaxBytes, m.hub.whenFull(st.Name)))
		}
	}
	return out
}

// isFull reports whether a stream takes no more than a block or two.
func isFull(st admin.Stream) bool {
	return st.MaxBytes > 0 && int64(st.Bytes)+min(fullMargin, st.MaxBytes/10) > st.MaxBytes
}

// refusesWhenFull reports whether a full stream stops the flow; the others let
// their oldest messages go.
func (h *Hub) refusesWhenFull(stream string) bool {
	if stream == store.Blocks || stream == store.Advisories { // letters get lost then
		return true
	}
	for _, r := range h.cfg.Routes {
		if r.Stream == stream && !r.packed() {
			return r.Discard == "new"
		}
	}
	return false
}

// orphans lists the streams without a route.
func (m *monitor) orphans() []store.Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.orphans
}
