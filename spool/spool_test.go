package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// small is a configuration in which segments fill quickly.
func small(t testing.TB, dir string) Config {
	t.Helper()
	return Config{Dir: dir, MaxBytes: 64 << 20, KeepFree: -1, CommitDelay: -1}
}

// tiny makes a head full after a few commits.
func tiny() *geometry {
	g := newGeometry(1 << 20)
	g.blocks = 12
	return &g
}

func open(t testing.TB, cfg Config) *Spool {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func msg(payload string) wire.Message {
	return wire.Message{Subject: "test.subject", Payload: []byte(payload), Time: 1_700_000_000_000}
}

func msgs(n int, prefix string) []wire.Message {
	out := make([]wire.Message, n)
	for i := range out {
		out[i] = msg(fmt.Sprintf("%s-%d", prefix, i))
	}
	return out
}

func appendOK(t testing.TB, s *Spool, l wire.Lane, ms ...wire.Message) Receipt {
	t.Helper()
	r, err := s.Append(context.Background(), l, ms)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readAll decodes everything that is held of f from seq on: payloads by
// sequence; voids give "void:<reason>".
func readAll(t testing.TB, s *Spool, f wire.Flow, from uint64) (out []string) {
	t.Helper()
	dec := wire.NewDecoder()
	next := from
	for {
		data, err := s.Read(f, next)
		if errors.Is(err, ErrEnd) {
			return out
		}
		if err != nil {
			t.Fatalf("read %s from %d: %v", f, next, err)
		}
		b, err := dec.Decode(data, true)
		if err != nil {
			t.Fatal(err)
		}
		if b.Flow != f || b.Last() < next {
			t.Fatalf("read %s from %d gave %s %s", f, next, b.Flow, b.Range())
		}
		if b.Kind == wire.KindVoid {
			for range b.Count {
				out = append(out, "void:"+b.Reason.String())
			}
		}
		for i := range b.Messages {
			out = append(out, string(b.Messages[i].Payload))
		}
		next = b.Last() + 1
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func segmentsOnDisk(t testing.TB, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), segmentPrefix) {
			n++
		}
	}
	return n
}

// globOne returns the only file of that name in a segment.
func globOne(t testing.TB, dir, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, segmentPrefix+"*", name))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", name, found, err)
	}
	return found[0]
}

func TestAppendReadReopen(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	r := appendOK(t, s, wire.Normal, msg("a"))
	if r.First != 1 || r.Last != 1 || r.Accepted != 1 || r.Flow.Epoch.IsZero() || r.Flow.Lane != wire.Normal {
		t.Fatalf("receipt %+v", r)
	}
	r2 := appendOK(t, s, wire.Normal, msg("b"), msg("c"))
	if r2.First != 2 || r2.Last != 3 || r2.Flow != r.Flow {
		t.Fatalf("receipt %+v", r2)
	}
	u := appendOK(t, s, wire.Urgent, msg("u"))
	want := []wire.FlowHeld{{Flow: u.Flow, Base: 1, First: 1, Last: 1}, {Flow: r.Flow, Base: 1, First: 1, Last: 3}}
	check := func(s *Spool) {
		t.Helper()
		if got := s.Flows(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("flows %v, want %v", got, want)
		}
		if got := readAll(t, s, r.Flow, 1); strings.Join(got, " ") != "a b c" {
			t.Fatalf("read %v", got)
		}
		if got := readAll(t, s, r.Flow, 3); strings.Join(got, " ") != "c" && strings.Join(got, " ") != "b c" {
			t.Fatalf("read from 3 %v", got)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	check(s)
	r3 := appendOK(t, s, wire.Normal, msg("d"))
	if r3.First != 4 || r3.Flow.Epoch == r.Flow.Epoch {
		t.Fatalf("after reopening: %+v; numbering goes on in a new epoch", r3)
	}
	if held := s.Flows(); len(held) != 3 || held[1].Flow != r.Flow || held[2].Flow != r3.Flow || held[2].Base != 4 {
		t.Fatalf("flows %v", held)
	}
	if _, err := s.Read(r3.Flow, 5); !errors.Is(err, ErrEnd) {
		t.Fatalf("read behind the end: %v", err)
	}
}
