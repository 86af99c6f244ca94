package command

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var errKilled = errors.New("killed")

// told is what others were told before a crash, and rely on after it.
type told struct {
	after   uint64
	held    map[string]bool              // the hub was told that it is here
	settled map[string]wire.CommandState // a program was answered
	maybe   map[string]bool              // a program asked, and was not answered
	noted   map[string]bool
}

// Killed at any labelled step, with what was not synced lost in part or as a
// whole, the store forgets nothing that anybody was told.
func TestCrashes(t *testing.T) {
	hits := map[string]int{}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t)
		dir := r.cfg.Dir
		m := told{held: map[string]bool{}, settled: map[string]wire.CommandState{}, maybe: map[string]bool{}, noted: map[string]bool{}}
		for life := range 5 {
			left, dead := 1+rnd.IntN(60), false
			r.cfg.Dir, r.cfg.Fault = dir, func(point string) error {
				if left--; left <= 0 {
					if !dead {
						hits[point]++
					}
					dead = true
					return errKilled
				}
				return nil
			}
			r.reopen()
			if !dead {
				checkTold(t, seed, r, &m)
			}
			for i := 0; i < 60 && !dead; i++ {
				crashStep(r, rnd, &m, fmt.Sprint(life, "-", i))
			}
			r.s.mu.Lock()
			keep := r.s.log.synced
			r.s.log.f.Truncate(keep + rnd.Int64N(1+max(0, r.s.log.size-keep)))
			r.s.mu.Unlock()
		}
		r.cfg.Fault = nil
		r.reopen()
		checkTold(t, seed, r, &m)
		if t.Failed() {
			return
		}
	}
	for _, p := range points {
		if hits[p] == 0 && p != "command:aside" && p != "command:report" {
			t.Errorf("never killed at %s: %v", p, hits)
		}
	}
}

// crashStep does one thing that a hub or a program does.
func crashStep(r *rig, rnd *rand.Rand, m *told, name string) {
	ids := func() string {
		var all []string
		for id := range m.held {
			all = append(all, id)
		}
		if len(all) == 0 {
			return "none"
		}
		slices.Sort(all) // so that a seed is one run
		return all[rnd.IntN(len(all))]
	}
	switch rnd.IntN(7) {
	case 0, 1, 2:
		asked := r.s.Ask(0)
		reply := wire.CommandReply{Stream: r.stream, Next: asked.After}
		for _, p := range asked.Reports {
			m.held[p.ID] = true
			if rnd.IntN(2) == 0 {
				reply.Noted = append(reply.Noted, p.ID)
				m.noted[p.ID] = m.noted[p.ID] || p.State.Settled()
			}
		}
		m.after = max(m.after, asked.After)
		if r.seq = asked.After; rnd.IntN(2) == 0 {
			for i := range rnd.IntN(3) {
				reply.Commands = append(reply.Commands, r.cmd(fmt.Sprint(name, "-", i), fmt.Sprint("s", rnd.IntN(5)), nil))
			}
			reply.Next = r.seq
		}
		r.s.Take(asked, &reply)
	case 3:
		r.lent(r.s.subs[0])
	case 4, 5:
		id, state := ids(), wire.CommandAcked
		err := error(nil)
		if rnd.IntN(3) > 0 {
			err = r.s.Ack(id, []byte(id))
		} else if state = wire.CommandFailed; rnd.IntN(2) == 0 {
			err = r.s.Term(id, "no")
		} else {
			r.s.Nak(id, "later")
			break
		}
		if err == nil {
			m.settled[id] = state
		} else if !errors.Is(err, ErrUnknown) {
			m.maybe[id] = true
		}
	case 6:
		r.s.mu.Lock()
		if r.s.ready() == nil {
			r.s.outcome(r.s.rewrite())
		}
		r.s.mu.Unlock()
	}
}

func checkTold(t *testing.T, seed uint64, r *rig, m *told) {
	t.Helper()
	r.subscribe("nothing.at.all", 1)
	r.s.subs[0].filter = ">"
	b := r.s.book
	if b.after < m.after {
		t.Errorf("seed %d: asks after %d, the hub was told %d", seed, b.after, m.after)
	}
	for id := range m.held {
		e := b.entries[id]
		state, known := b.memory.state(id)
		want, settled := m.settled[id]
		switch {
		case settled && (!known || state != want):
			t.Errorf("seed %d: %s was %s, now %q", seed, id, want, state)
		case settled && !m.noted[id] && (e == nil || e.state != want):
			t.Errorf("seed %d: the report of %s is lost", seed, id)
		case settled && e != nil && !e.settled():
			t.Errorf("seed %d: %s would be handed out again", seed, id)
		case !settled && !m.maybe[id] && e == nil && !known:
			t.Errorf("seed %d: %s is lost", seed, id)
		}
		if e != nil && e.at.data > 0 {
			got, err := r.s.log.read(e.at)
			if want := map[bool]string{true: id, false: "do " + id}[e.settled()]; err != nil || string(got.data) != want {
				t.Errorf("seed %d: %s has %q, %v", seed, id, got.data, err)
			}
		}
	}
}

// A disk that fails or is full stops what needs it, and nothing is taken for
// durable; it goes on when the disk works again.
func TestDiskFails(t *testing.T) {
	for _, point := range []string{"command:write", "command:sync"} {
		r := newRig(t)
		r.take(wire.CommandReply{}, r.cmd("a", "a", nil))
		r.s.Close()
		broken := false
		r.cfg.Fault = func(p string) error {
			if broken && (p == point || strings.HasPrefix(p, "command:fresh")) {
				return errKilled
			}
			return nil
		}
		r.s = Open(r.cfg)
		u := r.subscribe(">", 1)
		r.want("handed out", r.lent(u), "a/1")
		broken = true
		if err := r.s.Ack("a", nil); !errors.Is(err, ErrDiskFault) {
			t.Errorf("%s: ack: %v", point, err)
		}
		if _, err := r.s.Take(r.s.Ask(0), &wire.CommandReply{Stream: "s1", Next: 2, Commands: []wire.Command{r.cmd("b", "b", nil)}}); !errors.Is(err, ErrDiskFault) {
			t.Errorf("%s: take: %v", point, err)
		}
		if st := r.s.Status(); st.Err == nil || st.Pending != 1 {
			t.Errorf("%s: %+v", point, st)
		}
		broken = false
		r.s.mu.Lock()
		r.s.retry = r.s.retry.Add(-pause)
		r.s.mu.Unlock()
		r.ok(r.s.Ack("a", nil))
		r.reopen()
		if p := r.noteAll()["a"]; p.State != wire.CommandAcked {
			t.Errorf("%s: %+v", point, p)
		}
	}
}

// Opened where nothing can be written, it says so, and works when that is over.
func TestOpensOnAnyDisk(t *testing.T) {
	r := newRig(t)
	r.s.Close()
	broken := true
	r.cfg.Dir = filepath.Join(t.TempDir(), "c")
	r.cfg.Fault = func(string) error { return map[bool]error{true: errKilled}[broken] }
	r.s = Open(r.cfg)
	if err := r.s.Ack("a", nil); !errors.Is(err, ErrDiskFault) {
		t.Error(err)
	}
	if asked := r.s.Ask(0); asked.Room != 0 {
		t.Errorf("%+v", asked)
	}
	broken = false
	r.s.mu.Lock()
	r.s.retry = r.s.retry.Add(-pause)
	r.s.mu.Unlock()
	r.take(wire.CommandReply{}, r.cmd("a", "a", nil))
	r.ok(r.s.Ack("a", nil))
}

// Damage anywhere never stops the store; what lies outside of it goes on.
func TestDamage(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.take(wire.CommandReply{}, r.cmd(id, id, nil))
	}
	r.ok(r.s.Ack("b", nil))
	r.s.Close()
	path := filepath.Join(r.cfg.Dir, logName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 7 {
		bad := bytes.Clone(whole)
		bad[at] ^= 0x40
		r.cfg.Dir = filepath.Join(t.TempDir(), "c")
		os.MkdirAll(r.cfg.Dir, 0o700)
		if err := os.WriteFile(filepath.Join(r.cfg.Dir, logName), bad, 0o600); err != nil {
			t.Fatal(err)
		}
		r.s = Open(r.cfg)
		st := r.s.Status()
		aside, _ := filepath.Glob(filepath.Join(r.cfg.Dir, "damaged-*"))
		if st.Err != nil || len(aside) != 2 && at < len(whole)-200 {
			t.Errorf("byte %d: %+v, set aside %v", at, st, aside)
		}
		if least := 1; at >= len(fileHead) && st.Pending < least {
			t.Errorf("byte %d: %d pending", at, st.Pending)
		}
		if asked := r.s.Ask(0); len(aside) > 0 && (asked.After != 0 || len(asked.Reports) != len(r.s.book.order)) {
			t.Errorf("byte %d: asks %+v", at, asked)
		}
		r.reopen() // it was written anew
		if again, _ := filepath.Glob(filepath.Join(r.cfg.Dir, "damaged-*")); len(again) != len(aside) {
			t.Errorf("byte %d: set aside again: %v", at, again)
		}
		r.s.Close()
	}
}

func TestUnknownVersionIsSetAside(t *testing.T) {
	r := newRig(t)
	r.s.Close()
	path := filepath.Join(r.cfg.Dir, logName)
	if err := os.WriteFile(path, []byte("FPCMDLG\x02whatever"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.s = Open(r.cfg)
	reports, _ := filepath.Glob(filepath.Join(r.cfg.Dir, "damaged-*.txt"))
	if len(reports) != 1 {
		t.Fatalf("reports %v", reports)
	}
	if text, _ := os.ReadFile(reports[0]); !strings.Contains(string(text), "version 2") {
		t.Errorf("%s", text)
	}
	r.take(wire.CommandReply{}, r.cmd("a", "a", nil))
}

var update = flag.Bool("update", false, "write the golden file")

// A log of this version is read for ever.
func TestGolden(t *testing.T) {
	const golden = "testdata/v1.log"
	if *update {
		r := newRig(t)
		r.clock = 5_000
		r.take(wire.CommandReply{}, r.cmd("acked", "a", nil), r.cmd("leased", "b", nil), r.cmd("waits", "c.d", nil), r.cmd("noted", "e", nil))
		u := r.subscribe(">", 4)
		r.lent(u)
		r.ok(r.s.Ack("acked", []byte{0, 1, 0xff}))
		r.ok(r.s.Term("noted", "no"))
		r.noteAll()
		r.ok(r.s.Nak("waits", "busy"))
		r.s.mu.Lock()
		r.ok(r.s.rewrite())
		r.s.mu.Unlock()
		r.ok(r.s.Ack("leased", []byte("ok")))
		whole, err := os.ReadFile(filepath.Join(r.cfg.Dir, logName))
		if err == nil {
			err = os.WriteFile(golden, whole, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(golden)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	got, err := scan(f, fi.Size())
	if err != nil || got.bad != 0 || got.good != fi.Size() || got.reason != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	b := got.book
	if b.stream != "s1" || b.after != 4 || len(b.order) != 2 || len(b.memory.ids) != 3 {
		t.Errorf("%+v", b)
	}
	w, l := b.entries["waits"], b.entries["leased"]
	if w == nil || w.subject != "c.d" || w.deliveries != 1 || w.reason != "busy" || w.settled() {
		t.Errorf("waits: %+v", w)
	}
	if l == nil || l.state != wire.CommandAcked || l.noted {
		t.Errorf("leased: %+v", l)
	}
}

// FuzzScan: no input makes reading panic, and what is read is encoded again to
// the same bytes.
func FuzzScan(f *testing.F) {
	if golden, err := os.ReadFile("testdata/v1.log"); err == nil {
		f.Add(golden)
	}
	f.Add([]byte(fileHead))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := scan(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.book.order {
			r := e.record(7)
			raw := appendRecord(nil, r)
			back, err := parseRecord(raw)
			if err != nil || !bytes.Equal(appendRecord(nil, &back), raw) {
				t.Fatalf("%+v: %v", r, err)
			}
		}
	})
}
