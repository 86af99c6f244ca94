package spool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// BenchmarkOpenAfterKill measures the start with a backlog of 5 GB after kill
// -9: 640 sealed segments, and the heads of three lanes, 7 MB and 33,000
// publisher ids each. The metrics tell what each part of Open takes, in ms.
func BenchmarkOpenAfterKill(b *testing.B) {
	for _, ids := range []bool{false, true} {
		b.Run(fmt.Sprintf("ids=%v", ids), func(b *testing.B) {
			cfg := Config{Dir: filepath.Join(b.TempDir(), "spool"), MaxBytes: 8 << 30, KeepFree: -1}
			left := killedBacklog(b, cfg, 640, ids)
			parts := map[string]time.Duration{}
			for b.Loop() {
				b.StopTimer()
				timeParts(b, cfg, parts)
				before := residentBytes(b)
				b.StartTimer()
				s, err := Open(cfg)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				b.ReportMetric(float64(residentBytes(b)-before)/1e6, "MB-grown")
				began := time.Now()
				appendOK(b, s, wire.Normal, msg("first"))
				parts["first-publish"] += time.Since(began)
				s.keeper.wait()
				parts["background"] += time.Since(began)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				unchanged(b, cfg.Dir, left)
				b.StartTimer()
			}
			for name, d := range parts {
				b.ReportMetric(float64(d.Milliseconds())/float64(b.N), "ms-"+name)
			}
		})
	}
}

// timeParts adds up what the steps of Open take that only read.
func timeParts(b *testing.B, cfg Config, parts map[string]time.Duration) {
	s := &Spool{cfg: cfg, ids: newIDs()}
	if err := s.cfg.validate(); err != nil {
		b.Fatal(err)
	}
	lap := func(name string, do func() error) {
		began := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		parts[name] += time.Since(began)
	}
	lap("size", s.size)
	lap("keys", func() error { return s.geo.keys.check(cfg.Dir) })
	var segs []found
	lap("look", func() (err error) { _, _, segs, err = s.look(); return err })
	lap("disk-usage", func() error {
		for _, f := range segs {
			diskUsage(f.dir)
		}
		return nil
	})
	s.time = spoolClock{host: *s.cfg.host}
	s.time.begin(metaClock{})
	lap("ids", func() error {
		for _, f := range segs {
			if f.scan != nil {
				s.idsOf(f.scan, f.scan.blocks)
			}
		}
		return nil
	})
}

// killedBacklog leaves n sealed segments and three heads, as a kill does. The
// sealed ones are one segment many times over: Open reads their seals only.
// left is everything but these.
func killedBacklog(b *testing.B, cfg Config, n int, ids bool) (left tree) {
	fillBacklog(b, cfg, 6<<20)
	sealed, err := filepath.Glob(filepath.Join(cfg.Dir, segmentPrefix+"*", sealName))
	if err != nil || len(sealed) == 0 {
		b.Fatal(sealed, err)
	}
	from := filepath.Dir(sealed[0])
	sl, err := readSeal(from)
	if err != nil {
		b.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		b.Fatal(err)
	}
	count := sl.Parts[0].Ranges[0][1]
	for i := 1; i < n; i++ {
		dir := filepath.Join(cfg.Dir, numberedName(segmentPrefix, uint64(100+i)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() != sealName {
				if err := os.Link(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())); err != nil {
					b.Fatal(err)
				}
			}
		}
		sl.Parts[0].Ranges[0] = [2]uint64{uint64(i)*count + 1, uint64(i+1) * count}
		body, _ := json.Marshal(sl)
		if err := os.WriteFile(filepath.Join(dir, sealName), appendChecked(sealKind, sealVersion, body), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	live := cfg
	live.Dir += "-live"
	if err := os.Rename(cfg.Dir, live.Dir); err != nil {
		b.Fatal(err)
	}
	s, err := Open(live)
	if err != nil {
		b.Fatal(err)
	}
	fillHeads(b, s, ids)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		b.Fatal(err)
	}
	for i := 1; i < n; i++ { // the live spool has no business with them
		name := numberedName(segmentPrefix, uint64(100+i))
		if err := os.Rename(filepath.Join(live.Dir, name), filepath.Join(cfg.Dir, name)); err != nil {
			b.Fatal(err)
		}
	}
	left = readTree(b, live.Dir)
	left.write(b, cfg.Dir)
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return left
}

func fillHeads(b *testing.B, s *Spool, ids bool) {
	var wg sync.WaitGroup
	for l := range wire.Lane(wire.NumLanes) {
		for i := 0; i < 33_000; i += 100 {
			ms := make([]wire.Message, 100)
			for k := range ms {
				if ms[k] = reading(i + k); ids {
					ms[k].ID = fmt.Sprintf("%s-%08d", l, i+k)
				}
				ms[k].Payload = append(ms[k].Payload, noise(160+k)...)
			}
			wg.Add(1)
			s.Enqueue(l, ms, func(_ Receipt, err error) {
				if err != nil {
					b.Error(err)
				}
				wg.Done()
			})
		}
	}
	wg.Wait()
	s.keeper.wait()
}

// unchanged puts the folder back as the kill left it.
func unchanged(b *testing.B, dir string, left tree) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range entries {
		if num, ok := numbered(e.Name(), segmentPrefix); ok && num > 100 && num <= 1000 {
			if _, err := os.Stat(filepath.Join(dir, e.Name(), sealName)); err == nil && !left[e.Name()].dir {
				continue
			}
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			b.Fatal(err)
		}
	}
	left.write(b, dir)
}
