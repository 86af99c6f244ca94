package spool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// on is msg with a subject.
func on(subject, payload string) wire.Message {
	m := msg(payload)
	m.Subject = subject
	return m
}

// readWhole is readAll with blank entries as "blank:<reason>".
func readWhole(t testing.TB, s *Spool, f wire.Flow, from uint64) (out []string) {
	t.Helper()
	dec := wire.NewDecoder()
	for next := from; ; {
		data, err := s.Read(f, next)
		if errors.Is(err, ErrEnd) {
			return out
		}
		if err != nil {
			t.Fatalf("read %s from %d: %v", f, next, err)
		}
		b, err := dec.Decode(data, false)
		if err != nil {
			t.Fatal(err)
		}
		for seq := max(b.First, next); seq <= b.Last(); seq++ {
			switch m := (wire.Message{}); {
			case b.Kind == wire.KindVoid:
				out = append(out, "void:"+b.Reason.String())
			default:
				if m = b.Messages[seq-b.First]; m.Blank != 0 {
					out = append(out, "blank:"+m.Blank.String())
				} else {
					out = append(out, string(m.Payload))
				}
			}
		}
		next = b.Last() + 1
	}
}

func TestPurgeEverything(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	s := open(t, cfg)
	var r Receipt
	for i := range 40 {
		r = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i)))
	}
	u := appendOK(t, s, wire.Urgent, msg("u"))
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 5}}); err != nil {
		t.Fatal(err)
	}
	n, err := s.Purge(Selection{Lanes: []wire.Lane{wire.Normal}})
	if err != nil || n != 35 {
		t.Fatalf("purged %d, %v", n, err)
	}
	check := func(s *Spool) {
		t.Helper()
		st := s.Stats()
		if st.Dropped[wire.ReasonPurge] != 35 || st.Lanes[wire.Normal].Messages != 0 || st.Lanes[wire.Urgent].Messages != 1 {
			t.Fatalf("told %+v", st)
		}
		if got := readWhole(t, s, r.Flow, 6); len(got) != 35 || slices.ContainsFunc(got, func(p string) bool { return p != "void:purge" }) {
			t.Fatalf("read %v", got)
		}
		if _, err := s.Delivered(r.Flow, 7); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "purge") {
			t.Fatalf("delivered: %v", err)
		}
	}
	check(s)
	s.keeper.wait()
	if n := segmentsOnDisk(t, cfg.Dir); n > 3 { // two heads and the spare
		t.Errorf("%d segments are left", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 5}}); err != nil { // as the hub would
		t.Fatal(err)
	}
	check(s)
	if held := s.Flows(); len(held) != 2 || held[0].Flow != u.Flow || held[1].First != 6 {
		t.Fatalf("flows %v", held)
	}
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 40}}); err != nil { // the voids
		t.Fatal(err)
	}
	s.keeper.wait()
	if ok, err := s.Delivered(r.Flow, 7); ok || !errors.Is(err, ErrRemoved) {
		t.Fatalf("a void counts as delivered: %v, %v", ok, err)
	}
	if n := s.Stats().Dropped[wire.ReasonPurge]; n != 35 {
		t.Fatalf("%d counted in the end", n)
	}
}

func TestPurgeBySubject(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	r := appendOK(t, s, wire.Normal, on("a.x", "1"), on("b.x", "2"), on("a.y", "3"), on("b.y", "4"))
	appendOK(t, s, wire.Normal, on("a.x", "5"), on("a.y", "6"))
	appendOK(t, s, wire.Normal, on("b.x", "7"))
	if n, err := s.Purge(Selection{Filter: "a.*.z"}); n != 0 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	if n, err := s.Purge(Selection{Filter: "a.>"}); n != 4 || err != nil {
		t.Fatalf("purged %d, %v", n, err)
	}
	if n, err := s.Purge(Selection{Filter: "a.x"}); n != 0 || err != nil {
		t.Fatalf("purged %d again, %v", n, err)
	}
	appendOK(t, s, wire.Normal, on("a.x", "8")) // later: not concerned
	want := "blank:purge 2 blank:purge 4 void:purge void:purge 7 8"
	check := func(s *Spool) {
		t.Helper()
		if st := s.Stats(); st.Dropped[wire.ReasonPurge] != 4 || st.Lanes[wire.Normal].Messages != 4 {
			t.Fatalf("told %+v", st)
		}
		if got := strings.Join(readWhole(t, s, r.Flow, 1), " "); got != want {
			t.Fatalf("read %v", got)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	check(s)
	if _, err := s.Delivered(r.Flow, 1); !errors.Is(err, ErrRemoved) {
		t.Fatalf("delivered 1: %v", err)
	}
	if ok, err := s.Delivered(r.Flow, 2); ok || err != nil {
		t.Fatalf("delivered 2: %v, %v", ok, err)
	}
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 8}}); err != nil {
		t.Fatal(err)
	}
	s.keeper.wait()
	if n := s.Stats().Dropped[wire.ReasonPurge]; n != 4 {
		t.Fatalf("%d counted in the end", n)
	}
}

// TestPurgedOnTheWay: what the hub stored before the purge does not count as
// removed, wherever it lies.
func TestPurgedOnTheWay(t *testing.T) {
	for _, filter := range []string{"", "a.>"} {
		t.Run("filter "+filter, func(t *testing.T) {
			cfg := small(t, t.TempDir())
			s := open(t, cfg)
			r := appendOK(t, s, wire.Normal, on("a.x", "1"), on("b.x", "2"))
			appendOK(t, s, wire.Normal, on("a.x", "3"), on("b.x", "4"))
			if got := readWhole(t, s, r.Flow, 1); len(got) != 4 {
				t.Fatalf("read %v", got)
			}
			want := map[string]uint64{"": 4, "a.>": 2}[filter]
			if n, err := s.Purge(Selection{Filter: filter}); n != want || err != nil {
				t.Fatalf("purged %d, %v", n, err)
			}
			if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 2}}); err != nil {
				t.Fatal(err)
			}
			s.keeper.wait()
			if n := s.Stats().Dropped[wire.ReasonPurge]; n != want/2 {
				t.Fatalf("%d counted when the hub had half", n)
			}
			if ok, err := s.Delivered(r.Flow, 1); !ok || err != nil {
				t.Fatalf("delivered: %v, %v", ok, err)
			}
			readWhole(t, s, r.Flow, 3)
			if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 4}}); err != nil {
				t.Fatal(err)
			}
			s.keeper.wait()
			if n := s.Stats().Dropped[wire.ReasonPurge]; n != want/2 {
				t.Fatalf("%d counted when it had the voids", n)
			}
		})
	}
}

func TestPurgeSurvivesFaults(t *testing.T) {
	for _, point := range []string{"remove:note", "meta:write", "meta:rename"} {
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			cfg, f := faulty(t, t.TempDir())
			s := open(t, cfg)
			r := appendOK(t, s, wire.Normal, msgs(3, "m")...)
			s.keeper.wait()
			f.fail(point, 1)
			if n, err := s.Purge(Selection{}); err == nil || n != 0 {
				t.Fatalf("purged %d", n)
			}
			if got := readWhole(t, s, r.Flow, 1); len(got) != 3 || got[0] != "m-0" || len(s.Stats().Dropped) != 0 {
				t.Fatalf("read %v, told %v", got, s.Stats().Dropped)
			}
			if n, err := s.Purge(Selection{}); err != nil || n != 3 {
				t.Fatalf("purged %d, %v", n, err)
			}
		})
	}
}
