package spool

import (
	"errors"
	"fmt"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// commitLoop makes groups durable, one at a time.
func (l *lane) commitLoop() {
	defer l.done.Done()
	for g := range l.commits {
		l.commit(g)
		l.idle <- struct{}{}
	}
}

// commit writes and syncs g, then lets it be seen, then answers. Nothing of it
// can be read before its fsync.
func (l *lane) commit(g *group) {
	err := l.commitTo(g)
	if err != nil {
		g.seg.failed.Store(true)
		l.fail(g, diskError("commit to "+g.seg.dir, err))
		return
	}
	l.failed = nil
	l.s.ids.finish(g, true, l.s.clock())
	_ = l.s.fault("commit:done") // durable and visible: an error here has nothing to undo
	g.answer(nil)
	l.s.notify()
}

// commitTo makes g durable and lets it be seen.
func (l *lane) commitTo(g *group) error {
	g.seg.writing.Lock()
	defer g.seg.writing.Unlock()
	if g.seg.frozen {
		return fmt.Errorf("%w: the room was given to a more urgent lane this very moment", ErrFull)
	}
	if err := l.write(g); err != nil {
		return err
	}
	l.noteLast(g.seg, g.records)
	l.s.publish(g)
	return nil
}

func (l *lane) write(g *group) error {
	if err := l.s.fault("commit:begin"); err != nil {
		return err
	}
	voids, err := l.voids(g)
	if err != nil {
		return err
	}
	g.records = append(voids, g.records...)
	if l.s.grouped != nil {
		l.s.grouped(g.records)
	}
	if err := g.seg.head.write(l.s, g.records); err != nil {
		return err
	}
	return l.s.fault("commit:publish")
}

// voids covers the numbers of failed commits, so that they become durable with
// the next messages of the flow and the sequence has no hole.
func (l *lane) voids(g *group) (out []record, err error) {
	now := l.s.time.stamp()
	for _, r := range l.failed {
		data, err := wire.AppendVoid(nil, wire.Header{Flow: g.flow, Kind: wire.KindVoid, Reason: wire.ReasonFailedCommit,
			Base: g.base, First: r.First, Count: r.Len(), Accepted: now})
		if err != nil {
			return nil, err
		}
		out = append(out, record{flow: g.flow, Range: r, data: data, accepted: now})
	}
	return out, nil
}

// fail answers a group whose commit failed. Its numbers are never used again.
func (l *lane) fail(g *group, err error) {
	l.failed = l.failed.Add(wire.Range{First: g.first, Last: g.next - 1})
	l.s.ids.finish(g, false, 0)
	l.s.setTrouble(err)
	l.s.cfg.Log.Error("spool: a commit failed; its publishers were told", "lane", l.name, "messages", g.messages, "error", err)
	g.answer(err)
}

// answer calls back every request of g.
func (g *group) answer(err error) {
	for _, r := range g.requests {
		if err != nil {
			r.done(Receipt{}, err)
			continue
		}
		r.done(r.receipt, nil)
	}
	close(g.done)
}

// publish lets readers see a group that is durable.
func (s *Spool) publish(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fl := s.flow(g.flow)
	for _, rec := range g.records {
		if h := len(fl.segs); h == 0 || fl.segs[h-1] != g.seg {
			fl.segs = append(fl.segs, g.seg)
		}
		g.seg.add(rec)
		partOf(g.seg.parts, g.flow).base = g.base
		s.expects(g.seg, rec)
		s.tail.put(rec)
		if rec.First < g.first { // a void of a commit that failed
			s.goneAtOnce(fl, goneRange{rec.Range, wire.ReasonFailedCommit, inBlock})
		}
	}
	g.seg.ids += len(g.ids)
	s.mostIDs = max(s.mostIDs, g.seg.ids)
	fl.last = g.next - 1
	s.high[g.flow.Lane] = fl.last
	if !errors.Is(s.trouble, ErrFull) && !errors.Is(s.trouble, ErrDiskFull) { // of another lane, maybe
		s.trouble = nil
	}
}

// notify tells the reader that there is something new. It never blocks.
func (s *Spool) notify() {
	select {
	case s.updates <- struct{}{}:
	default:
	}
}

// Updates receives a value after commits; it never blocks the spool (capacity 1).
func (s *Spool) Updates() <-chan struct{} { return s.updates }

// tail keeps the newest blocks in memory, so that a live link reads none of
// them from disk and a seal makes nobody wait.
type tail struct {
	blocks map[tailKey][]byte
	order  []tailKey
	bytes  int
}

type tailKey struct {
	flow  wire.Flow
	first uint64
}

const maxTail = 1 << 20

func (t *tail) put(rec record) {
	if len(rec.data) > maxTail/4 {
		return
	}
	k := tailKey{rec.flow, rec.First}
	t.blocks[k] = rec.data
	t.order = append(t.order, k)
	t.bytes += len(rec.data) + 64
	for t.bytes > maxTail {
		t.bytes -= len(t.blocks[t.order[0]]) + 64
		delete(t.blocks, t.order[0])
		t.order = t.order[1:]
	}
}

func (t *tail) get(f wire.Flow, r wire.Range) []byte { return t.blocks[tailKey{f, r.First}] }

func (s *Spool) setTrouble(err error) {
	s.mu.Lock()
	s.trouble = err
	s.mu.Unlock()
}
