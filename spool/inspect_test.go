package spool

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// stocked is a spool with several segments in two lanes and two epochs, closed;
// some of it is received.
func stocked(t *testing.T) (cfg Config, want map[wire.Lane][]string) {
	t.Helper()
	cfg = small(t, t.TempDir())
	cfg.shape = tiny()
	want = map[wire.Lane][]string{}
	for run := range 2 {
		s, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			for l, n := range map[wire.Lane]int{wire.Normal: 3, wire.Bulk: 1} {
				prefix := fmt.Sprintf("%d/%d", run, i)
				r := appendOK(t, s, l, msgs(n, prefix)...)
				for k := range n {
					want[l] = append(want[l], fmt.Sprintf("%s/%d %s-%d", r.Flow, r.First+uint64(k), prefix, k))
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return cfg, want
}

// folder is every file below dir with its content.
func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			out[name] = "folder"
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			out[name] = fmt.Sprintf("%d bytes %x", len(data), sha256.Sum256(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func inspect(t *testing.T, cfg Config) *Inspector {
	t.Helper()
	in, err := Inspect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

func peek(t *testing.T, in *Inspector, q Query) (out []string) {
	t.Helper()
	err := in.Messages(context.Background(), q, func(m *Held) error {
		out = append(out, fmt.Sprintf("%s/%d %s", m.Flow, m.Seq, m.Payload))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// both runs a test on a folder that nobody has open and on an open spool.
func both(t *testing.T, test func(t *testing.T, in *Inspector, want map[wire.Lane][]string)) {
	t.Run("folder", func(t *testing.T) {
		cfg, want := stocked(t)
		before := folder(t, cfg.Dir)
		in := inspect(t, cfg)
		test(t, in, want)
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if after := folder(t, cfg.Dir); !reflect.DeepEqual(after, before) {
			t.Errorf("the folder was changed:\n%v\nbefore:\n%v", after, before)
		}
	})
	t.Run("open", func(t *testing.T) {
		cfg, want := stocked(t)
		test(t, open(t, cfg).Inspector(), want)
	})
}

func TestInspectorShowsWhatIsHeld(t *testing.T) {
	both(t, func(t *testing.T, in *Inspector, want map[wire.Lane][]string) {
		all := slices.Concat(want[wire.Normal], want[wire.Bulk])
		if got := peek(t, in, Query{}); !slices.Equal(got, all) {
			t.Errorf("oldest first: %d messages, %v …, want %d", len(got), got[:min(3, len(got))], len(all))
		}
		backwards := slices.Clone(want[wire.Bulk])
		slices.Reverse(backwards)
		if got := peek(t, in, Query{Lanes: []wire.Lane{wire.Bulk}, Newest: true}); !slices.Equal(got, backwards) {
			t.Errorf("newest first: %v", got)
		}
		if got := peek(t, in, Query{Filter: "other.>"}); len(got) > 0 {
			t.Errorf("filtered: %v", got)
		}
		var messages uint64
		for _, s := range in.Segments() {
			messages += s.Waiting
			if s.Oldest.IsZero() || s.State == "" || s.Bytes == 0 || s.Blocks == 0 || !strings.HasPrefix(s.Segment, "seg-") {
				t.Errorf("segment %+v", s)
			}
		}
		if messages != uint64(len(all)) {
			t.Errorf("the segments hold %d messages, want %d", messages, len(all))
		}
		var read uint64
		err := in.Verify(context.Background(), func(c Check) error {
			read += c.Messages
			if c.Problem != "" {
				t.Errorf("%+v", c)
			}
			return nil
		})
		if err != nil || read != messages {
			t.Errorf("verify reads %d messages, %v", read, err)
		}
	})
}

func TestExportHoldsEverything(t *testing.T) {
	both(t, func(t *testing.T, in *Inspector, want map[wire.Lane][]string) {
		var file bytes.Buffer
		totals, err := in.Export(context.Background(), &file, wire.ExportHead{Device: "press-7", Created: 1}, nil)
		if err != nil || totals.Messages != uint64(len(want[wire.Normal])+len(want[wire.Bulk])) {
			t.Fatalf("%+v, %v", totals, err)
		}
		x, err := wire.NewExportReader(&file)
		if err != nil {
			t.Fatal(err)
		}
		dec, got := wire.NewDecoder(), map[wire.Lane][]string{}
		for {
			h, data, err := x.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			b, err := dec.Decode(data, false)
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range b.Messages {
				got[h.Lane] = append(got[h.Lane], fmt.Sprintf("%s/%d %s", h.Flow, h.First+uint64(i), m.Payload))
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the file holds %d and %d messages", len(got[wire.Normal]), len(got[wire.Bulk]))
		}
	})
}

// TestInspectorLeavesOutWhatIsReceived: the hub has the first and some in the middle.
func TestInspectorLeavesOutWhatIsReceived(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	r := appendOK(t, s, wire.Normal, msgs(10, "a")...)
	appendOK(t, s, wire.Normal, msgs(10, "b")...)
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 3}, {First: 12, Last: 18}}); err != nil {
		t.Fatal(err)
	}
	in := s.Inspector()
	got := peek(t, in, Query{})
	if len(got) != 10 || !strings.HasSuffix(got[0], "/4 a-3") || !strings.HasSuffix(got[9], "/20 b-9") {
		t.Errorf("oldest first: %v", got)
	}
	slices.Reverse(got)
	if back := peek(t, in, Query{Newest: true}); !slices.Equal(back, got) {
		t.Errorf("newest first: %v, want %v", back, got)
	}
	if segs := in.Segments(); len(segs) != 1 || segs[0].Waiting != 10 || segs[0].Messages != 20 || segs[0].State != "head" {
		t.Errorf("segments %+v", segs)
	}
}

// TestInspectJudgesAsTheAgentWould: what has expired is neither shown nor
// exported, and nothing is written down about it.
func TestInspectJudgesAsTheAgentWould(t *testing.T) {
	cfg := small(t, t.TempDir())
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	short := msg("short")
	short.TTL = 1
	appendOK(t, s, wire.Normal, msg("long"), short, msg("longer"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := folder(t, cfg.Dir)
	in := inspect(t, cfg)
	eventually(t, "the message expires", func() bool { return len(peek(t, in, Query{})) == 2 })
	if got := peek(t, in, Query{Newest: true}); !strings.HasSuffix(got[0], "/3 longer") || !strings.HasSuffix(got[1], "/1 long") {
		t.Errorf("%v", got)
	}
	var file bytes.Buffer
	if _, err := in.Export(context.Background(), &file, wire.ExportHead{Device: "d"}, nil); err != nil || bytes.Contains(file.Bytes(), []byte("short")) {
		t.Errorf("export: %v", err)
	}
	in.Close()
	if after := folder(t, cfg.Dir); !reflect.DeepEqual(after, before) {
		t.Error("the folder was changed")
	}
}

func TestMessagesEndWhenAsked(t *testing.T) {
	cfg, _ := stocked(t)
	in := inspect(t, cfg)
	n := 0
	err := in.Messages(context.Background(), Query{}, func(*Held) error {
		if n++; n == 5 {
			return ErrEnough
		}
		return nil
	})
	if err != nil || n != 5 {
		t.Errorf("%d messages, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := in.Messages(ctx, Query{}, func(*Held) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestInspectAndOpenExcludeEachOther(t *testing.T) {
	cfg, _ := stocked(t)
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("inspecting an open spool: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	in := inspect(t, cfg)
	if _, err := Open(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("opening an inspected spool: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, cfg)
	if _, err := Inspect(small(t, filepath.Join(t.TempDir(), "none"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// TestInspectAfterAKill: heads that a crash left are shown as they are.
func TestInspectAfterAKill(t *testing.T) {
	cfg := small(t, t.TempDir())
	s := open(t, cfg)
	appendOK(t, s, wire.Normal, msgs(10, "a")...)
	appendOK(t, s, wire.Urgent, msgs(2, "u")...)
	appendOK(t, s, wire.Normal, msg(strings.Repeat("x", 3*threshold)))
	s.keeper.wait()
	copied := filepath.Join(t.TempDir(), "spool") // as the disk is at this moment
	if err := os.CopyFS(copied, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	cfg.Dir = copied
	before := folder(t, copied)
	in := inspect(t, cfg)
	if got := peek(t, in, Query{}); len(got) != 13 || !strings.Contains(got[0], " u-0") {
		t.Errorf("%.100q", got)
	}
	for _, s := range in.Segments() {
		if s.State != "unsealed" {
			t.Errorf("%+v", s)
		}
	}
	totals, err := in.Export(context.Background(), io.Discard, wire.ExportHead{Device: "d"}, []wire.Lane{wire.Normal})
	if err != nil || totals.Messages != 11 || totals.Gone != 0 {
		t.Errorf("export: %+v, %v", totals, err)
	}
	in.Close()
	if after := folder(t, copied); !reflect.DeepEqual(after, before) {
		t.Error("the folder was changed")
	}
}

// TestVerifyFindsDamage: by folder and live, and changes nothing.
func TestVerifyFindsDamage(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprint("live ", live), func(t *testing.T) {
			cfg, want := stocked(t)
			var s *Spool
			if live {
				s = open(t, cfg)
			}
			segs, err := filepath.Glob(filepath.Join(cfg.Dir, "seg-*", sealName))
			if err != nil || len(segs) < 3 {
				t.Fatalf("%v, %v", segs, err)
			}
			hurt := filepath.Base(filepath.Dir(segs[1]))
			logs, _ := filepath.Glob(filepath.Join(cfg.Dir, hurt, memName))
			if len(logs) == 0 {
				t.Fatal("no log")
			}
			data, err := os.ReadFile(logs[0])
			if err == nil {
				data[len(data)/2] ^= 0x55
				err = os.WriteFile(logs[0], data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			var in *Inspector
			var before map[string]string
			if live { // its folder changes
				in = s.Inspector()
			} else {
				before = folder(t, cfg.Dir)
				in = inspect(t, cfg)
			}
			bad := map[string]string{}
			err = in.Verify(context.Background(), func(c Check) error {
				if c.Problem != "" {
					bad[c.Segment] = c.Problem
				}
				return nil
			})
			if err != nil || len(bad) != 1 || !strings.Contains(bad[hurt], "checksum") {
				t.Errorf("%v, %v", bad, err)
			}
			if !live && !reflect.DeepEqual(folder(t, cfg.Dir), before) {
				t.Error("the folder was changed")
			}
			got := peek(t, in, Query{Lanes: []wire.Lane{wire.Normal}})
			if !live && (len(got) == 0 || len(got) > len(want[wire.Normal])) {
				t.Errorf("%d of %d messages are shown", len(got), len(want[wire.Normal]))
			}
		})
	}
}

func TestReports(t *testing.T) {
	cfg, _ := stocked(t)
	seals, _ := filepath.Glob(filepath.Join(cfg.Dir, "seg-*", sealName))
	if err := os.WriteFile(seals[0], []byte("no seal"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	in := s.Inspector()
	eventually(t, "it is put aside", func() bool {
		m, _ := filepath.Glob(filepath.Join(cfg.Dir, "quarantine", "seg-*-*"))
		return len(m) >= 2
	})
	s.keeper.wait()
	reports, err := in.Reports()
	if err != nil || len(reports) != 1 || reports[0].Cause == "" || reports[0].Time.IsZero() || time.Since(reports[0].Time) > time.Hour {
		t.Fatalf("%+v, %v", reports, err)
	}
	name := reports[0].Name
	if r, err := in.Report(name); err != nil || r.Segment != reports[0].Segment {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"", "../meta", "x.json", "../quarantine/" + name, ".."} {
		if _, err := in.Report(bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("report %q: %v", bad, err)
		}
		if err := s.RemoveReport(bad); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("remove %q: %v", bad, err)
		}
	}
	if err := s.RemoveReport(name); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(filepath.Join(cfg.Dir, "quarantine"))
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if st := s.Stats().Quarantine; len(st.Reports) != 0 || st.Segments != 1 {
		t.Errorf("%+v", st)
	}
}
