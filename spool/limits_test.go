package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestRefusedAtOnce(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.MaxBatch = 3
	s := open(t, cfg)
	with := func(change func(*wire.Message)) []wire.Message {
		m := msg("x")
		change(&m)
		return []wire.Message{m}
	}
	for _, c := range []struct {
		name string
		lane wire.Lane
		msgs []wire.Message
		want error
	}{
		{"no messages", wire.Normal, nil, ErrInvalid},
		{"no such lane", 7, msgs(1, "x"), ErrInvalid},
		{"too many", wire.Normal, msgs(4, "x"), ErrTooLarge},
		{"too large", wire.Normal, msgs(1, strings.Repeat("x", maxAppend)), ErrTooLarge},
		{"no subject", wire.Normal, with(func(m *wire.Message) { m.Subject = "" }), ErrInvalid},
		{"long subject", wire.Normal, with(func(m *wire.Message) { m.Subject = strings.Repeat("s", 256) }), ErrInvalid},
		{"negative ttl", wire.Normal, with(func(m *wire.Message) { m.TTL = -1 }), ErrInvalid},
		{"time of no calendar", wire.Normal, with(func(m *wire.Message) { m.Time = wire.MaxTime + 1 }), ErrInvalid},
		{"blank", wire.Normal, with(func(m *wire.Message) { m.Blank = wire.ReasonTTL }), ErrInvalid},
	} {
		if _, err := s.Append(context.Background(), c.lane, c.msgs); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOneBadMessageSpoilsNobody: what only the encoder can refuse is refused
// alone, although it shared a block.
func TestOneBadMessageSpoilsNobody(t *testing.T) {
	hold, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	cfg := small(t, t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "commit:begin" {
			once.Do(func() { close(hold); <-release })
		}
		return nil
	}
	s := open(t, cfg)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	send := func(i int, m wire.Message) {
		wg.Add(1)
		s.Enqueue(wire.Normal, []wire.Message{m}, func(_ Receipt, err error) { errs[i] = err; wg.Done() })
	}
	send(0, msg("first"))
	<-hold // the next three share a group
	send(1, msg("good"))
	bad := msg("bad")
	bad.Subject = "with a space"
	send(2, bad)
	send(3, withID("id", "good too"))
	close(release)
	wg.Wait()
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], ErrInvalid) || errs[3] != nil {
		t.Fatalf("%v", errs)
	}
	held := s.Flows()
	if got := readAll(t, s, held[0].Flow, 1); strings.Join(got, ",") != "first,good,good too" {
		t.Fatalf("read %v", got)
	}
}

func TestGroupCommit(t *testing.T) {
	var commits atomic.Int64
	cfg := small(t, t.TempDir())
	cfg.Fault = func(point string) error {
		if point == "commit:txn" {
			commits.Add(1)
		}
		return nil
	}
	s := open(t, cfg)
	var wg sync.WaitGroup
	for p := range 16 {
		wg.Go(func() {
			for i := range 50 {
				appendOK(t, s, wire.Normal, msg(fmt.Sprintf("%d.%d", p, i)))
			}
		})
	}
	wg.Wait()
	if n := commits.Load(); n > 400 {
		t.Errorf("%d commits for 800 messages of 16 publishers", n)
	}
	commits.Store(0)
	r := appendOK(t, s, wire.Normal, msgs(30_000, strings.Repeat("y", 100))...) // more than 4 MiB
	if n := commits.Load(); n != 1 || r.Accepted != 30_000 {
		t.Errorf("one append took %d commits: %+v", n, r)
	}
	if got := readAll(t, s, r.Flow, 1); len(got) != 30_800 {
		t.Errorf("read %d", len(got))
	}
	big := appendOK(t, s, wire.Bulk, msg(noise(8<<20)))
	s.forgetTail()
	if got := readAll(t, s, big.Flow, 1); len(got) != 1 || len(got[0]) != 8<<20 {
		t.Errorf("a message of 8 MiB did not come back")
	}
	appendOK(t, s, wire.Bulk, msg("behind it"))
}

func TestFull(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MaxBytes: 16 << 20, KeepFree: -1, CommitDelay: -1}
	s := open(t, cfg)
	for round := range 3 {
		var last Receipt
		stored := 0
		for i := 0; ; i++ {
			r, err := s.Append(context.Background(), wire.Normal, []wire.Message{msg(noise(60_000 + i))})
			if errors.Is(err, ErrFull) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			last = r
			stored += 60_000
			if used := diskUsage(cfg.Dir); used > cfg.MaxBytes {
				t.Fatalf("%d bytes are allocated of %d", used, cfg.MaxBytes)
			}
		}
		if !errors.Is(s.Err(), ErrFull) {
			t.Fatalf("Err: %v", s.Err())
		}
		if stored < 8<<20 {
			t.Fatalf("round %d: full after %d bytes", round, stored)
		}
		if used, told := diskUsage(cfg.Dir), s.Stats().DiskUsed; used > told+256<<10 || told > used+2<<20 {
			t.Errorf("%d bytes are allocated, %d told", used, told)
		}
		if err := s.Received(last.Flow, wire.Ranges{{First: 1, Last: last.Last}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "room again", func() bool { return s.Err() == nil })
		if round == 1 { // and after a restart
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
		}
	}
	s.keeper.wait()
	if n := segmentsOnDisk(t, cfg.Dir); n > 3 {
		t.Errorf("%d segments are left when nothing is held", n)
	}
	if len(s.Flows()) != 0 {
		t.Errorf("flows %v", s.Flows())
	}
}

func TestKeepFree(t *testing.T) {
	cfg := small(t, t.TempDir())
	free, _, err := freeBytes(cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg.KeepFree = free * 2
	s := open(t, cfg)
	if _, err := s.Append(context.Background(), wire.Normal, msgs(1, "x")); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("append: %v", err)
	}
	if !errors.Is(s.Err(), ErrDiskFull) {
		t.Fatalf("Err: %v", s.Err())
	}
}

func TestLocked(t *testing.T) {
	cfg := small(t, t.TempDir())
	open(t, cfg)
	if _, err := Open(cfg); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), cfg.Dir) {
		t.Fatalf("second open: %v", err)
	}
}

func TestNewerLayout(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	appendOK(t, s, wire.Normal, msg("a"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(cfg.Dir, metaName)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), metaKind+" 1 ", metaKind+" 2 ", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); !errors.Is(err, ErrLayout) {
		t.Fatalf("open: %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	dir := t.TempDir()
	for _, cfg := range []Config{{}, {Dir: dir, MaxBytes: 1 << 20}, {Dir: dir, MaxBytes: -1}, {Dir: dir, MaxBatch: 1 << 20}} {
		if _, err := Open(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestFullUntilItDrains: a head in each lane and the reserve leave no room for
// another head. When the hub has everything, the next message finds room all the
// same, as heads of which nothing is held give way; so the spool is not full.
func TestFullUntilItDrains(t *testing.T) {
	s := open(t, Config{Dir: t.TempDir(), MaxBytes: 8 << 20, KeepFree: -1, CommitDelay: -1})
	lanes := []wire.Lane{wire.Urgent, wire.Normal, wire.Bulk}
	last := map[wire.Lane]Receipt{}
	for _, l := range lanes {
		last[l] = appendOK(t, s, l, msg("first"))
	}
	for i := 0; ; i++ {
		r, err := s.Append(context.Background(), wire.Bulk, []wire.Message{msg(noise(20_000 + i))})
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		last[wire.Bulk] = r
	}
	if !errors.Is(s.Err(), ErrFull) {
		t.Fatalf("Err: %v", s.Err())
	}
	for _, r := range last {
		if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: r.Last}}); err != nil {
			t.Fatal(err)
		}
	}
	s.keeper.wait()
	if err := s.Err(); err != nil {
		t.Errorf("nothing is held, and %v", err)
	}
	for range 300 {
		for _, l := range lanes {
			r := appendOK(t, s, l, msg(noise(20_000)))
			if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: r.Last}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
