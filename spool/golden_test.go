package spool

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var goldenFlag = flag.Bool("golden", false, "write the golden spools of the present version, which must be new")

// A golden spool is a folder as a released version left it, and what is in it.
const goldenVersion = "v1"

func goldenPath(name string) string { return filepath.Join("testdata", goldenVersion, name) }

// TestWriteGolden makes the golden spools. What has been released never changes.
func TestWriteGolden(t *testing.T) {
	if !*goldenFlag {
		t.Skip("only with -golden")
	}
	for _, kill := range []bool{false, true} {
		name := map[bool]string{false: "closed", true: "killed"}[kill]
		cfg := small(t, t.TempDir())
		cfg.shape = goldenShape()
		writeGolden(t, cfg, kill, name)
	}
}

// goldenShape keeps the files of a golden spool small.
func goldenShape() *geometry {
	g := newGeometry(1 << 20)
	g.blocks = 12
	return &g
}

func writeGolden(t *testing.T, cfg Config, kill bool, name string) {
	f := &seam{err: errors.New("as told")}
	cfg.Fault = f.at
	s := open(t, cfg)
	for i := range 40 {
		m := msg(fmt.Sprintf("message %d", i))
		m.ID = fmt.Sprintf("id-%d", i)
		if i%9 == 8 {
			m.Payload = append(m.Payload, noise(5000+i)...)
		}
		if i%7 == 3 {
			m.Headers = []wire.Pair{{Key: "unit", Value: "C"}}
		}
		appendOK(t, s, wire.Lane(i%2), m)
		if i == 20 { // a void
			f.fail("commit:txn", 1)
			if _, err := s.Append(t.Context(), wire.Urgent, msgs(2, "refused")); err == nil {
				t.Fatal("not refused")
			}
		}
	}
	if err := errors.Join(s.SetHubID("golden-hub"), s.SetToken("golden-token")); err != nil {
		t.Fatal(err)
	}
	s.keeper.wait()
	for _, h := range s.Flows() { // a delivered segment, which leaves its ids
		if err := s.Received(h.Flow, wire.Ranges{{First: 1, Last: 7}}); err != nil {
			t.Fatal(err)
		}
	}
	s.keeper.wantTrim()
	s.keeper.wait()
	if !kill {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		damageOne(t, cfg.Dir)
		s = open(t, cfg) // puts it aside
		for _, h := range s.Flows() {
			readAll(t, s, h.Flow, h.First)
		}
		s.keeper.wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	tr := readTree(t, cfg.Dir)
	delete(tr, reserveName)
	packGolden(t, goldenPath(name+".tar.gz"), tr)
	again := cfg
	again.Dir = filepath.Join(t.TempDir(), "spool")
	tr.write(t, again.Dir)
	if err := os.WriteFile(goldenPath(name+".txt"), []byte(describe(t, open(t, again))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// damageOne breaks the first sealed segment.
func damageOne(t *testing.T, dir string) {
	t.Helper()
	seals, err := filepath.Glob(filepath.Join(dir, segmentPrefix+"*", sealName))
	if err != nil || len(seals) == 0 {
		t.Fatal(seals, err)
	}
	if err := os.Truncate(filepath.Join(filepath.Dir(seals[0]), memName), 90); err != nil {
		t.Fatal(err)
	}
}

// describe tells all that a spool holds, of payloads their hashes.
func describe(t *testing.T, s *Spool) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "hub %s token %s\n", s.HubID(), s.Token())
	dec := wire.NewDecoder()
	for _, h := range s.Flows() {
		fmt.Fprintf(&out, "flow %s base %d first %d last %d\n", h.Flow, h.Base, h.First, h.Last)
		for next := h.First; ; {
			data, err := s.Read(h.Flow, next)
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
			if b.Kind == wire.KindVoid {
				fmt.Fprintf(&out, "%s void %s\n", b.Range(), b.Reason)
			}
			for i := range b.Messages {
				m := &b.Messages[i]
				fmt.Fprintf(&out, "%d %s %s %v %x\n", b.First+uint64(i), m.Subject, m.ID, m.Headers, sha256.Sum256(m.Payload))
			}
			next = b.Last() + 1
		}
	}
	st := s.Stats()
	fmt.Fprintf(&out, "quarantine %d segments %d messages, dropped %v\n", st.Quarantine.Segments, st.Quarantine.Messages, st.Dropped)
	return out.String()
}

// TestGolden: what a released version left is read as it was written.
func TestGolden(t *testing.T) {
	names, err := filepath.Glob("testdata/v*/*.tar.gz")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(name, ".tar.gz") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			tr := unpackGolden(t, name)
			cfg := small(t, filepath.Join(t.TempDir(), "spool"))
			tr.write(t, cfg.Dir)
			s := open(t, cfg)
			mine := appendOK(t, s, wire.Bulk, msg("at once")).Flow
			s.keeper.wait()
			for range 2 {
				got := describe(t, s)
				if at := strings.Index(got, "flow "+mine.String()); at >= 0 {
					got = got[:at] + got[strings.LastIndex(got, "\nquarantine ")+1:]
				}
				if got != string(want) {
					t.Errorf("holds\n%s\nnot\n%s", got, want)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, cfg)
			}
		})
	}
}

func packGolden(t *testing.T, path string, tr tree) {
	t.Helper()
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	tw := tar.NewWriter(gz)
	for _, name := range slices.Sorted(maps.Keys(tr)) {
		f := tr[name]
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o600, Size: f.size, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if f.dir {
			h.Mode, h.Size, h.Typeflag = 0o700, 0, tar.TypeDir
		}
		err := tw.WriteHeader(h)
		if err == nil && !f.dir {
			_, err = tw.Write(append(bytes.Clone(f.data), make([]byte, f.size-int64(len(f.data)))...))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(tw.Close(), gz.Close(), os.MkdirAll(filepath.Dir(path), 0o755))
	if err == nil {
		err = os.WriteFile(path, buf.Bytes(), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func unpackGolden(t *testing.T, path string) tree {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	gz, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	tr := tree{}
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return tr
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		tr[filepath.FromSlash(h.Name)] = treeFile{data: bytes.TrimRight(data, "\x00"), size: h.Size, dir: h.Typeflag == tar.TypeDir}
	}
}

// newer are folders that a later version wrote, each in one respect.
func newer(sp *specimen) map[string]func(t *testing.T, dir string) {
	version := func(pattern, kind string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(paths) == 0 {
				t.Fatal(paths, err)
			}
			if err := os.WriteFile(paths[len(paths)-1], appendChecked(kind, 2, []byte(`{"later":true}`)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return map[string]func(*testing.T, string){
		"meta": version(metaName, metaKind),
		"seal": version(segmentPrefix+"*/"+sealName, sealKind),
		"blocks of a seal": func(t *testing.T, dir string) {
			seals, _ := filepath.Glob(filepath.Join(dir, segmentPrefix+"*", sealName))
			body := fmt.Appendf(nil, `{"block_version":%d}`, wire.Version+1)
			if err := os.WriteFile(seals[0], appendChecked(sealKind, sealVersion, body), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"small block of a head": func(t *testing.T, dir string) { laterBlock(t, dir, 100) },
		"large block of a head": func(t *testing.T, dir string) { laterBlock(t, dir, 10_000) },
	}
}

// laterBlock adds a head with a block of a later format.
func laterBlock(t *testing.T, dir string, size int) {
	t.Helper()
	db, err := badger.Open(newGeometry(1<<20).options(filepath.Join(t.TempDir(), "db"), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	block := append([]byte{'F', 'P', 'B', wire.Version + 1}, noise(size)...)
	key := appendKey(nil, wire.Flow{Epoch: wire.NewEpoch()}, wire.Range{First: 1, Last: 3})
	if err := db.Update(func(txn *badger.Txn) error { return txn.Set(key, block) }); err != nil {
		t.Fatal(err)
	}
	readTree(t, db.Opts().Dir).write(t, filepath.Join(dir, numberedName(segmentPrefix, 800)))
}

// TestNewerVersionIsRefused: a folder that a later version wrote is left as it
// is, byte for byte, whatever a start would have to clear up in it.
func TestNewerVersionIsRefused(t *testing.T) {
	sp := newSpecimen(t, true)
	for name, change := range newer(sp) {
		t.Run(name, func(t *testing.T) {
			cfg := sp.cfg
			cfg.Dir = filepath.Join(t.TempDir(), "spool")
			sp.now.write(t, cfg.Dir)
			change(t, cfg.Dir)
			if err := os.MkdirAll(filepath.Join(cfg.Dir, numberedName(trashPrefix, 3)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(cfg.Dir, metaName+".tmp"), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := hashTree(t, cfg.Dir)
			s, err := Open(cfg)
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), "upgrade") {
				t.Errorf("open: %v", err)
			}
			if after := hashTree(t, cfg.Dir); after != before {
				t.Error("the folder was changed")
			}
		})
	}
}

// hashTree is over names, modes and contents, the lock apart.
func hashTree(t *testing.T, dir string) string {
	t.Helper()
	h := sha256.New()
	tr := readTree(t, dir)
	delete(tr, lockName)
	for _, name := range slices.Sorted(maps.Keys(tr)) {
		f := tr[name]
		fi, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(h, "%s %v %d %d %v %x\n", name, f.dir, f.size, len(f.data), fi.Mode(), sha256.Sum256(f.data))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// TestDamagedTable: the first version sealed small blocks in tables of Badger's.
// They are found in what is left of one.
func TestDamagedTable(t *testing.T) {
	tr := unpackGolden(t, goldenPath("first-closed.tar.gz"))
	want, err := os.ReadFile(goldenPath("first-closed.txt"))
	if err != nil {
		t.Fatal(err)
	}
	lines := func(text string) (out []string) { // of messages
		for line := range strings.Lines(text) {
			if line[0] >= '0' && line[0] <= '9' && !strings.Contains(line, "void") {
				out = append(out, line)
			}
		}
		return out
	}
	tables := 0
	for name, f := range tr {
		if !isTable(name) || strings.HasPrefix(name, quarantineName) {
			continue
		}
		tables++
		for _, at := range []int{0, 40, 333, len(f.data) / 2, len(f.data) - 9} {
			bit := bytes.Clone(f.data)
			bit[at] ^= 4
			for how, data := range map[string]treeFile{
				"cut":   {data: f.data[:at], size: int64(at)},
				"zeros": {data: f.data[:at], size: f.size},
				"bit":   {data: bit, size: f.size},
			} {
				t.Run(fmt.Sprintf("%s %s %d", filepath.Dir(name), how, at), func(t *testing.T) {
					cfg := small(t, filepath.Join(t.TempDir(), "spool"))
					damaged := maps.Clone(tr)
					damaged[name] = data
					damaged.write(t, cfg.Dir)
					s := open(t, cfg)
					got := lines(describe(t, s))
					const before, voids = 5, 2 // in the golden spool
					lost := int(s.Stats().Quarantine.Messages) - before
					if n := len(lines(string(want))) - len(got); n > lost || lost > n+voids || how == "bit" && n > 1 {
						t.Errorf("%d of %d messages are left, %d are counted as lost", len(got), len(lines(string(want))), lost)
					}
					for _, line := range got {
						if !strings.Contains(string(want), line) {
							t.Errorf("%q was never written", line)
						}
					}
				})
			}
		}
	}
	if tables == 0 {
		t.Fatal("there is no table")
	}
}
