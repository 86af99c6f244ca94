package spool

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	subjectMark = "secret.subject.d41d8cd9"
	payloadMark = "payload-8f00b204e9800998-marker"
)

func testKey(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

// secretMessage is small or large; without encryption both marks are found in the clear.
func secretMessage(i int) wire.Message {
	p := fmt.Sprintf("%d %s", i, payloadMark)
	if i%5 == 4 {
		p += noise(9000 + i)
	}
	return wire.Message{Subject: subjectMark, Payload: []byte(p), Time: 1_700_000_000_000}
}

// secrets makes a spool of sealed segments and returns it open, with a copy of
// the folder as a crash would leave it.
func secrets(t *testing.T, keys ...[]byte) (cfg Config, crashed string, flow wire.Flow, want []string) {
	t.Helper()
	dir := t.TempDir()
	cfg = small(t, filepath.Join(dir, "spool"))
	cfg.shape, cfg.Keys = tiny(), keys
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 29 {
		m := secretMessage(i)
		m.ID = fmt.Sprintf("%s-%d", payloadMark, i)
		want = append(want, string(m.Payload))
		flow = appendOK(t, s, wire.Normal, m).Flow
	}
	s.keeper.wait()
	crashed = filepath.Join(dir, "copy")
	if err := os.CopyFS(crashed, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	s.forgetTail()
	if got := readAll(t, s, flow, 1); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("%d messages are read while it runs", len(got))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg, crashed, flow, want
}

// marks counts the files below dir in which a mark stands in the clear.
func marks(t *testing.T, dir string) (subjects, payloads int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(subjectMark)) {
			subjects++
		}
		if bytes.Contains(data, []byte(payloadMark)) {
			payloads++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return subjects, payloads
}

func wantNoMarks(t *testing.T, dir string) {
	t.Helper()
	if s, p := marks(t, dir); s+p > 0 {
		t.Errorf("%s: %d files show a subject and %d a payload", dir, s, p)
	}
}

// TestMarksShowWithoutKey: what the other tests look for can be found.
func TestMarksShowWithoutKey(t *testing.T) {
	cfg, crashed, _, _ := secrets(t)
	for _, dir := range []string{cfg.Dir, crashed} {
		if s, p := marks(t, dir); s == 0 || p == 0 {
			t.Errorf("%s: %d files show a subject and %d a payload", dir, s, p)
		}
	}
}

func TestEncryptedSpool(t *testing.T) {
	for _, size := range []int{16, 24, 32} {
		key := testKey(1)[:size]
		cfg, crashed, flow, want := secrets(t, key)
		for _, dir := range []string{cfg.Dir, crashed} {
			wantNoMarks(t, dir)
			cfg.Dir = dir
			s := open(t, cfg)
			survives(t, s, flow, want, 0)
			if keys := s.Stats().Keys; len(keys) != 1 || keys[0].ID != KeyID(key) || keys[0].Segments < 2 || !keys[0].Current {
				t.Errorf("keys in use: %+v", keys)
			}
			wantDuplicate(t, s, withID(payloadMark+"-3", "again"), Receipt{Flow: flow, First: 4, Last: 4})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			wantNoMarks(t, dir)
		}
	}
}

// TestEncryptedDamage: salvage and quarantine show nothing in the clear either.
func TestEncryptedDamage(t *testing.T) {
	for _, c := range []struct {
		file   string
		damage func(*testing.T, string)
		lost   int
	}{
		{sealName, remove, 0}, {keyName, remove, 0}, {keyName, flip, 0}, {keyName, halve, 0},
		{registryName, remove, 0}, {registryName, flip, 0}, {registryName, halve, 0},
		{memName, flip, 1}, {"000001.vlog", flip, 2}, {"000001.vlog", halve, 2}, {"MANIFEST", remove, 0},
	} {
		cfg, _, flow, want := secrets(t, testKey(1))
		segs, err := filepath.Glob(filepath.Join(cfg.Dir, segmentPrefix+"*"))
		if err != nil || len(segs) < 3 {
			t.Fatal(segs, err)
		}
		c.damage(t, filepath.Join(segs[1], c.file))
		s := open(t, cfg)
		t.Log(c.file)
		survives(t, s, flow, want, c.lost)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		wantNoMarks(t, cfg.Dir)
	}
}

// TestEncryptedCrashWithoutRegistry: the copy of the data key opens the logs.
func TestEncryptedCrashWithoutRegistry(t *testing.T) {
	for _, file := range []string{registryName, keyName} {
		cfg, crashed, flow, want := secrets(t, testKey(1))
		cfg.Dir = crashed
		mems, err := filepath.Glob(filepath.Join(crashed, segmentPrefix+"*", "00001.mem"))
		if err != nil || len(mems) == 0 {
			t.Fatal(mems, err)
		}
		for _, mem := range mems {
			if err := os.Remove(filepath.Join(filepath.Dir(mem), file)); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, cfg)
		survives(t, s, flow, want, 0)
		if err := s.Close(); err != nil { // else the repair moves folders while they are read
			t.Fatal(err)
		}
		wantNoMarks(t, crashed)
	}
}

// treeHash covers names, sizes, times and content of everything below dir.
func treeHash(t *testing.T, dir string) [32]byte {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(h, path, fi.Mode(), fi.ModTime().UnixNano())
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			fmt.Fprintln(h, len(data))
			h.Write(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return [32]byte(h.Sum(nil))
}

func TestWrongKeyTouchesNothing(t *testing.T) {
	cfg, crashed, flow, want := secrets(t, testKey(1))
	for _, dir := range []string{cfg.Dir, crashed} {
		cfg.Dir = dir
		for _, keys := range [][][]byte{nil, {testKey(2)}, {testKey(2), testKey(3)}} {
			before := treeHash(t, dir)
			cfg.Keys = keys
			s, err := Open(cfg)
			if !errors.Is(err, ErrKey) {
				t.Fatalf("opened with %d other keys: %v", len(keys), err)
			}
			if s != nil || treeHash(t, dir) != before {
				t.Errorf("with %d other keys something was touched", len(keys))
			}
			for _, part := range []string{KeyID(testKey(1)), "spool.key_file"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not tell %q: %v", part, err)
				}
			}
			if strings.Contains(err.Error(), string(testKey(1))) || strings.Contains(err.Error(), fmt.Sprintf("%x", testKey(2))) {
				t.Errorf("the error tells a key: %v", err)
			}
		}
		cfg.Keys = [][]byte{testKey(1)}
		survives(t, open(t, cfg), flow, want, 0)
	}
	cfg.Keys = [][]byte{[]byte("short")}
	if _, err := Open(cfg); !errors.Is(err, ErrConfig) {
		t.Errorf("a key of 5 bytes: %v", err)
	}
}

// TestKeyRotation: from plain to a key, to another, and to none again, with a
// backlog all the while; a key that nothing needs any more can go.
func TestKeyRotation(t *testing.T) {
	cfg, _, flow, want := secrets(t)
	one, two := testKey(1), testKey(2)
	flows := []wire.Flow{flow}
	for _, keys := range [][][]byte{{one}, {two, one}, {nil, one, two}} {
		cfg.Keys = keys
		s := open(t, cfg)
		survives(t, s, flow, want, 0)
		flows = append(flows, appendOK(t, s, wire.Normal, secretMessage(1), secretMessage(4)).Flow)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	wantUses(t, cfg.Dir, map[string]int{"": segmentsOnDisk(t, cfg.Dir) - 2, KeyID(one): 1, KeyID(two): 1})
	for _, keys := range [][][]byte{nil, {one}, {two}, {nil, two}} {
		cfg.Keys = keys
		if _, err := Open(cfg); !errors.Is(err, ErrKey) {
			t.Fatalf("opened without a key that is needed: %v", err)
		}
	}
	cfg.Keys = [][]byte{two, one}
	s := open(t, cfg)
	for _, f := range flows[:2] { // the hub has what was plain at first, and what has the first key
		h := s.Flows()[0]
		if h.Flow != f {
			t.Fatalf("flows %v", s.Flows())
		}
		if err := s.Received(f, wire.Ranges{{First: h.First, Last: h.Last}}); err != nil {
			t.Fatal(err)
		}
	}
	s.keeper.wait()
	if keys := s.Stats().Keys; len(keys) != 3 || keys[1].Segments != 0 {
		t.Errorf("keys in use: %+v", keys)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Keys = [][]byte{two}
	s = open(t, cfg)
	for _, f := range flows[2:] {
		if got := readAll(t, s, f, 1); len(got) != 2 || !strings.Contains(got[0], payloadMark) {
			t.Errorf("%s: %q", f, got)
		}
	}
}

func wantUses(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	uses, err := Keys(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, u := range uses {
		got[u.ID] = u.Segments
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("segments by key %v, want %v", got, want)
	}
}
