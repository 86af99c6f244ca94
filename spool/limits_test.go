package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// TestNeighbourFillsDisk fills the file system while segments rotate. The spool
// says so, keeps what it acked, survives being killed on the full disk, and
// goes on when there is space again.
func TestNeighbourFillsDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system")
	}
	d := newDisk(t, 96)
	dir := filepath.Join(d.mnt, "spool")
	l := newLedger()
	for round := range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|1", crashEnv, dir, "seal:none"))
		var out lockedBuffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "acks", func() bool { return out.Len() > 300*round || strings.HasSuffix(out.String(), "end\n") })
		fill := filepath.Join(d.mnt, "neighbour")
		_ = exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=64k").Run() // until it fails
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if round%2 == 0 {
			cmd.Process.Kill()
			<-done
		} else {
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("the spool died of a full disk: %v\n%s", err, out.String())
				}
			case <-time.After(60 * time.Second):
				cmd.Process.Kill()
				t.Fatal("the spool hangs on a full disk")
			}
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(line, "error") && !strings.Contains(line, "disk full") {
				t.Errorf("child: %s", line)
			}
		}
		l.collect(t, []byte(strings.ReplaceAll(out.String(), "error", "told")))
		if round >= 2 { // opened while it is still full
			s, err := Open(crashConfig(dir))
			if err != nil {
				t.Fatalf("open on a full disk: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(fill); err != nil {
			t.Fatal(err)
		}
		l.check(t, dir)
		l = newLedger()
		os.RemoveAll(dir)
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
