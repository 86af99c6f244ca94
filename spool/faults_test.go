package spool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// seam makes chosen steps fail.
type seam struct {
	point atomic.Value // string
	left  atomic.Int64 // how often it still fails
	err   error
}

func (f *seam) fail(point string, times int64) {
	f.left.Store(times)
	f.point.Store(point)
}

func (f *seam) at(point string) error {
	if p, _ := f.point.Load().(string); p == point && f.left.Add(-1) >= 0 {
		return f.err
	}
	return nil
}

func faulty(t testing.TB, dir string) (Config, *seam) {
	f := &seam{err: syscall.EIO}
	cfg := small(t, dir)
	cfg.shape = tiny()
	cfg.Fault = f.at
	return cfg, f
}

func TestFailedCommit(t *testing.T) {
	for _, point := range []string{"commit:begin", "commit:txn", "commit:vlog-sync", "commit:mem-sync", "commit:publish"} {
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			cfg, f := faulty(t, t.TempDir())
			s := open(t, cfg)
			big := msg(noise(20_000)) // so that the value log is written
			r := appendOK(t, s, wire.Normal, msg("a"))
			f.fail(point, 1)
			if _, err := s.Append(context.Background(), wire.Normal, []wire.Message{msg("lost"), big}); !errors.Is(err, ErrDiskFault) {
				t.Fatalf("append: %v", err)
			}
			if s.Err() == nil {
				t.Fatal("Err is nil after a fault")
			}
			if got := readAll(t, s, r.Flow, 1); len(got) != 1 {
				t.Fatalf("read %v before the void is durable", got)
			}
			r2 := appendOK(t, s, wire.Normal, msg("b"))
			if r2.First != 4 || r2.Flow != r.Flow {
				t.Fatalf("numbers were used again: %+v", r2)
			}
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
			want := "a void:failed_commit void:failed_commit b"
			if got := readAll(t, s, r.Flow, 1); strings.Join(got, " ") != want {
				t.Fatalf("read %v", got)
			}
			if n := s.Stats().Dropped[wire.ReasonFailedCommit]; n != 2 {
				t.Fatalf("%d counted", n)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			if got := readAll(t, s, r.Flow, 1); strings.Join(got, " ") != want {
				t.Fatalf("after reopening: %v", got)
			}
		})
	}
}

// noise does not compress below its alphabet.
func noise(n int) string {
	b := make([]byte, n)
	x := uint64(n)*0x9e3779b97f4a7c15 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte('!' + x%90)
	}
	return string(b)
}

func TestFaultBeforeNumbering(t *testing.T) {
	for _, point := range points {
		if !strings.HasPrefix(point, "rotate") && !strings.HasPrefix(point, "meta") && point != "epoch:begin" {
			continue
		}
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			cfg, f := faulty(t, t.TempDir())
			f.fail(point, 2) // the spare, and the head of the first message
			s := open(t, cfg)
			s.keeper.wait()
			_, err := s.Append(context.Background(), wire.Normal, msgs(1, "a"))
			if point == "epoch:begin" || strings.HasPrefix(point, "meta") {
				_, err2 := s.Append(context.Background(), wire.Normal, msgs(1, "a"))
				err = errors.Join(err, err2)
			}
			if !errors.Is(err, ErrDiskFault) {
				t.Fatalf("append: %v", err)
			}
			r := appendOK(t, s, wire.Normal, msg("b"))
			if r.First != 1 {
				t.Fatalf("a refused message took a number: %+v", r)
			}
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestFailedSeal(t *testing.T) {
	for _, point := range points {
		if !strings.HasPrefix(point, "seal") {
			continue
		}
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			cfg, f := faulty(t, t.TempDir())
			s := open(t, cfg)
			f.fail(point, 1)
			var want []string
			var flow wire.Flow
			for i := range 20 {
				want = append(want, fmt.Sprint(i))
				flow = appendOK(t, s, wire.Normal, msg(want[i])).Flow
			}
			s.keeper.wait()
			s.forgetTail()
			if got := readAll(t, s, flow, 1); !slices.Equal(got, want) {
				t.Fatalf("read %v", got)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			if got := readAll(t, s, flow, 1); !slices.Equal(got, want) {
				t.Fatalf("after reopening: %v", got)
			}
			if q := s.Stats().Quarantine; q.Segments != 0 {
				t.Fatalf("quarantine: %+v", q)
			}
		})
	}
}

// forgetTail makes every read go to the segments.
func (s *Spool) forgetTail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = tail{blocks: map[tailKey][]byte{}}
}

func TestFailedTrim(t *testing.T) {
	for _, point := range points {
		if !strings.HasPrefix(point, "trim") {
			continue
		}
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			cfg, f := faulty(t, t.TempDir())
			s := open(t, cfg)
			var r Receipt
			for i := range 20 {
				r = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i)))
			}
			s.keeper.wait()
			before := segmentsOnDisk(t, cfg.Dir)
			f.fail(point, 1)
			if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 19}}); err != nil {
				t.Fatal(err)
			}
			s.keeper.wait()
			if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 20}}); err != nil {
				t.Fatal(err)
			}
			s.keeper.wantTrim()
			s.keeper.wait()
			if after := segmentsOnDisk(t, cfg.Dir); after >= before {
				t.Fatalf("%d segments before, %d after", before, after)
			}
			if ok, err := s.Delivered(r.Flow, 3); !ok || err != nil {
				t.Fatalf("delivered: %v, %v", ok, err)
			}
		})
	}
}

// TestFaultsKeepOrder lets steps fail at random under load: what was acked is
// there once and in order, what was refused is void or nowhere.
func TestFaultsKeepOrder(t *testing.T) {
	var n atomic.Uint64
	var off atomic.Bool
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	cfg.Fault = func(point string) error {
		if off.Load() || strings.HasPrefix(point, "recover") || strings.HasPrefix(point, "quarantine") || strings.HasPrefix(point, "salvage") {
			return nil
		}
		if x := n.Add(1) * 0x9e3779b97f4a7c15; (x>>32)%37 == 0 {
			return syscall.EIO
		}
		return nil
	}
	s, err := Open(cfg)
	for err != nil {
		s, err = Open(cfg)
	}
	acked := map[uint64]string{}
	var flow wire.Flow
	for i := range 200 {
		name := fmt.Sprint(i)
		r, err := s.Append(context.Background(), wire.Normal, []wire.Message{msg(name)})
		switch {
		case err == nil:
			acked[r.First], flow = name, r.Flow
		case !errors.Is(err, ErrDiskFault):
			t.Fatal(err)
		}
	}
	check := func(s *Spool) {
		t.Helper()
		s.forgetTail()
		got := readAll(t, s, flow, 1)
		for i, name := range got {
			if want, ok := acked[uint64(i)+1]; ok && name != want || !ok && name != "void:failed_commit" {
				t.Fatalf("sequence %d is %s, acked was %q", i+1, name, want)
			}
		}
		for seq := range acked {
			if seq > uint64(len(got)) {
				t.Fatalf("sequence %d of %d is missing", seq, len(got))
			}
		}
	}
	off.Store(true)
	eventually(t, "every segment is sealed", func() bool { // those that failed are tried again
		s.keeper.wait()
		s.mu.RLock()
		defer s.mu.RUnlock()
		return !slices.ContainsFunc(s.segments[:len(s.segments)-1], func(g *segment) bool { return !g.sealed && !g.gone })
	})
	check(s)
	off.Store(false)
	_ = s.Close() // it may say that a step failed
	off.Store(true)
	check(open(t, cfg))
}

// TestReadErrorQuarantines: a block that cannot be read is given up, reported
// and read as a void; the rest of its segment is copied.
func TestReadErrorQuarantines(t *testing.T) {
	cfg, _ := faulty(t, t.TempDir())
	s := open(t, cfg)
	var flow wire.Flow
	var want []string
	for i := range 20 {
		want = append(want, noise(6000+i))
		flow = appendOK(t, s, wire.Normal, msg(want[i])).Flow
	}
	s.keeper.wait()
	s.forgetTail()
	logs, err := filepath.Glob(filepath.Join(cfg.Dir, segmentPrefix+"*", "000001.vlog"))
	if err != nil || len(logs) < 3 {
		t.Fatal(logs, err)
	}
	flip(t, logs[1])
	for range 2 {
		survives(t, s, flow, want, 1)
		s.keeper.wait()
		s.forgetTail()
	}
	if q := s.Stats().Quarantine; q.Segments != 1 || q.Messages != 1 {
		t.Errorf("%+v", q)
	}
	kept, err := filepath.Glob(filepath.Join(cfg.Dir, quarantineName, segmentPrefix+"*", "000001.vlog"))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

// TestFolderReplaced: a folder that disappears under a running spool is a fault
// of the disk, and no loss.
func TestFolderReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	cfg, _ := faulty(t, dir)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var flow wire.Flow
	for i := range 30 {
		flow = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i))).Flow
	}
	s.keeper.wait()
	s.forgetTail()
	if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Read(flow, 1); err == nil {
		t.Errorf("read %d bytes of what is away", len(data))
	}
	if q := s.Stats().Quarantine; q.Segments > 0 {
		t.Errorf("%+v", q)
	}
	_ = s.Close() // it says what it could not write
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, open(t, cfg), flow, 1); len(got) != 30 || got[7] != "7" {
		t.Errorf("%d messages are back: %q", len(got), got)
	}
}
