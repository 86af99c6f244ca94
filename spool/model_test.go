package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

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
	payloads []string // from base
	received wire.Ranges
}

func (f *modelFlow) last() uint64 { return f.base + uint64(len(f.payloads)) - 1 }

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
	var names []string
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
		if _, known := x.m.ids[m.ID]; m.ID != "" && (known || contains(ms, m.ID)) {
			dups++
		} else {
			fresh++
			names = append(names, string(m.Payload))
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
	f.payloads = append(f.payloads, names...)
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
	f.received = f.received.Add(r)
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
	messages := uint64(0)
	for _, f := range x.m.flows {
		x.checkFlow(t, f)
		messages += subtract(wire.Ranges{{First: f.base, Last: f.last()}}, f.received).Len()
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
	if got != messages || st.Quarantine.Segments != 0 || len(st.Dropped) != 0 {
		t.Fatalf("%d messages held, told %+v", messages, st)
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
		if b.Flow != f.flow || b.Base != f.base || b.First < next {
			t.Fatalf("%s from %d: %s %s base %d", f.flow, next, b.Flow, b.Range(), b.Base)
		}
		for i := range b.Messages {
			if want := f.payloads[b.First+uint64(i)-f.base]; string(b.Messages[i].Payload) != want {
				t.Fatalf("%s %d is %.30q, not %.30q", f.flow, b.First+uint64(i), b.Messages[i].Payload, want)
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
		if want := f.received.Contains(wire.Range{First: seq, Last: seq}); ok != want || err != nil {
			t.Fatalf("delivered %s %d: %v, %v", f.flow, seq, ok, err)
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
		x := &system{root: root, cfg: Config{Dir: filepath.Join(root, "0"), MaxBytes: 256 << 20, KeepFree: -1, CommitDelay: -1, BlockBytes: 2 << 10, shape: tiny()}}
		x.m.byFlow, x.m.ids = map[wire.Flow]*modelFlow{}, map[string]place{}
		x.open(t)
		defer func() { x.s.Close() }()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 19).Draw(t, "step") {
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
			}
		}
		x.check(t)
	})
}
