package spool

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// filled makes a spool of several closed segments: sealed ones, and with crash
// set a head as a crash leaves it. Every tenth message is large.
func filled(t *testing.T, crash bool) (cfg Config, flow wire.Flow, want []string) {
	t.Helper()
	dir := t.TempDir()
	cfg = small(t, filepath.Join(dir, "spool"))
	cfg.shape = tiny()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 29 {
		p := fmt.Sprintf("message %d", i)
		if i%5 == 4 {
			p += noise(9000 + i)
		}
		want = append(want, p)
		flow = appendOK(t, s, wire.Normal, msg(p)).Flow
	}
	s.keeper.wait()
	if crash { // a copy of the folder is what a crash leaves
		if err := os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(cfg.Dir)); err != nil {
			t.Fatal(err)
		}
		defer func() { cfg.Dir = filepath.Join(dir, "copy") }()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg, flow, want
}

// flip changes one bit in the middle of what is not zero.
func flip(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := len(strings.TrimRight(string(data), "\x00"))
	data[n/2] ^= 0x10
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// halve cuts a file in two.
func halve(t *testing.T, path string) {
	fi, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, fi.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedSegment(t *testing.T) {
	empty := func(t *testing.T, path string) {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		file   string
		how    string
		damage func(*testing.T, string)
		lost   int // at most
	}{
		{"SEAL", "flip", flip, 0}, {"SEAL", "truncate", halve, 0}, {"SEAL", "empty", empty, 0}, {"SEAL", "remove", remove, 0},
		{"00001.mem", "flip", flip, 1}, {"00001.mem", "truncate", halve, 5}, {"00001.mem", "remove", remove, 5}, {"00001.mem", "empty", empty, 5},
		{"MANIFEST", "flip", flip, 0}, {"MANIFEST", "empty", empty, 0}, {"MANIFEST", "remove", remove, 0},
		{"KEYREGISTRY", "flip", flip, 0}, {"KEYREGISTRY", "remove", remove, 0},
		{"000001.vlog", "flip", flip, 2}, {"000001.vlog", "truncate", halve, 2}, {"000001.vlog", "remove", remove, 2},
		{"IDS", "none", func(*testing.T, string) {}, 0},
	} {
		t.Run(c.file+"-"+c.how, func(t *testing.T) {
			cfg, flow, want := filled(t, false)
			if c.how != "none" {
				segs, err := filepath.Glob(filepath.Join(cfg.Dir, segmentPrefix+"*"))
				if err != nil || len(segs) < 3 {
					t.Fatal(segs, err)
				}
				c.damage(t, filepath.Join(segs[1], c.file))
			}
			s := open(t, cfg)
			survives(t, s, flow, want, c.lost)
			if r := appendOK(t, s, wire.Normal, msg("new")); r.First != uint64(len(want))+1 {
				t.Errorf("numbering goes on at %d", r.First)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			survives(t, open(t, cfg), flow, want, c.lost)
		})
	}
}

// survives reads the flow to its end: what is left is right and in its place,
// what is gone is void, counted and reported.
func survives(t *testing.T, s *Spool, flow wire.Flow, want []string, most int) {
	t.Helper()
	got := readAll(t, s, flow, 1)
	lost := 0
	for i, p := range got {
		if i >= len(want) {
			t.Fatalf("%d messages of %d", len(got), len(want))
		}
		if p == "void:quarantine" {
			lost++
			if ok, err := s.Delivered(flow, uint64(i)+1); ok || !errors.Is(err, ErrRemoved) {
				t.Errorf("what was lost is delivered: %v, %v", ok, err)
			}
		} else if p != want[i] {
			t.Fatalf("sequence %d is %.40q, not %.40q", i+1, p, want[i])
		}
	}
	st := s.Stats()
	if len(got) != len(want) || lost > most {
		t.Fatalf("%d of %d sequences, %d lost of at most %d; %+v", len(got), len(want), lost, most, st.Quarantine)
	}
	if uint64(lost) != st.Quarantine.Messages || st.Dropped[wire.ReasonQuarantine] != st.Quarantine.Messages {
		t.Errorf("%d lost, told %+v, dropped %v", lost, st.Quarantine, st.Dropped)
	}
	for _, name := range st.Quarantine.Reports {
		data, err := os.ReadFile(filepath.Join(s.quarantineDir(), name))
		if err != nil || !json.Valid(data) {
			t.Errorf("report %s: %v", name, err)
		}
	}
	if lost > 0 && len(st.Quarantine.Reports) == 0 {
		t.Error("no report")
	}
	t.Logf("%d lost, %+v", lost, st.Quarantine)
}

func TestDamagedHead(t *testing.T) {
	for _, c := range []struct {
		file, how string
		lost      int
	}{
		{"00001.mem", "flip", 1}, {"00001.mem", "empty", 4}, {"00001.mem", "remove", 4},
		{"000001.vlog", "flip", 1}, {"000001.vlog", "empty", 1}, {"000001.vlog", "remove", 1},
		{"MANIFEST", "flip", 0}, {"MANIFEST", "remove", 0}, {"KEYREGISTRY", "flip", 0}, {"KEYREGISTRY", "remove", 0}, {"DISCARD", "remove", 0},
	} {
		t.Run(c.file+"-"+c.how, func(t *testing.T) {
			cfg, flow, want := filled(t, true)
			mems, err := filepath.Glob(filepath.Join(cfg.Dir, segmentPrefix+"*", "00001.mem"))
			mems = slices.DeleteFunc(mems, func(m string) bool {
				_, err := os.Stat(filepath.Join(filepath.Dir(m), sealName))
				return err == nil
			})
			if err != nil || len(mems) == 0 {
				t.Fatal(mems, err)
			}
			slices.Sort(mems)
			path := filepath.Join(filepath.Dir(mems[0]), c.file)
			switch c.how {
			case "flip":
				flip(t, path)
			case "empty":
				err = os.Truncate(path, 0)
			case "remove":
				err = os.Remove(path)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, cfg)
			got := readAll(t, s, flow, 1)
			at, left := 0, 0
			for _, p := range got { // in order; what the damage took is missing or void
				if strings.HasPrefix(p, "void:") {
					continue
				}
				left++
				i := slices.Index(want[at:], p)
				if i < 0 {
					t.Fatalf("%.40q is not what was written, or not in order", p)
				}
				at += i + 1
			}
			q := s.Stats().Quarantine
			if lost := len(want) - left; lost > c.lost || lost > 0 && q.Segments == 0 {
				t.Errorf("%d lost, at most %d should be: %+v", lost, c.lost, q)
			}
			if r := appendOK(t, s, wire.Normal, msg("new")); r.Flow == flow {
				t.Error("an epoch goes on in another run")
			}
		})
	}
}

func TestDamagedMeta(t *testing.T) {
	cfg, flow, want := filled(t, false)
	flip(t, filepath.Join(cfg.Dir, metaName))
	s := open(t, cfg)
	if got := readAll(t, s, flow, 1); !slices.Equal(got, want) {
		t.Fatalf("%d of %d messages", len(got), len(want))
	}
	if r := appendOK(t, s, wire.Normal, msg("new")); r.First != uint64(len(want))+1 {
		t.Errorf("numbering goes on at %d", r.First)
	}
	if held := s.Flows(); len(held) != 2 || held[0].Flow != flow {
		t.Errorf("flows %v", held)
	}
}

// TestKilledInTheFirstCommitOfAHead: what a kill cut off was acknowledged to
// nobody, so nothing is reported as lost, also if no earlier commit in the same
// segment or run tells up to where it was.
func TestKilledInTheFirstCommitOfAHead(t *testing.T) {
	for _, before := range []int{0, 6} { // messages of the run
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			dir := t.TempDir()
			cfg := small(t, filepath.Join(dir, "spool"))
			cfg.shape, cfg.BlockBytes = tiny(), 4<<10
			killed, arm := cfg, false
			killed.Dir = filepath.Join(dir, "copy")
			var s *Spool
			cfg.Fault = func(point string) error {
				if point == "commit:vlog-sync" && arm {
					arm = false
					s.keeper.wait() // the head before is sealed
					copyTorn(t, cfg.Dir, killed.Dir)
					if err := os.CopyFS(filepath.Join(dir, "first"), os.DirFS(killed.Dir)); err != nil {
						t.Error(err)
					}
				}
				return nil
			}
			s = open(t, cfg)
			var flow wire.Flow
			for i := range before {
				flow = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i))).Flow
			}
			s.keeper.wait()
			arm = true
			r := appendOK(t, s, wire.Normal, msg(noise(9000)), msg(noise(9001)), msg(noise(9002)), msg(noise(9003)), msg(noise(9004)))
			if arm || before > 0 && (r.Flow != flow || len(s.segments) < 2) {
				t.Fatalf("it was not the first commit of a head: %d segments", len(s.segments))
			}
			again := open(t, killed)
			if st := again.Stats(); st.Quarantine.Segments != 0 || len(st.Dropped) != 0 || st.Lanes[wire.Normal].Messages != uint64(before) {
				t.Errorf("after the kill: quarantine %+v, dropped %v, lanes %+v", st.Quarantine, st.Dropped, st.Lanes)
			}
			if got := readAll(t, again, r.Flow, 1); len(got) != before {
				t.Errorf("%d messages are read, %d were acknowledged", len(got), before)
			}
			// The next run decided; the one after that must not find it again.
			later := cfg
			later.Dir, later.Fault = filepath.Join(dir, "later"), nil
			appendOK(t, again, wire.Normal, msg("next run"))
			again.keeper.wait()
			copyKilled(t, killed.Dir, later.Dir, filepath.Join(dir, "first"))
			third := open(t, later)
			if got := readAll(t, third, r.Flow, 1); len(got) != before {
				t.Errorf("a run later %d messages are read, %d were acknowledged", len(got), before)
			}
			if st := third.Stats(); st.Quarantine.Segments != 0 || len(st.Dropped) != 0 {
				t.Errorf("a run later: quarantine %+v, dropped %v", st.Quarantine, st.Dropped)
			}
		})
	}
}

// TestKilledBeforeTheEndOfACommit: its messages are all readable, only the end
// of the transaction is missing. No later run may report one of them as lost,
// or find some of them.
func TestKilledBeforeTheEndOfACommit(t *testing.T) {
	dir := t.TempDir()
	cfg := small(t, filepath.Join(dir, "spool"))
	killed, first, arm := cfg, filepath.Join(dir, "first"), false
	killed.Dir = filepath.Join(dir, "copy")
	cfg.Fault = func(point string) error {
		if point == "commit:mem-sync" && arm {
			arm = false
			if err := errors.Join(os.CopyFS(killed.Dir, os.DirFS(cfg.Dir)), tearEnd(killed.Dir), os.CopyFS(first, os.DirFS(killed.Dir))); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	s := open(t, cfg)
	flow := appendOK(t, s, wire.Normal, msg("1")).Flow
	arm = true
	appendOK(t, s, wire.Normal, msg("2"), msg("3"), msg("4"))
	for _, run := range []string{"second", "third", "fourth"} {
		again := open(t, killed)
		if got := readAll(t, again, flow, 1); !slices.Equal(got, []string{"1"}) {
			t.Errorf("%s run: %q", run, got)
		}
		if st := again.Stats(); st.Quarantine.Segments != 0 || len(st.Dropped) != 0 {
			t.Errorf("%s run: quarantine %+v, dropped %v", run, st.Quarantine, st.Dropped)
		}
		appendOK(t, again, wire.Normal, msg(run))
		again.keeper.wait()
		next := killed
		next.Dir = filepath.Join(dir, run)
		copyKilled(t, killed.Dir, next.Dir, first)
		killed = next
	}
}

// tearEnd takes the end of the last transaction away from the log that has any.
func tearEnd(dir string) error {
	mems, err := filepath.Glob(filepath.Join(dir, "seg-*", memName))
	for _, mem := range mems {
		l, e := openLog(mem, secret{})
		if err = errors.Join(err, e); e != nil {
			continue
		}
		if l.end <= logHeader {
			err = errors.Join(err, l.Close())
			continue
		}
		last := int64(0)
		for at := int64(logHeader); ; {
			r, ok := l.record(at)
			if !ok {
				break
			}
			last, at = at, at+int64(r.size)
		}
		err = errors.Join(err, l.Close(), os.Truncate(mem, last))
	}
	return err
}

// copyTorn copies a spool whose newest segment is being written: some values
// have reached its log, none of their keys.
func copyTorn(t *testing.T, from, to string) {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
		return
	}
	segs, _ := filepath.Glob(filepath.Join(to, "seg-*"))
	for _, dir := range slices.Backward(segs) { // the spare holds nothing
		vlog, err := os.ReadFile(filepath.Join(dir, "000001.vlog"))
		if err != nil {
			t.Error(err)
			return
		}
		end := len(strings.TrimRight(string(vlog), "\x00"))
		if end <= logHeader {
			continue
		}
		clear(vlog[end/3 : 2*end/3])
		mem, err := os.ReadFile(filepath.Join(dir, memName))
		if err == nil {
			clear(mem[logHeader:])
			err = errors.Join(os.WriteFile(filepath.Join(dir, memName), mem, 0o600), os.WriteFile(filepath.Join(dir, "000001.vlog"), vlog, 0o600))
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("nothing is being written")
}

// copyKilled copies a running spool as a kill leaves it before the keeper could
// close the segments of the run before: those are as in first.
func copyKilled(t *testing.T, from, to, first string) {
	t.Helper()
	err := os.CopyFS(to, os.DirFS(from))
	segs, _ := filepath.Glob(filepath.Join(first, "seg-*"))
	for _, seg := range segs {
		home := filepath.Join(to, filepath.Base(seg))
		err = errors.Join(err, os.RemoveAll(home), os.CopyFS(home, os.DirFS(seg)))
	}
	if err != nil {
		t.Fatal(err)
	}
}
