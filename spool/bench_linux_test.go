package spool

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// reading is 200 bytes of JSON as a sensor sends it: every value moves.
func reading(i int) wire.Message {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	p := fmt.Sprintf(`{"device":"pump-%02d","seq":%d,"temperature":%d.%02d,"pressure":%d.%03d,"flow":%d.%02d,"rpm":%d,"current":%d.%03d,"vibration":[0.%03d,0.%03d,0.%03d],"state":"running","firmware":"2.14.%d"`,
		i%40, i, 20+x>>60, x>>50%100, 3+x>>63, x>>40%1000, 100+x>>58, x>>30%100, 2900+x>>57, 4+x>>62, x>>20%1000,
		x>>10%1000, x>>15%1000, x>>25%1000, i%40%3)
	p += strings.Repeat(" ", max(0, 199-len(p))) + "}"
	return wire.Message{Subject: "plant.pump." + strconv.Itoa(i%40), Payload: []byte(p), Time: 1_764_400_000_000 + int64(i)}
}

// BenchmarkIngest: 16 pipelined publishers of 200 B JSON, each with 256
// messages in flight, every one fsynced before its answer. ratio compares with
// the same encoded blocks, in the same groups, appended to a plain file with
// one fdatasync each, in the same run.
func BenchmarkIngest(b *testing.B) {
	for _, window := range []int{16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) { benchIngest(b, window) })
	}
}

func benchIngest(b *testing.B, window int) {
	const publishers = 16
	dir := b.TempDir()
	s, err := Open(Config{Dir: dir, MaxBytes: 8 << 30, KeepFree: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.keeper.wait()
	var groups [][]byte
	s.grouped = func(recs []record) {
		var all []byte
		for _, r := range recs {
			all = append(all, r.data...)
		}
		groups = append(groups, all)
	}
	ms := make([]wire.Message, 1<<14)
	for i := range ms {
		ms[i] = reading(i)
	}
	b.ResetTimer()
	began := time.Now()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for p := range publishers {
		wg.Go(func() {
			slots := make(chan struct{}, window)
			for i := p; i < b.N; i += publishers {
				slots <- struct{}{}
				at := i % len(ms)
				s.Enqueue(wire.Normal, ms[at:at+1:at+1], func(_ Receipt, err error) {
					if err != nil {
						failed.Store(&err)
					}
					<-slots
				})
			}
			for range window {
				slots <- struct{}{}
			}
		})
	}
	wg.Wait()
	ours := time.Since(began)
	b.StopTimer()
	if e := failed.Load(); e != nil {
		b.Fatal(*e)
	}
	s.keeper.wait()
	plain, bytes := appendPlain(b, filepath.Join(dir, "plain"), groups)
	b.ReportMetric(float64(b.N)/ours.Seconds(), "msg/s")
	b.ReportMetric(plain.Seconds()/ours.Seconds(), "ratio")
	b.ReportMetric(float64(b.N)/float64(len(groups)), "msg/commit")
	b.ReportMetric(float64(bytes)/float64(b.N), "B/msg")
}

// appendPlain is the limit: the same bytes, one write and fdatasync a group.
func appendPlain(b *testing.B, path string, groups [][]byte) (time.Duration, int) {
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	n := 0
	began := time.Now()
	for _, g := range groups {
		n += len(g)
		if _, err := f.Write(g); err != nil {
			b.Fatal(err)
		}
		if err := syncData(f); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began), n
}

// BenchmarkLoneCommit measures what one small message costs the device: bytes
// written per commit, on a file system of its own.
func BenchmarkLoneCommit(b *testing.B) {
	d := newDisk(b, 256)
	s, err := Open(Config{Dir: filepath.Join(d.mnt, "spool"), MaxBytes: 128 << 20, KeepFree: -1, CommitDelay: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	appendOK(b, s, wire.Normal, reading(0))
	s.keeper.wait()
	unix.Sync()
	before := deviceBytes(b, d.mnt)
	for i := 0; b.Loop(); i++ {
		appendOK(b, s, wire.Normal, reading(i))
	}
	b.ReportMetric(float64(deviceBytes(b, d.mnt)-before)/float64(b.N), "devB/commit")
}

// BenchmarkDeviceBytes measures the write amplification of blocks of about
// 64 KiB encoded, seals included: one block a commit, and eight in flight.
func BenchmarkDeviceBytes(b *testing.B) {
	for _, flight := range []int{1, 8} {
		b.Run(fmt.Sprintf("inflight=%d", flight), func(b *testing.B) { benchDeviceBytes(b, flight) })
	}
}

func benchDeviceBytes(b *testing.B, flight int) {
	d := newDisk(b, 1024)
	s, err := Open(Config{Dir: filepath.Join(d.mnt, "spool"), MaxBytes: 900 << 20, KeepFree: -1, CommitDelay: -1, BlockBytes: 64 << 10})
	if err != nil {
		b.Fatal(err)
	}
	s.keeper.wait()
	unix.Sync()
	before := deviceBytes(b, d.mnt)
	slots := make(chan struct{}, flight)
	for i := 0; b.Loop(); i++ {
		slots <- struct{}{}
		s.Enqueue(wire.Normal, []wire.Message{msg(noise(80_000 + i%100))}, func(_ Receipt, err error) {
			if err != nil {
				b.Error(err)
			}
			<-slots
		})
	}
	for range flight {
		slots <- struct{}{}
	}
	s.keeper.wait()
	blocks := s.Stats().LiveBytes
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(deviceBytes(b, d.mnt)-before)/float64(blocks), "devB/blockB")
	b.ReportMetric(float64(blocks)/float64(b.N), "B/block")
}

// deviceBytes is what the device below mnt has been told to write.
func deviceBytes(b *testing.B, mnt string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(mnt, &st); err != nil {
		b.Fatal(err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		b.Skip(err)
	}
	sectors, err := strconv.ParseInt(strings.Fields(string(data))[6], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return sectors * 512
}

// BenchmarkOpen measures start-up and memory with a backlog: 10 MB and 1 GB
// (use -benchtime=1x or a few).
func BenchmarkOpen(b *testing.B) {
	for _, mb := range []int{10, 1000} {
		b.Run(fmt.Sprintf("backlog=%dMB", mb), func(b *testing.B) {
			cfg := Config{Dir: b.TempDir(), MaxBytes: 8 << 30, KeepFree: -1}
			fillBacklog(b, cfg, mb<<20)
			var rss int64
			for b.Loop() {
				runtime.GC()
				before := residentBytes(b)
				s, err := Open(cfg)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				rss = max(rss, residentBytes(b)-before)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(rss)/1e6, "MB-grown")
			b.ReportMetric(float64(residentBytes(b))/1e6, "MB-RSS")
		})
	}
}

func fillBacklog(b *testing.B, cfg Config, bytes int) {
	s, err := Open(cfg)
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := 0; n < bytes; n += 120_000 {
		m := msg(noise(140_000 + n%1000)) // compresses to about six sevenths
		wg.Add(1)
		s.Enqueue(wire.Normal, []wire.Message{m}, func(_ Receipt, err error) {
			if err != nil {
				b.Error(err)
			}
			wg.Done()
		})
		if n%(8<<20) < 120_000 {
			wg.Wait()
		}
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func residentBytes(b *testing.B) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(data))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// BenchmarkFillDrain fills and drains a spool again and again. disk/live is the
// most that the folder took over what the hub lacked, once that was 64 MB, less
// the segments that are there in any case (one a lane in use, and the spare);
// segments is how many are left after draining.
func BenchmarkFillDrain(b *testing.B) {
	const most = 128 << 20
	s, err := Open(Config{Dir: b.TempDir(), MaxBytes: 1 << 30, KeepFree: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	ms := make([]wire.Message, 40) // a block of 80 KB that does not compress
	for i := range ms {
		ms[i] = msg(noise(2000 + i))
	}
	worst := 0.0
	look := func() (live int64) {
		s.keeper.wait()
		st := s.Stats()
		if st.LiveBytes > most/2 {
			worst = max(worst, float64(st.DiskUsed-2*s.geo.headBytes())/float64(st.LiveBytes))
		}
		return st.LiveBytes
	}
	for b.Loop() {
		var f wire.Flow
		for full := false; !full; {
			for range 40 {
				f = appendOK(b, s, wire.Normal, ms...).Flow
			}
			full = look() >= most
		}
		for from, more := uint64(1), true; more; {
			for range 40 {
				data, err := s.Read(f, from)
				if more = err == nil; !more {
					break
				}
				h, err := wire.ParseHeader(data)
				if err != nil {
					b.Fatal(err)
				}
				from = h.Range().Last + 1
			}
			if err := s.Received(f, wire.Ranges{{First: 1, Last: from - 1}}); err != nil {
				b.Fatal(err)
			}
			look()
		}
	}
	s.keeper.wait()
	segs, err := filepath.Glob(filepath.Join(s.cfg.Dir, "seg-*"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(worst, "disk/live")
	b.ReportMetric(float64(len(segs)), "segments")
	b.ReportMetric(float64(s.Stats().DiskUsed)/(1<<20), "MB-drained")
}
