package spool

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// With Config.MemoryFirst a commit only goes to memory while the link is up, and
// is answered at once. Nothing newer of its lane reaches the disk before it
// does: what the hub has not received is written to the head, in order, when the
// link goes down, when there is too much of it or it waits too long, and at Close.
const (
	maxHeld  = 4 << 20         // bytes of blocks that only memory holds, all lanes together
	holdTime = 5 * time.Second // and for how long, though the link is up
	spillGap = time.Second     // between attempts to write them
)

// memory is what a lane holds in memory only. All of it is of this run's flow.
type memory struct {
	seg *segment // as readers see it; it is in no list of segments, and last in its flow

	// Guarded by Spool.mu.
	records  []record // in order, the hub lacks something of each
	bytes    int64
	received wire.Ranges // what the hub got before it was ever written

	// Owned by the lane's run.
	since time.Time // when the first record came into an empty memory, or later
	again time.Time // no attempt to write before
	timer *time.Timer
}

func newMemory(l *lane) *memory {
	m := &memory{seg: &segment{dir: "memory"}}
	m.seg.memory = m
	m.reset()
	m.timer = time.AfterFunc(time.Hour, l.poke)
	m.timer.Stop()
	return m
}

// LinkUp tells whether blocks reach the hub at present. It only matters with
// Config.MemoryFirst, and does not block.
func (s *Spool) LinkUp(up bool) {
	s.linkUp.Store(up)
	if !up {
		for _, l := range s.lanes {
			l.poke()
		}
	}
}

// reset describes the records to readers anew. Spool.mu is held, or nobody
// reads yet.
func (m *memory) reset() {
	m.bytes, m.seg.parts = 0, nil
	m.seg.imu.Lock()
	m.seg.index = map[wire.Flow][]wire.Range{}
	m.seg.imu.Unlock()
	for _, rec := range m.records {
		m.bytes += int64(len(rec.data))
		m.seg.add(rec)
	}
}

// get returns the block that holds seq, or none. Spool.mu is held.
func (m *memory) get(seq uint64) record {
	for _, rec := range m.records {
		if rec.First <= seq && seq <= rec.Last {
			return rec
		}
	}
	return record{}
}

// forget drops the records for which gone is true. Spool.mu is held.
func (m *memory) forget(fl *flowState, gone func(record) bool) {
	n := len(m.records)
	if m.records = slices.DeleteFunc(m.records, gone); len(m.records) == n {
		return
	}
	m.reset()
	if len(m.records) == 0 {
		m.records = nil
		fl.segs = slices.DeleteFunc(fl.segs, func(g *segment) bool { return g == m.seg })
	}
}

// freeMemory drops what the hub has, or will never get. mu is held.
func (s *Spool) freeMemory(fl *flowState) {
	if l := s.lanes[fl.Lane]; l != nil && l.mem != nil {
		l.mem.forget(fl, func(rec record) bool {
			if rec.flow != fl.Flow || !fl.settled(rec.Range) {
				return false
			}
			l.mem.received = l.mem.received.Add(rec.Range)
			fl.removed = fl.removed.Add(rec.Range) // no segment ever holds it
			return true
		})
	}
}

// memoryBytes is what is held in memory only. mu is held.
func (s *Spool) memoryBytes() (n int64) {
	for _, l := range s.lanes {
		if l != nil && l.mem != nil {
			n += l.mem.bytes
		}
	}
	return n
}

// countMemory adds what only memory holds. mu is held.
func (s *Spool) countMemory(st *Stats) {
	for _, l := range s.lanes {
		if l != nil && l.mem != nil {
			for i := range l.mem.seg.parts {
				s.countPart(st, &l.mem.seg.parts[i])
			}
		}
	}
	st.Memory = s.memoryBytes()
}

// holds reports whether the lane has anything in memory only.
func (l *lane) holds() bool {
	if l.mem == nil {
		return false
	}
	l.s.mu.RLock()
	defer l.s.mu.RUnlock()
	return len(l.mem.records) > 0
}

// due reports whether what memory holds must be written now.
func (l *lane) due() bool {
	if !l.holds() {
		return false
	}
	now := time.Now()
	at := l.mem.since.Add(holdTime)
	if !l.s.linkUp.Load() {
		at = now
	}
	if l.mem.again.After(at) {
		at = l.mem.again
	}
	if at.After(now) {
		l.mem.timer.Reset(at.Sub(now))
		return false
	}
	return true
}

// fitsBeside reports whether the head has room for blocks of together at most
// bytes, n in number, and for all that memory holds: it can be written whenever
// it has to.
func (l *lane) fitsBeside(bytes int64, n int) bool {
	h := l.head
	if l.mem == nil {
		return h.room(bytes, n)
	}
	l.s.mu.RLock()
	with := head{geo: h.geo, vlogUsed: h.vlogUsed, inline: h.inline, blocks: h.blocks}
	with.take(l.mem.records)
	txns := len(l.mem.records)/8 + 1 // each is booked with room for a void
	l.s.mu.RUnlock()
	with.inline, with.blocks = with.inline+int64(txns)*256, with.blocks+txns
	return with.room(bytes, n)
}

// keep takes a group into memory and answers it. It is false if the group has
// to go to the disk. The committer is idle.
func (l *lane) keep(g *group) bool {
	if l.mem == nil || !l.s.linkUp.Load() {
		return false
	}
	size := int64(0)
	for _, rec := range g.records {
		size += int64(len(rec.data))
	}
	l.s.mu.RLock()
	held := l.s.memoryBytes()
	l.s.mu.RUnlock()
	if held+size > maxHeld {
		if !l.holds() || l.spill() != nil || size > maxHeld {
			return false
		}
	}
	voids, err := l.voids(g)
	if err == nil {
		err = l.s.fault("memory:keep")
	}
	if err != nil {
		l.fail(g, err)
		return true
	}
	g.records, g.seg = append(voids, g.records...), l.mem.seg
	l.s.mu.Lock()
	if len(l.mem.records) == 0 {
		l.mem.since = time.Now()
	}
	l.mem.records = append(l.mem.records, g.records...)
	l.mem.bytes += size
	l.s.mu.Unlock()
	l.s.publish(g)
	l.failed = nil
	l.s.ids.finish(g, true, l.s.clock())
	g.answer(nil)
	l.s.notify()
	return true
}

// spill writes everything that only memory holds to the head. What an error
// left in memory stays there, readable. The committer is idle.
func (l *lane) spill() (err error) {
	defer func() {
		if err != nil {
			l.mem.again = time.Now().Add(spillGap)
			l.s.setTrouble(err)
		}
	}()
	for {
		l.s.mu.Lock()
		l.s.freeMemory(l.s.flow(l.flow)) // what was purged
		recs := slices.Clone(l.mem.records)
		l.s.mu.Unlock()
		if len(recs) == 0 {
			return nil
		}
		if err := l.s.fault("memory:spill"); err != nil {
			return diskError("write what memory holds", err)
		}
		if recs, err = l.spillHead(recs); err != nil {
			return err
		}
		if err := l.move(recs); err != nil {
			return err
		}
		if l.head.halfFull() {
			l.s.keeper.wantSpare()
		}
	}
}

// spillHead makes sure that a head has room for the first of recs, and returns
// as many as fit one transaction.
func (l *lane) spillHead(recs []record) ([]record, error) {
	geo := l.s.geo
	inline, vlog := int64(0), int64(0)
	for i, rec := range recs {
		v, in := cost(len(rec.data))
		if i > 0 && (inline+in+256 > geo.maxTxn() || vlog+v > geo.bytes || i == 64) {
			recs = recs[:i]
			break
		}
		vlog, inline = vlog+v, inline+in+256
	}
	if l.usable() {
		h := l.head
		if h.blocks+len(recs) < geo.blocks && h.inline+inline <= geo.inline && h.vlogUsed+vlog <= geo.bytes {
			return recs, nil
		}
	}
	return recs, l.newHead(vlog)
}

// move writes records to the head, unless that was given away just now.
func (l *lane) move(recs []record) error {
	l.seg.writing.Lock()
	defer l.seg.writing.Unlock()
	if l.seg.frozen {
		return nil // spill looks again
	}
	l.head.take(recs)
	if err := l.seg.head.write(l.s, recs); err != nil {
		l.seg.failed.Store(true)
		return diskError("commit to "+l.seg.dir, err)
	}
	l.noteLast(l.seg, recs)
	l.moved(recs)
	return nil
}

// moved lets readers find records in the head from now on.
func (l *lane) moved(recs []record) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	fl := s.flow(l.flow)
	for _, rec := range recs {
		l.seg.add(rec)
		s.expects(l.seg, rec)
	}
	partOf(l.seg.parts, l.flow).base = l.base
	if !slices.Contains(fl.segs, l.seg) {
		at := slices.Index(fl.segs, l.mem.seg)
		if at < 0 { // the hub was faster
			at = len(fl.segs)
		}
		fl.segs = slices.Insert(fl.segs, at, l.seg)
	}
	last := recs[len(recs)-1].Last
	l.mem.forget(fl, func(rec record) bool { return rec.Last <= last })
}

// spillDue writes what is due. A failure is told to the log; the next message
// is refused until it succeeds.
func (l *lane) spillDue() {
	l.drain()
	if err := l.spill(); err != nil {
		l.s.cfg.Log.Error("spool: messages that only memory holds could not be written; trying again", "lane", l.name, "error", err)
	}
}

// spillLast writes what memory holds when the lane closes.
func (l *lane) spillLast() {
	if l.mem == nil {
		return
	}
	l.mem.timer.Stop()
	err := l.spill()
	if err != nil && !errors.Is(err, ErrFull) {
		err = l.spill() // into another head
	}
	if err != nil {
		l.lostErr = fmt.Errorf("messages of lane %s that only memory held are lost: %w", l.name, err)
	}
}

// keepMemoryIDs makes the publisher ids durable whose messages the hub got
// before they were ever written. The lanes have ended.
func (s *Spool) keepMemoryIDs() error {
	var parts []part
	s.mu.Lock()
	for _, l := range s.lanes {
		if l.mem != nil && len(l.mem.received) > 0 {
			parts = append(parts, part{flow: l.flow, ranges: l.mem.received})
		}
	}
	s.mu.Unlock()
	recs := s.ids.within(parts, s.clock())
	if len(recs) == 0 {
		return nil
	}
	s.mu.Lock()
	s.nextSegment++
	path := s.idsPath(s.nextSegment)
	s.mu.Unlock()
	err := os.WriteFile(path, appendIDs(nil, recs), 0o600)
	if err == nil {
		err = syncPath(path)
	}
	if err == nil {
		err = syncDir(s.idsDir())
	}
	if err != nil {
		return diskError("write "+path, err)
	}
	return nil
}
