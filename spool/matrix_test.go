package spool

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var (
	matrixCases = flag.Int("matrix", 60, "cases of the corruption matrix that are drawn; 0 takes all")
	matrixSeed  = flag.Uint64("matrix-seed", 0, "seed of the draw; 0 draws one")
)

// tree is a folder in memory: contents without the zeros behind them, and sizes.
type tree map[string]treeFile

type treeFile struct {
	data []byte
	size int64
	dir  bool
}

func readTree(t testing.TB, root string) tree {
	t.Helper()
	out := tree{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil || d.IsDir() {
			out[name] = treeFile{dir: true}
			return err
		}
		data, err := os.ReadFile(path)
		out[name] = treeFile{data: bytes.Clone(bytes.TrimRight(data, "\x00")), size: int64(len(data))}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (tr tree) write(t testing.TB, root string) {
	t.Helper()
	for name, f := range tr {
		path := filepath.Join(root, name)
		if f.dir {
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(path, f.data, 0o600)
		if err == nil {
			err = os.Truncate(path, f.size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// specimen is a stopped or killed spool and everything that it acknowledged.
type specimen struct {
	cfg   Config
	now   tree
	older tree // of the same spool, a while before
	acked map[wire.Flow]map[uint64]string
	ids   map[string]Receipt
}

// newSpecimen makes one with sealed segments of three lanes and two epochs,
// delivered ones, publisher ids, a void, something in quarantine; if it is
// killed, with heads, else closed.
func newSpecimen(t testing.TB, kill bool) *specimen {
	t.Helper()
	sp := &specimen{cfg: small(t, t.TempDir()), acked: map[wire.Flow]map[uint64]string{}, ids: map[string]Receipt{}}
	sp.cfg.shape = tiny()
	f := &seam{err: errors.New("as told")}
	sp.cfg.Fault = f.at
	s := open(t, sp.cfg)
	publish := func(l wire.Lane, i int) {
		m := msg(fmt.Sprintf("%s %d %s", l, i, noise(20+i%3*10)))
		if i%5 == 4 {
			m.Payload = append(m.Payload, noise(9000+i)...)
		}
		if i%3 == 0 {
			m.ID = fmt.Sprintf("id %s %d", l, i)
		}
		r := appendOK(t, s, l, m)
		if sp.acked[r.Flow] == nil {
			sp.acked[r.Flow] = map[uint64]string{}
		}
		sp.acked[r.Flow][r.First] = string(m.Payload)
		if m.ID != "" {
			sp.ids[m.ID] = r
		}
	}
	for i := range 60 {
		publish(wire.Lane(i%3), i)
	}
	s.keeper.wait()
	for _, h := range s.Flows() { // the first segment of each flow is delivered
		if err := s.Received(h.Flow, wire.Ranges{{First: 1, Last: 8}}); err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(8) {
			delete(sp.acked[h.Flow], seq+1)
		}
	}
	s.keeper.wantTrim()
	s.keeper.wait()
	sp.older = readTree(t, sp.cfg.Dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, sp.cfg)
	for i := range 25 {
		if i == 12 {
			f.fail("commit:txn", 1)
			if _, err := s.Append(t.Context(), wire.Normal, msgs(2, "refused")); err == nil {
				t.Fatal("not refused")
			}
		}
		publish(wire.Lane(1+i%5/4), i) // mostly normal, some bulk
	}
	s.keeper.wait()
	if !kill {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sp.now = readTree(t, sp.cfg.Dir)
	sp.cfg.Fault = nil
	return sp
}

// damageCase is one way to damage one file.
type damageCase struct {
	name  string
	apply func(tree)
	old   bool // it takes knowledge back: more than is lost may be reported
	mute  bool // what is lost cannot be known
	after func(dir string)
}

// cases lists the matrix for every file of the specimen.
func (sp *specimen) cases(rnd *rand.Rand) (out []damageCase) {
	var names []string
	for name, f := range sp.now {
		if !f.dir {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		f := sp.now[name]
		add := func(how string, g treeFile) {
			out = append(out, damageCase{name: name + " " + how, apply: func(tr tree) { tr[name] = g }})
		}
		n := int64(len(f.data))
		for _, at := range offsets(rnd, n, f.size) {
			add(fmt.Sprintf("cut at %d", at), treeFile{data: f.data[:min(at, n)], size: at})
			add(fmt.Sprintf("zeros from %d", at), treeFile{data: f.data[:min(at, n)], size: f.size})
		}
		for range 12 {
			if n == 0 {
				break
			}
			at := rnd.Int64N(n)
			data := bytes.Clone(f.data)
			data[at] ^= byte(1 << rnd.IntN(8))
			add(fmt.Sprintf("bit of byte %d", at), treeFile{data: data, size: f.size})
		}
		garbage := make([]byte, min(f.size, 100_000))
		for i := range garbage {
			garbage[i] = byte(rnd.Uint32())
		}
		add("garbage", treeFile{data: garbage, size: f.size})
		out = append(out, damageCase{name: name + " missing", apply: func(tr tree) { delete(tr, name) }},
			damageCase{name: name + " is a folder", apply: func(tr tree) { tr[name] = treeFile{dir: true} }})
		if o, ok := sp.older[name]; ok && !bytes.Equal(o.data, f.data) {
			out = append(out, damageCase{name: name + " older", apply: func(tr tree) { tr[name] = o }, old: true})
		}
	}
	return append(out, sp.folderCases()...)
}

// offsets are the ends, the header, and some in between.
func offsets(rnd *rand.Rand, n, size int64) []int64 {
	out := []int64{0, min(1, n), min(19, n), min(21, n), n / 2, max(n-1, 0), n}
	for range 6 {
		out = append(out, rnd.Int64N(n+1))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (sp *specimen) folderCases() (out []damageCase) {
	segs := sp.segments()
	for _, seg := range segs {
		gone := func(tr tree) {
			for name := range tr {
				if name == seg || strings.HasPrefix(name, seg+"/") {
					delete(tr, name)
				}
			}
		}
		out = append(out, damageCase{name: seg + " missing", apply: gone},
			damageCase{name: seg + " is a file", apply: func(tr tree) { gone(tr); tr[seg] = treeFile{data: []byte("hello"), size: 5} }},
			damageCase{name: seg + " twice", apply: func(tr tree) {
				for name, f := range sp.now {
					if rest, ok := strings.CutPrefix(name, seg); ok {
						tr[numberedName(segmentPrefix, 900)+rest] = f
					}
				}
			}})
	}
	foreign := func(tr tree) {
		for _, name := range []string{"notes.txt", "seg-7", "seg-000000000abc", "seg-000000000800/notes.txt", "trash-old/x", "my.tmp", "ids/readme", "quarantine/readme", "salvage-x", "seg-000000000700.bak/000001.vlog"} {
			tr[name] = treeFile{data: []byte("somebody's"), size: 10}
		}
	}
	return append(out, damageCase{name: "foreign files", apply: foreign})
}

func (sp *specimen) segments() (out []string) {
	for name, f := range sp.now {
		if _, ok := numbered(name, segmentPrefix); ok && f.dir {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// TestCorruptionMatrix: whatever is done to one file or folder of a stopped or
// killed spool, it opens, takes messages at once, and delivers what is readable
// once and in order; the rest is counted and reported.
func TestCorruptionMatrix(t *testing.T) {
	seed := *matrixSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -matrix-seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for _, kill := range []bool{false, true} {
		sp := newSpecimen(t, kill)
		cases := sp.cases(rnd)
		rnd.Shuffle(len(cases), func(i, k int) { cases[i], cases[k] = cases[k], cases[i] })
		n := *matrixCases
		if testing.Short() {
			n = 12
		}
		if n > 0 {
			cases = cases[:min(n, len(cases))]
		}
		for _, c := range cases {
			t.Run(fmt.Sprintf("kill=%v/%s", kill, strings.NewReplacer("/", "-", " ", "_").Replace(c.name)), func(t *testing.T) {
				t.Parallel()
				sp.check(t, c)
			})
		}
	}
}

func (sp *specimen) check(t *testing.T, c damageCase) {
	tr := maps.Clone(sp.now)
	c.apply(tr)
	cfg := sp.cfg
	cfg.Dir = filepath.Join(t.TempDir(), "spool")
	tr.write(t, cfg.Dir)
	if c.after != nil {
		c.after(cfg.Dir)
	}
	began := time.Now()
	s := open(t, cfg)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("opened after %v", took)
	}
	appendOK(t, s, wire.Urgent, msg("at once"))
	lost := sp.compare(t, s, c)
	for range 2 { // the keeper puts aside and seals meanwhile; and again after a restart
		s.keeper.wait()
		s.forgetTail()
		if again := sp.compare(t, s, c); again != lost {
			t.Errorf("%d messages are lost now, %d before", again, lost)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, cfg)
	}
	for name, f := range tr {
		if string(f.data) == "somebody's" {
			if _, err := os.Lstat(filepath.Join(cfg.Dir, name)); err != nil {
				t.Errorf("%s was not ours to touch: %v", name, err)
			}
		}
	}
}

// compare reads everything and returns how much is lost.
func (sp *specimen) compare(t *testing.T, s *Spool, c damageCase) (lost int) {
	t.Helper()
	read, void := contents(t, s)
	voids := 0
	for f, seqs := range void {
		voids += len(seqs)
		for seq := range seqs {
			if _, acked := sp.acked[f][seq]; !acked && seq > sp.last(f) && sp.acked[f] != nil {
				t.Errorf("%s %d is reported as lost; nobody was told of it", f, seq)
			}
		}
	}
	st := s.Stats()
	if n := uint64(voids); n != st.Quarantine.Messages || n != st.Dropped[wire.ReasonQuarantine] {
		t.Errorf("%d sequences are void, %d counted as lost, %d as dropped", n, st.Quarantine.Messages, st.Dropped[wire.ReasonQuarantine])
	}
	silent := 0
	for f, want := range sp.acked {
		for seq, payload := range want {
			got, ok := read[f][seq]
			switch {
			case ok && got != payload:
				t.Errorf("%s %d is %.30q, not %.30q", f, seq, got, payload)
			case ok && void[f][seq]:
				t.Errorf("%s %d is read, and reported as lost", f, seq)
			case !ok && void[f][seq]:
				lost++
			case !ok:
				lost++
				silent++
			}
		}
	}
	if silent > 0 && !c.mute {
		t.Errorf("%d acknowledged messages are gone silently; %+v", silent, st.Quarantine)
	}
	if lost > 0 && st.Quarantine.Segments == 0 && !c.mute {
		t.Errorf("%d lost, and no report: %+v", lost, st.Quarantine)
	}
	for _, name := range st.Quarantine.Reports {
		if _, err := os.Stat(filepath.Join(s.quarantineDir(), name)); err != nil {
			t.Error(err)
		}
	}
	return lost
}

// last is the highest sequence of f that was acknowledged.
func (sp *specimen) last(f wire.Flow) (n uint64) {
	for seq := range sp.acked[f] {
		n = max(n, seq)
	}
	return n
}

// contents reads everything that is held.
func contents(t *testing.T, s *Spool) (read map[wire.Flow]map[uint64]string, void map[wire.Flow]map[uint64]bool) {
	t.Helper()
	read, void = map[wire.Flow]map[uint64]string{}, map[wire.Flow]map[uint64]bool{}
	dec := wire.NewDecoder()
	for _, h := range s.Flows() {
		read[h.Flow], void[h.Flow] = map[uint64]string{}, map[uint64]bool{}
		for next := h.First; ; {
			data, err := s.Read(h.Flow, next)
			if errors.Is(err, ErrEnd) {
				break
			}
			if err != nil {
				t.Fatalf("read %s from %d: %v", h.Flow, next, err)
			}
			b, err := dec.Decode(data, false)
			if err != nil {
				t.Fatal(err)
			}
			if b.Flow != h.Flow || b.First < next {
				t.Fatalf("%s from %d gave %s %s", h.Flow, next, b.Flow, b.Range())
			}
			for seq := b.First; b.Kind == wire.KindVoid && b.Reason == wire.ReasonQuarantine && seq <= b.Last(); seq++ {
				void[h.Flow][seq] = true
			}
			for i := range b.Messages {
				read[h.Flow][b.First+uint64(i)] = string(b.Messages[i].Payload)
			}
			next = b.Last() + 1
		}
	}
	return read, void
}

// TestMixedSpools: some segments are those of another spool, under the same
// numbers. What they hold is delivered too; what they displaced is reported.
func TestMixedSpools(t *testing.T) {
	for _, kill := range []bool{false, true} {
		a, b := newSpecimen(t, kill), newSpecimen(t, kill)
		for i, seg := range a.segments() {
			if i%2 == 0 || !b.now[seg].dir {
				continue
			}
			t.Run(fmt.Sprintf("kill=%v %s", kill, seg), func(t *testing.T) {
				a.check(t, damageCase{name: "mixed", old: true, apply: func(tr tree) {
					maps.DeleteFunc(tr, func(name string, _ treeFile) bool { return strings.HasPrefix(name, seg) })
					for name, f := range b.now {
						if strings.HasPrefix(name, seg) {
							tr[name] = f
						}
					}
				}})
			})
		}
	}
}

// TestMemoryFirstLeavesNoGap: what the hub got from memory is in no segment, and
// not lost.
func TestMemoryFirstLeavesNoGap(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.MemoryFirst = true
	s := open(t, cfg)
	s.LinkUp(true)
	var r Receipt
	for i := range 10 {
		r = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i)))
	}
	if err := s.Received(r.Flow, wire.Ranges{{First: 1, Last: 8}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if got := readAll(t, s, r.Flow, 1); !slices.Equal(got, []string{"8", "9"}) {
		t.Errorf("read %v", got)
	}
	if q := s.Stats().Quarantine; q.Segments != 0 || q.Messages != 0 {
		t.Errorf("%+v", q)
	}
}
