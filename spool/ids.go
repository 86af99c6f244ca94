package spool

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// The window in which a publisher's retry is recognised: whichever is less.
const (
	idWindow = 10 * time.Minute
	maxIDs   = 100_000
)

// idKey is what is kept of an id.
type idKey [16]byte

func hashID(id string) (k idKey) {
	sum := sha256.Sum256([]byte(id))
	copy(k[:], sum[:])
	return k
}

// idEntry says where the message with an id went. 40 bytes; with its share of
// the index about 50 bytes an id.
type idEntry struct {
	key  idKey
	seq  uint64
	at   int64 // acceptance, Unix milliseconds of the spool's clock
	flow uint32
}

// ids remembers the publisher ids of the window.
type ids struct {
	mu      sync.Mutex
	ring    []idEntry // circular, in order of acceptance
	head, n int
	index   []uint32 // open addressing, linear probing: 1 + place in ring; 0 is free
	flows   []wire.Flow
	flowNum map[wire.Flow]uint32
	pending map[idKey]pendingID
}

// pendingID is an id whose message is on its way to the disk.
type pendingID struct {
	group *group
	seq   uint64
}

func newIDs() *ids {
	return &ids{flowNum: map[wire.Flow]uint32{}, pending: map[idKey]pendingID{}}
}

// idState is what is known of an id.
type idState struct {
	group *group // not nil: still committing
	flow  wire.Flow
	seq   uint64
	known bool
}

func (t *ids) lookup(k idKey, now int64) idState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	return t.state(k)
}

// state is lookup; mu is held.
func (t *ids) state(k idKey) idState {
	if p, ok := t.pending[k]; ok {
		return idState{group: p.group, flow: p.group.flow, seq: p.seq, known: true}
	}
	if at, ok := t.find(k); ok {
		e := &t.ring[t.index[at]-1]
		return idState{flow: t.flows[e.flow], seq: e.seq, known: true}
	}
	return idState{}
}

// claim looks up every key, and notes those that are new as g's, numbered from
// seq on: all in one step, or nothing if another group is still committing one
// of them, which it returns. A zero key stands for a message without an id.
func (t *ids) claim(keys []idKey, g *group, seq uint64, now int64) (states []idState, other *group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if p, ok := t.pending[k]; ok && p.group != g {
			return nil, p.group
		}
	}
	t.expire(now)
	states = make([]idState, len(keys))
	for i, k := range keys {
		if k != (idKey{}) {
			if states[i] = t.state(k); states[i].known {
				continue
			}
			t.pending[k] = pendingID{g, seq}
			g.ids = append(g.ids, k)
		}
		seq++
	}
	return states, nil
}

// finish moves a group's ids into the window, or forgets them if it failed.
func (t *ids) finish(g *group, ok bool, now int64) {
	if len(g.ids) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range g.ids {
		p, there := t.pending[k]
		if !there || p.group != g {
			continue
		}
		delete(t.pending, k)
		if ok {
			t.push(k, g.flow, p.seq, now)
		}
	}
	t.expire(now)
}

// push appends an entry. mu is held.
func (t *ids) push(k idKey, f wire.Flow, seq uint64, at int64) {
	if _, ok := t.find(k); ok {
		return // read twice at start
	}
	num, ok := t.flowNum[f]
	if !ok {
		num = uint32(len(t.flows))
		t.flows, t.flowNum[f] = append(t.flows, f), num
	}
	if t.n == maxIDs {
		t.pop()
	}
	if t.n == len(t.ring) {
		t.grow()
	}
	slot := (t.head + t.n) % len(t.ring)
	t.ring[slot] = idEntry{key: k, seq: seq, at: at, flow: num}
	t.n++
	free, _ := t.find(k)
	t.index[free] = uint32(slot) + 1
}

// find returns the place of k in the index, or the free one where it belongs.
func (t *ids) find(k idKey) (at int, ok bool) {
	if len(t.index) == 0 {
		return 0, false
	}
	for at = t.home(k); t.index[at] != 0; at = (at + 1) % len(t.index) {
		if t.ring[t.index[at]-1].key == k {
			return at, true
		}
	}
	return at, false
}

func (t *ids) home(k idKey) int { return int(binary.NativeEndian.Uint32(k[:])) & (len(t.index) - 1) }

// grow doubles the ring, and keeps the index at most half full.
func (t *ids) grow() {
	ring := make([]idEntry, min(max(2*len(t.ring), 256), maxIDs))
	for i := range t.n {
		ring[i] = *t.at(i)
	}
	t.ring, t.head = ring, 0
	size := 1
	for size < 2*len(ring) {
		size *= 2
	}
	t.index = make([]uint32, size)
	for i := range t.n {
		free, _ := t.find(ring[i].key)
		t.index[free] = uint32(i) + 1
	}
}

func (t *ids) at(i int) *idEntry { return &t.ring[(t.head+i)%len(t.ring)] }

func (t *ids) expire(now int64) {
	for t.n > 0 && t.at(0).at < now-idWindow.Milliseconds() {
		t.pop()
	}
	if t.n == 0 && len(t.ring) > 4096 { // give the memory of a burst back
		t.ring, t.head, t.index = nil, 0, nil
	}
}

// pop forgets the oldest entry.
func (t *ids) pop() {
	if at, ok := t.find(t.at(0).key); ok {
		t.unindex(at)
	}
	t.head = (t.head + 1) % len(t.ring)
	t.n--
}

// unindex frees a place, and moves up what had to step aside because of it.
func (t *ids) unindex(hole int) {
	mask := len(t.index) - 1
	for at := hole; ; {
		at = (at + 1) & mask
		if t.index[at] == 0 {
			break
		}
		home := t.home(t.ring[t.index[at]-1].key)
		if (at-home)&mask >= (at-hole)&mask {
			t.index[hole], hole = t.index[at], at
		}
	}
	t.index[hole] = 0
}

// within copies the entries that lie in the given parts, in order.
func (t *ids) within(parts []part, now int64) (out []idRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(now)
	for i := range t.n {
		e := t.at(i)
		f := t.flows[e.flow]
		if p := partOf(parts, f); p != nil && p.ranges.Contains(wire.Range{First: e.seq, Last: e.seq}) {
			out = append(out, idRecord{key: e.key, flow: f, seq: e.seq, at: e.at})
		}
	}
	return out
}
