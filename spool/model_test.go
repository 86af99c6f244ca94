package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// model is what a spool is, without disk: what was accepted under which number
// and what the hub has.
type model struct {
	high   [wire.NumLanes]uint64
	flows  []*modelFlow // in order of their first message
	byFlow map[wire.Flow]*modelFlow
	ids    map[string]place
}

type place struct {
	flow wire.Flow
	seq  uint64
}

type modelFlow struct {
	flow     wire.Flow
	base     uint64
	msgs     []*modelMsg // from base
	received wire.Ranges
}

// modelMsg is one message. It is removed when a policy took it before the hub had
// it; until that was handed out, the hub may turn out to have its content.
type modelMsg struct {
	payload string
	subject string
	expires time.Duration // of the host's count; 0: never
	removed wire.Reason
	told    bool        // its blank was handed out
	void    *wire.Range // … or this void
	was     *wire.Range // that it is a rest of
}

func (f *modelFlow) at(seq uint64) *modelMsg { return f.msgs[seq-f.base] }

func (f *modelFlow) has(seq uint64) bool {
	return f.received.Contains(wire.Range{First: seq, Last: seq})
}

func (f *modelFlow) last() uint64 { return f.base + uint64(len(f.msgs)) - 1 }

// firstHeld is the lowest sequence that the hub has not.
func (f *modelFlow) firstHeld() (uint64, bool) {
	m := f.received.Missing(wire.Range{First: f.base, Last: f.last()})
	if len(m) == 0 {
		return 0, false
	}
	return m[0].First, true
}

// system is the real spool beside its model.
type system struct {
	root string
	n    int
	cfg  Config
	s    *Spool
	m    model
	host *fakeHost
	next int
}

func (x *system) open(t *rapid.T) {
	s, err := Open(x.cfg)
	if err != nil {
		t.Fatal(err)
	}
	x.s = s
}

func (x *system) append(t *rapid.T) {
	lane := rapid.SampledFrom([]wire.Lane{wire.Urgent, wire.Normal, wire.Normal, wire.Bulk}).Draw(t, "lane")
	var ms []wire.Message
	fresh, dups := 0, 0
	var names []*modelMsg
	for range rapid.IntRange(1, 6).Draw(t, "messages") {
		x.next++
		m := msg(fmt.Sprintf("m%d", x.next))
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			m.Payload = append(m.Payload, noise(rapid.IntRange(4000, 12_000).Draw(t, "size"))...)
		case 1, 2:
			m.ID = fmt.Sprintf("id%d", rapid.IntRange(1, 30).Draw(t, "id"))
		case 3:
			m.ID = fmt.Sprintf("only%d", x.next)
		}
		m.Subject = fmt.Sprintf("%c.%d", 'a'+rapid.IntRange(0, 2).Draw(t, "subject"), x.next%3)
		if rapid.IntRange(0, 3).Draw(t, "expires") == 0 {
			m.TTL = rapid.Int64Range(1, 60).Draw(t, "ttl") * 1000
		}
		if _, known := x.m.ids[m.ID]; m.ID != "" && (known || contains(ms, m.ID)) {
			dups++
		} else {
			fresh++
			mm := &modelMsg{payload: string(m.Payload), subject: m.Subject}
			if m.TTL > 0 {
				mm.expires = x.host.since + time.Duration(m.TTL)*time.Millisecond
			}
			names = append(names, mm)
		}
		ms = append(ms, m)
	}
	r, err := x.s.Append(context.Background(), lane, ms)
	if err != nil {
		t.Fatal(err)
	}
	if r.Accepted != fresh || r.Duplicates != dups {
		t.Fatalf("accepted %d, duplicates %d; want %d and %d", r.Accepted, r.Duplicates, fresh, dups)
	}
	if fresh == 0 {
		if p := x.m.ids[ms[0].ID]; r.First != p.seq || r.Flow != p.flow {
			t.Fatalf("retry: %+v, first at %v", r, p)
		}
		return
	}
	if r.First != x.m.high[lane]+1 || r.Last != r.First+uint64(fresh)-1 {
		t.Fatalf("numbers %d-%d after %d", r.First, r.Last, x.m.high[lane])
	}
	f := x.m.byFlow[r.Flow]
	if f == nil {
		f = &modelFlow{flow: r.Flow, base: r.First}
		x.m.byFlow[r.Flow] = f
		x.m.flows = append(x.m.flows, f)
	}
	seq := r.First
	for _, m := range ms {
		if m.ID != "" {
			if _, known := x.m.ids[m.ID]; known {
				continue
			}
			x.m.ids[m.ID] = place{r.Flow, seq}
		}
		seq++
	}
	f.msgs = append(f.msgs, names...)
	x.m.high[lane] = r.Last
}

func contains(ms []wire.Message, id string) bool {
	for i := range ms {
		if ms[i].ID == id {
			return true
		}
	}
	return false
}

func (x *system) received(t *rapid.T) {
	if len(x.m.flows) == 0 {
		return
	}
	f := rapid.SampledFrom(x.m.flows).Draw(t, "flow")
	first := rapid.Uint64Range(f.base, f.last()).Draw(t, "from")
	if rapid.Bool().Draw(t, "prefix") {
		first = 1
	}
	r := wire.Range{First: first, Last: rapid.Uint64Range(max(first, f.base), f.last()).Draw(t, "to")}
	if err := x.s.Received(f.flow, wire.Ranges{r}); err != nil {
		t.Fatal(err)
	}
	x.s.keeper.wait() // the counts follow at once, before anything more is handed out
	f.receive(r)
}

// receive: what was removed and not told is stored by the hub after all.
func (f *modelFlow) receive(r wire.Range) {
	f.received = f.received.Add(r)
	for seq := max(r.First, f.base); seq <= r.Last; seq++ {
		if m := f.at(seq); !m.told && m.void == nil {
			m.removed = 0
		}
	}
	for seq := f.base; seq <= f.last(); seq++ { // a void is stored as a whole or not at all
		if m := f.at(seq); f.has(seq) && m.void != nil && !f.received.Contains(*m.void) {
			m.removed, m.void = 0, nil
		}
	}
	var left *wire.Range
	for seq := f.base; seq <= f.last(); seq++ { // what is left of it are voids of their own
		switch m := f.at(seq); {
		case m.void == nil:
			left = nil
		case f.has(seq):
			left = nil
		case left != nil && f.at(seq-1).void == left && m.void == f.at(seq-1).was:
			m.was, m.void, left.Last = m.void, left, seq
		default:
			left = &wire.Range{First: seq, Last: seq}
			m.was, m.void = m.void, left
		}
	}
}

// noted is what was removed inside blocks and not told yet: if the block goes as a
// whole, it goes for that reason.
func (x *system) noted() map[wire.Flow]notes {
	x.s.mu.RLock()
	defer x.s.mu.RUnlock()
	out := map[wire.Flow]notes{}
	for f, fl := range x.s.flows {
		out[f] = fl.noted
	}
	return out
}

// forget: what was noted of a range goes with it.
func (x *system) forget(noted map[wire.Flow]notes, gone func(f *modelFlow, seq uint64) bool) {
	for _, f := range x.m.flows {
		for seq := f.base; seq <= f.last(); seq++ {
			one := wire.Range{First: seq, Last: seq}
			if m := f.at(seq); m.removed != 0 && !m.told && m.void == nil && !f.has(seq) && len(noted[f.flow].within(one)) > 0 && gone(f, seq) {
				m.removed = 0
			}
		}
	}
}

// take removes what matches of everything that the hub has not.
func (x *system) take(why wire.Reason, matches func(f *modelFlow, seq uint64) bool) (n uint64) {
	for _, f := range x.m.flows {
		for seq := f.base; seq <= f.last(); seq++ {
			if m := f.at(seq); m.removed == 0 && !f.has(seq) && matches(f, seq) {
				m.removed = why
				n++
			}
		}
	}
	return n
}

func (x *system) pass(t *rapid.T) {
	x.host.pass(rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute}).Draw(t, "time"))
	x.s.expireAll()
	x.take(wire.ReasonTTL, func(f *modelFlow, seq uint64) bool {
		m := f.at(seq)
		return m.expires > 0 && m.expires <= x.host.since
	})
}

func (x *system) purge(t *rapid.T) {
	sel := Selection{}
	lanes := rapid.SliceOfNDistinct(rapid.SampledFrom([]wire.Lane{wire.Urgent, wire.Normal, wire.Bulk}), 0, 2, rapid.ID[wire.Lane]).Draw(t, "lanes")
	sel.Lanes = lanes
	if rapid.IntRange(0, 3).Draw(t, "all") > 0 {
		sel.Filter = rapid.SampledFrom([]string{"a.>", "b.*", "c.1", "*.2", "z"}).Draw(t, "filter")
	}
	matches := func(f *modelFlow, seq uint64) bool {
		return (len(lanes) == 0 || slices.Contains(lanes, f.flow.Lane)) && (sel.Filter == "" || wire.MatchFilter(sel.Filter, f.at(seq).subject))
	}
	noted := x.noted()
	n, err := x.s.Purge(sel)
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	if sel.Filter == "" {
		for _, f := range x.m.flows {
			for seq := f.base; seq <= f.last(); seq++ {
				if f.at(seq).removed == 0 && !f.has(seq) && matches(f, seq) {
					want++
				}
			}
		}
		x.forget(noted, matches)
		x.take(wire.ReasonPurge, matches)
	} else {
		want = x.take(wire.ReasonPurge, matches)
	}
	if n != want {
		t.Fatalf("purged %d by %+v, want %d", n, sel, want)
	}
}

// drop takes the oldest segments of a lane, as a full spool does.
func (x *system) drop(t *rapid.T) {
	lane := rapid.SampledFrom([]wire.Lane{wire.Urgent, wire.Normal, wire.Bulk}).Draw(t, "drop from")
	x.s.keeper.wait()
	var gs []*segment
	parts := map[wire.Flow]wire.Ranges{}
	x.s.mu.RLock()
	for _, g := range x.s.segments {
		if !g.gone && g.only(lane) && len(gs) < 2 {
			gs = append(gs, g)
			for _, p := range g.parts {
				parts[p.flow] = parts[p.flow].Union(p.ranges)
			}
		}
	}
	x.s.mu.RUnlock()
	noted := x.noted()
	if _, err := x.s.dropSegments(gs); err != nil {
		t.Fatal(err)
	}
	inParts := func(f *modelFlow, seq uint64) bool {
		return parts[f.flow].Contains(wire.Range{First: seq, Last: seq})
	}
	x.forget(noted, inParts)
	x.take(wire.ReasonDropOldest, inParts)
}

// forget: what the hub has is not kept by the spool; the hub says it again.
func (x *system) sayAgain(t *rapid.T) {
	for _, f := range x.m.flows {
		if err := x.s.Received(f.flow, f.received); err != nil {
			t.Fatal(err)
		}
	}
}

func (x *system) reopen(t *rapid.T) {
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	x.open(t)
	x.sayAgain(t)
}

// crash goes on with a copy of the folder as it is now, in the middle of a run.
func (x *system) crash(t *rapid.T) {
	x.s.keeper.wait()
	x.n++
	to := filepath.Join(x.root, fmt.Sprint(x.n))
	if err := os.CopyFS(to, os.DirFS(x.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := x.s.Close(); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(x.cfg.Dir)
	x.cfg.Dir = to
	x.open(t)
	x.sayAgain(t)
}

// check compares everything that can be seen.
func (x *system) check(t *rapid.T) {
	if rapid.Bool().Draw(t, "from disk") {
		x.s.forgetTail()
	}
	var want []wire.FlowHeld
	for l := range wire.Lane(wire.NumLanes) {
		for _, f := range x.m.flows {
			if first, held := f.firstHeld(); f.flow.Lane == l && held {
				want = append(want, wire.FlowHeld{Flow: f.flow, Base: f.base, First: first, Last: f.last()})
			}
		}
	}
	if got := x.s.Flows(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("flows %v, want %v", got, want)
	}
	messages, slack, dropped := uint64(0), uint64(0), map[wire.Reason]uint64{}
	for _, f := range x.m.flows {
		x.checkFlow(t, f)
		for seq := f.base; seq <= f.last(); seq++ {
			if m := f.at(seq); m.removed != 0 {
				dropped[m.removed]++
			} else if !f.has(seq) {
				messages++
			}
		}
	}
	x.s.keeper.wait()
	for _, ns := range x.noted() {
		for _, n := range ns { // what is removed of a note that was split is an estimate
			slack += n.Len()
		}
	}
	st := x.s.Stats()
	got := uint64(0)
	for _, l := range st.Lanes {
		got += l.Messages
	}
	for _, name := range st.Quarantine.Reports {
		data, _ := os.ReadFile(filepath.Join(x.s.quarantineDir(), name))
		t.Fatalf("nothing was damaged: %s", data)
	}
	if got+slack < messages || got > messages+slack || st.Quarantine.Segments != 0 || fmt.Sprint(st.Dropped) != fmt.Sprint(dropped) {
		t.Fatalf("%d messages held, %v dropped; told %d and %v, %+v", messages, dropped, got, st.Dropped, st.Quarantine)
	}
}

func (x *system) checkFlow(t *rapid.T, f *modelFlow) {
	dec := wire.NewDecoder()
	seen := wire.Ranges{}
	for next := uint64(1); ; {
		data, err := x.s.Read(f.flow, next)
		if errors.Is(err, ErrEnd) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := dec.Decode(data, false)
		if err != nil {
			t.Fatal(err)
		}
		if b.Flow != f.flow || b.Base != f.base || b.Last() < next {
			t.Fatalf("%s from %d: %s %s base %d", f.flow, next, b.Flow, b.Range(), b.Base)
		}
		for seq := max(b.First, next); seq <= b.Last(); seq++ {
			if f.has(seq) {
				continue // nobody asks
			}
			m, why, payload := f.at(seq), b.Reason, ""
			if b.Kind == wire.KindMessages {
				why, payload = b.Messages[seq-b.First].Blank, string(b.Messages[seq-b.First].Payload)
			}
			switch {
			case why == 0:
			case b.Kind == wire.KindMessages:
				m.told = true
			case !m.told && (m.void == nil || m.void.First < b.First):
				if seq > b.First {
					m.void = f.at(seq - 1).void
					break
				}
				if m.void != nil { // from its middle on: two from now on
					m.void.Last = seq - 1
				}
				r := b.Range()
				m.void = &r
			}
			if why != m.removed || why == 0 && payload != m.payload {
				t.Fatalf("%s %d is %q %.30q, not %q %.30q", f.flow, seq, why, payload, m.removed, m.payload)
			}
		}
		seen = seen.Add(b.Range())
		next = b.Last() + 1
	}
	for _, r := range subtract(wire.Ranges{{First: f.base, Last: f.last()}}, f.received) {
		if !seen.Contains(r) {
			t.Fatalf("%s %s is not held", f.flow, r)
		}
	}
	for seq := f.base; seq <= f.last(); seq++ {
		ok, err := x.s.Delivered(f.flow, seq)
		removed := f.at(seq).removed != 0
		if want := f.has(seq) && !removed; ok != want && !errors.Is(err, ErrUnknown) || errors.Is(err, ErrRemoved) != removed && !errors.Is(err, ErrUnknown) {
			t.Fatalf("delivered %s %d: %v, %v; has it %v, removed %v", f.flow, seq, ok, err, f.has(seq), removed)
		}
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "spool-model")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		h := newHost()
		x := &system{root: root, host: h, cfg: Config{Dir: filepath.Join(root, "0"), MaxBytes: 256 << 20, KeepFree: -1, CommitDelay: -1, BlockBytes: 2 << 10, shape: tiny(), host: h.host(), Now: h.host().wall}}
		x.m.byFlow, x.m.ids = map[wire.Flow]*modelFlow{}, map[string]place{}
		x.open(t)
		defer func() { x.s.Close() }()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 24).Draw(t, "step") {
			default:
				x.append(t)
			case 0, 1, 2, 3, 4:
				x.received(t)
			case 5:
				x.reopen(t)
			case 6:
				x.crash(t)
			case 7, 8:
				x.check(t)
			case 9, 10:
				x.pass(t)
			case 11, 12:
				x.purge(t)
			case 13:
				x.drop(t)
			}
		}
		x.check(t)
	})
}
