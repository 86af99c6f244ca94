package registry

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestShelfIsAMap does to a shelf what is done to a map, and they stay the same.
func TestShelfIsAMap(t *testing.T) {
	type marks struct{ online, cloned bool }
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, model := shelf{}, map[string]marks{}
		names := 1 + rnd.IntN(6000)
		for range 20_000 {
			name := fmt.Sprintf("d%d", rnd.IntN(names))
			p, ok := s.find(name)
			if _, want := model[name]; ok != want {
				t.Fatalf("seed %d: %s is there: %v", seed, name, ok)
			}
			m := marks{rnd.IntN(2) == 0, rnd.IntN(9) == 0}
			switch {
			case !ok:
				p = s.put(name)
				p.slot().packed = name
				fallthrough
			case rnd.IntN(3) > 0:
				s.mark(p, m.online, m.cloned)
				model[name] = m
			default:
				s.remove(p)
				delete(model, name)
			}
		}
		for name := range model { // also down to nothing
			if s.total != len(model) {
				t.Fatalf("seed %d: %d devices, want %d", seed, s.total, len(model))
			}
			if len(model)%997 == 1 {
				checkShelf(t, &s, slices.Sorted(maps.Keys(model)))
			}
			p, _ := s.find(name)
			s.remove(p)
			delete(model, name)
		}
		if len(s.chunks) != 0 || s.total != 0 || s.online != 0 || s.cloned != 0 {
			t.Fatalf("seed %d: left: %+v", seed, s)
		}
	}
}

// checkShelf compares the names and the sums.
func checkShelf(t *testing.T, s *shelf, names []string) {
	t.Helper()
	var got []string
	online, cloned := 0, 0
	for _, c := range s.chunks {
		on, cl := 0, 0
		for i := range c.slots {
			got = append(got, string(c.name(i)))
			if c.slots[i].packed != got[len(got)-1] {
				t.Fatalf("%q holds %q", got[len(got)-1], c.slots[i].packed)
			}
			on, cl = on+one(c.slots[i].online), cl+one(c.slots[i].cloned)
		}
		if on != c.online || cl != c.cloned || len(c.slots) > chunkMax {
			t.Fatalf("a chunk of %d counts %d and %d, has %d and %d", len(c.slots), c.online, c.cloned, on, cl)
		}
		online, cloned = online+on, cloned+cl
	}
	if !slices.Equal(got, names) || online != s.online || cloned != s.cloned {
		t.Fatalf("%d names (want %d), %d of %d online, %d of %d cloned", len(got), len(names), s.online, online, s.cloned, cloned)
	}
}

// Names that come in order leave full chunks.
func TestShelfIsDense(t *testing.T) {
	s := shelf{}
	for i := range 100 * chunkMax {
		s.put(fmt.Sprintf("d%08d", i))
	}
	if len(s.chunks) != 100 {
		t.Errorf("%d chunks for %d devices", len(s.chunks), s.total)
	}
}

func TestPackedDeviceIsTheSame(t *testing.T) {
	at := time.Date(2026, 5, 1, 12, 0, 0, 123e6, time.UTC)
	before := time.Date(1969, 5, 1, 12, 0, 0, 0, time.UTC)
	for name, want := range map[string]record{
		"nothing": {},
		"empty":   {Device: admin.Device{Backlog: map[string]wire.LaneBacklog{}, Dropped: map[string]uint64{}, Labels: map[string]string{}}},
		"odd": {Token: "abc", Device: admin.Device{Since: before, Seen: time.UnixMilli(0).UTC(), Every: -1, Disk: admin.Disk{Used: -5, Max: 1 << 62},
			Backlog: map[string]wire.LaneBacklog{"": {Messages: 1<<64 - 1, Bytes: -1, Oldest: -1}, "express": {}}, Quarantine: 1<<64 - 1}},
		"all": {Token: "01234567", Device: admin.Device{Since: at, Seen: at.Add(1e6), Created: at.Add(2e6), Started: at.Add(3e6), Imported: at.Add(4e6),
			Version: "1.0", Process: "p", Instance: "h", Epoch: wire.NewEpoch().String(), Class: "metered", Every: 30,
			Backlog: map[string]wire.LaneBacklog{"urgent": {}, "normal": {Messages: 5, Bytes: 6, Oldest: 7}, "bulk": {Messages: 1}},
			Disk:    admin.Disk{Used: 1, Max: 2}, Dropped: map[string]uint64{"ttl": 3, "purge": 4}, Quarantine: 9,
			Labels: map[string]string{"site": "north", "": "x", "line": ""}, Clones: &admin.Clones{Reports: 3, Last: at},
			Clock: new(int64(-5)), Error: &admin.DeviceError{Text: "no route", At: at}}},
		"links":       {History: links(nil).with(true, "", at).with(false, admin.LinkLost, at.Add(time.Hour))},
		"right clock": {Device: admin.Device{Clock: new(int64(0)), Error: &admin.DeviceError{}}},
	} {
		for _, left := range []bool{false, true} {
			packed, labels := pack(&want, 1<<40, left)
			rec, rev, l := unpack(packed, labels)
			if !reflect.DeepEqual(rec, want) || rev != 1<<40 || packedRev(packed) != rev || l != left {
				t.Errorf("%s:\n%+v\nbecame\n%+v (rev %d, left %v)", name, want, rec, rev, l)
			}
			if awake := (&slot{entry: &entry{rec: want}}); peek(packed) != awake.vitals() {
				t.Errorf("%s: peek %+v, unpacked %+v", name, peek(packed), awake.vitals())
			}
			for k, v := range want.Labels {
				if !hasLabel(labels.Value(), k, v) || hasLabel(labels.Value(), k, v+"x") || hasLabel(labels.Value(), k+"x", v) {
					t.Errorf("%s: label %s", name, k)
				}
			}
		}
	}
}
