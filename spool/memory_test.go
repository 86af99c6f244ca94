package spool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// memoryFirst opens a spool whose link is up, with a first message that the hub
// has: a head is there.
func memoryFirst(t *testing.T, cfg Config) (s *Spool, flow wire.Flow) {
	t.Helper()
	cfg.MemoryFirst = true
	s = open(t, cfg)
	s.LinkUp(true)
	flow = appendOK(t, s, wire.Normal, msg("first")).Flow
	receive(t, s, flow, 1, 1)
	s.keeper.wait()
	return s, flow
}

func receive(t *testing.T, s *Spool, f wire.Flow, first, last uint64) {
	t.Helper()
	if err := s.Received(f, wire.Ranges{{First: first, Last: last}}); err != nil {
		t.Fatal(err)
	}
}

// crashedCopy copies the folder, which is what a kill -9 at this moment leaves.
func crashedCopy(t *testing.T, s *Spool) Config {
	t.Helper()
	s.keeper.wait()
	cfg := s.cfg
	cfg.Dir = filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(cfg.Dir, os.DirFS(s.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func names(from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("m-%d", i))
	}
	return out
}

func wantRead(t *testing.T, s *Spool, f wire.Flow, from uint64, want []string) {
	t.Helper()
	if got := readAll(t, s, f, from); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
}

func TestMemoryFirstWritesNothing(t *testing.T) {
	s, flow := memoryFirst(t, small(t, t.TempDir()))
	before := treeHash(t, s.cfg.Dir)
	for _, name := range names(2, 300) {
		r := appendOK(t, s, wire.Normal, msg(name))
		if r.Flow != flow || name != fmt.Sprintf("m-%d", r.First) {
			t.Fatalf("%s has receipt %+v", name, r)
		}
		if r.First%50 == 0 {
			wantRead(t, s, flow, r.First-49, names(max(int(r.First)-49, 2), int(r.First)))
			if st := s.Stats(); st.Memory == 0 || st.LiveBytes != st.Memory || st.Lanes[wire.Normal].Messages == 0 {
				t.Fatalf("stats %+v", st)
			}
			receive(t, s, flow, 1, r.First)
			if st := s.Stats(); st.Memory != 0 || st.LiveBytes != 0 || len(s.Flows()) != 0 {
				t.Fatalf("after the hub's ack: stats %+v, flows %v", st, s.Flows())
			}
			if ok, err := s.Delivered(flow, r.First-7); !ok || err != nil {
				t.Fatalf("delivered: %v, %v", ok, err)
			}
		}
	}
	if treeHash(t, s.cfg.Dir) != before {
		t.Error("something was written although the link is up")
	}
}

// TestMemoryFirstLinkDown: what the hub has not got is on the disk before
// anything newer, under the same numbers.
func TestMemoryFirstLinkDown(t *testing.T) {
	s, flow := memoryFirst(t, small(t, t.TempDir()))
	for _, name := range names(2, 40) {
		appendOK(t, s, wire.Normal, msg(name))
	}
	receive(t, s, flow, 2, 10)
	lost := open(t, crashedCopy(t, s)) // kill -9 before
	if held := lost.Flows(); len(held) > 1 || len(held) == 1 && held[0].First != 1 {
		t.Errorf("flows %v", held)
	}
	s.LinkUp(false)
	appendOK(t, s, wire.Normal, msg("m-41"))
	if m := s.Stats().Memory; m != 0 {
		t.Errorf("%d bytes are held although the link is down", m)
	}
	wantRead(t, s, flow, 11, names(11, 41))
	kept := open(t, crashedCopy(t, s))
	wantRead(t, kept, flow, 11, names(11, 41))
	s.LinkUp(true)
	appendOK(t, s, wire.Normal, msg("m-42"))
	if m := s.Stats().Memory; m == 0 {
		t.Error("nothing is held although the link is up again")
	}
	wantRead(t, s, flow, 11, names(11, 42))
	s.LinkUp(false)
	eventually(t, "what memory holds is written, though nothing new comes", func() bool { return s.Stats().Memory == 0 })
	wantRead(t, open(t, crashedCopy(t, s)), flow, 11, names(11, 42))
}

func TestMemoryFirstClose(t *testing.T) {
	cfg := small(t, t.TempDir())
	s, flow := memoryFirst(t, cfg)
	var held []wire.Message
	for _, name := range names(2, 30) {
		held = append(held, withID(name, name))
		appendOK(t, s, wire.Normal, held[len(held)-1])
	}
	wantDuplicate(t, s, held[3], Receipt{Flow: flow, First: 5, Last: 5})
	receive(t, s, flow, 2, 12)
	wantDuplicate(t, s, held[3], Receipt{Flow: flow, First: 5, Last: 5})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	wantRead(t, s, flow, 13, names(13, 30))
	if h := s.Flows()[0]; h.Last != 30 || h.First > 13 {
		t.Errorf("held %+v", h)
	}
	for i, m := range held { // what only memory ever held, and the rest
		wantDuplicate(t, s, m, Receipt{Flow: flow, First: uint64(i) + 2, Last: uint64(i) + 2})
	}
}

func TestMemoryFirstCap(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.MaxBytes = 256 << 20
	s, flow := memoryFirst(t, cfg)
	want := []string{}
	for i := range 150 {
		m := msg(noise(100_000 + i))
		want = append(want, string(m.Payload))
		appendOK(t, s, wire.Normal, m)
		if n := s.Stats().Memory; n > maxHeld {
			t.Fatalf("%d bytes are held in memory", n)
		}
	}
	wantRead(t, s, flow, 2, want)
	if n := s.Stats().Lanes[wire.Normal].Messages; n != 150 {
		t.Errorf("%d messages are held", n)
	}
	onDisk := readAll(t, open(t, crashedCopy(t, s)), flow, 2)
	if n := len(onDisk); n < 100 || !slices.Equal(onDisk, want[:n]) {
		t.Errorf("%d messages are on the disk, or not the oldest", n)
	}
}

// TestMemoryFirstWait: a hub that takes nothing is no reason to risk more.
func TestMemoryFirstWait(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, flow := memoryFirst(t, small(t, dir))
		appendOK(t, s, wire.Normal, msg("m-2"))
		if s.Stats().Memory == 0 {
			t.Error("nothing is held")
		}
		time.Sleep(holdTime + time.Second)
		if m := s.Stats().Memory; m != 0 {
			t.Errorf("%d bytes are held for longer than %v", m, holdTime)
		}
		wantRead(t, s, flow, 2, names(2, 2))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestMemoryFirstFaults: what cannot be written stays in memory, nothing newer
// passes it, and it is written when the disk works again.
func TestMemoryFirstFaults(t *testing.T) {
	for _, point := range []string{"memory:spill", "commit:txn", "commit:mem-sync"} {
		cfg, fault := faulty(t, t.TempDir())
		s, flow := memoryFirst(t, cfg)
		for _, name := range names(2, 20) {
			appendOK(t, s, wire.Normal, msg(name))
		}
		fault.fail(point, 1<<40)
		s.LinkUp(false)
		if _, err := s.Append(t.Context(), wire.Normal, msgs(1, "refused")); !errors.Is(err, ErrDiskFault) {
			t.Fatalf("%s: append: %v", point, err)
		}
		if s.Stats().Memory == 0 || s.Err() == nil {
			t.Errorf("%s: memory was given up", point)
		}
		wantRead(t, s, flow, 2, names(2, 20))
		fault.fail(point, 0)
		r := appendOK(t, s, wire.Normal, msg("last"))
		got := readAll(t, open(t, crashedCopy(t, s)), flow, 2)
		if !slices.Equal(got[:19], names(2, 20)) || got[len(got)-1] != "last" || int(r.First) != len(got)+1 {
			t.Errorf("%s: last is %d; on the disk: %v", point, r.First, got)
		}
		for _, g := range got[19 : len(got)-1] {
			if g != "void:"+wire.ReasonFailedCommit.String() {
				t.Errorf("%s: %q", point, g)
			}
		}
	}
	cfg, fault := faulty(t, t.TempDir())
	s, flow := memoryFirst(t, cfg)
	fault.fail("memory:keep", 1)
	if _, err := s.Append(t.Context(), wire.Normal, msgs(1, "refused")); err == nil {
		t.Error("an error is not told")
	}
	appendOK(t, s, wire.Normal, msg("m-3"))
	wantRead(t, s, flow, 2, []string{"void:" + wire.ReasonFailedCommit.String(), "m-3"})
}

// TestMemoryFirstRandom compares with a plain list, whatever the link does.
func TestMemoryFirstRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	cfg := small(t, t.TempDir())
	cfg.MemoryFirst, cfg.shape, cfg.MaxBytes = true, tiny(), 256<<20
	s := open(t, cfg)
	var flow wire.Flow
	var want []string
	base, from := uint64(1), uint64(1)
	for range 400 {
		switch rng.IntN(10) {
		case 0:
			s.LinkUp(rng.IntN(3) > 0)
		case 1:
			if to := from + uint64(rng.IntN(12)); to < base+uint64(len(want)) && len(want) > 0 {
				receive(t, s, flow, from, to)
				from = to + 1
			}
		case 2:
			if len(want) > 0 {
				wantRead(t, s, flow, from, want[from-base:])
			}
		case 3:
			if rng.IntN(5) > 0 {
				continue
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			if len(want) > 0 && from < base+uint64(len(want)) {
				wantRead(t, s, flow, from, want[from-base:])
				receive(t, s, flow, from, base+uint64(len(want))-1)
			}
			base, from, want = base+uint64(len(want)), base+uint64(len(want)), nil
		default:
			p := fmt.Sprintf("%d", len(want))
			if rng.IntN(6) == 0 {
				p += noise(9000)
			}
			r := appendOK(t, s, wire.Normal, msg(p))
			if flow = r.Flow; r.First != base+uint64(len(want)) {
				t.Fatalf("number %d, want %d", r.First, base+uint64(len(want)))
			}
			want = append(want, p)
		}
	}
	if len(want) > 0 {
		wantRead(t, s, flow, from, want[from-base:])
	}
}
