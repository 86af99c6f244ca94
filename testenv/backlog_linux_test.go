package testenv

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldpost/fieldpost/agent/client"
)

var backlogs = flag.String("backlogs", "10,1024,5120", "backlogs of BenchmarkBacklog in MB; an e behind a number: encrypted")

// BenchmarkBacklog shows what a backlog costs the agent: resident memory (VmRSS,
// anonymous and file pages) idle and at its peak while it grows, while small
// messages come on top of it, and while it drains; and the time from exec to
// ready, after kill -9 too. -backlogs chooses the sizes.
func BenchmarkBacklog(b *testing.B) {
	for size := range strings.SplitSeq(*backlogs, ",") {
		number, encrypted := strings.CutSuffix(size, "e")
		mb, err := strconv.Atoi(number)
		if err != nil {
			b.Fatalf("-backlogs: %v", err)
		}
		b.Run(size+"MB", func(b *testing.B) {
			for range b.N {
				benchBacklog(b, mb, encrypted)
			}
		})
	}
}

func benchBacklog(b *testing.B, mb int, encrypted bool) {
	w := NewWorld(b, "")
	need := int64(3*mb+1024) << 20 // the spool, and what the hub takes of it
	if free := freeDisk(b, w.Dir); free < need {
		b.Skipf("%d MB are free here, and this takes %d", free>>20, need>>20)
	}
	spool := fmt.Sprintf("max_bytes: %dMiB", mb*5/4+512)
	if encrypted {
		spool += ", key_file: " + w.write("keys", strings.Repeat("5a", 32)+"\n")
	}
	a := w.AddAgent("press-7", "spool: {"+spool+"}\n")
	b.ReportMetric(a.idle(b), "MB-empty")
	a.Link.Cut(true)
	a.clearPeak(b)
	rnd, block := rand.NewChaCha8([32]byte{1}), make([]byte, 64<<10)
	a.publishAll(b, mb<<20/len(block), 64, func(int) []byte { rnd.Read(block); return bytes.Clone(block) })
	b.ReportMetric(a.peak(b), "MB-peak-large")
	a.clearPeak(b)
	a.publishAll(b, 300_000, 4096, reading)
	b.ReportMetric(a.peak(b), "MB-peak-small")
	a.Kill()
	b.ReportMetric(a.startUp(b).Seconds()*1000, "ms-ready-after-kill")
	b.ReportMetric(a.idle(b), "MB-idle-after-kill")
	a.Stop(60 * time.Second)
	b.ReportMetric(a.startUp(b).Seconds()*1000, "ms-ready")
	b.ReportMetric(a.idle(b), "MB-idle")
	before, err := a.Backlog()
	if err != nil {
		b.Fatal(err)
	}
	a.clearPeak(b)
	a.Link.Cut(false)
	Eventually(b, 5*time.Minute, "it drains", func() error {
		left, err := a.Backlog()
		if err == nil && left > before/4 && left > before-8_000 { // half a GB is enough, and fits the hub
			err = fmt.Errorf("%d of %d are left", left, before)
		}
		return err
	})
	b.ReportMetric(a.peak(b), "MB-peak-draining")
	a.Kill()
	w.Hub.Kill()
}

func freeDisk(b *testing.B, dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		b.Fatal(err)
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

// publishAll publishes n messages, at most window of them in flight.
func (a *Agent) publishAll(b testing.TB, n, window int, payload func(i int) []byte) {
	b.Helper()
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	flying := make([]*client.Pending, 0, window)
	for i := range n {
		if len(flying) == window {
			if _, err := flying[0].Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			flying = append(flying[:0], flying[1:]...)
		}
		flying = append(flying, c.PublishAsync(client.Message{Subject: "bench.s" + strconv.Itoa(i%50), Payload: payload(i)}))
	}
	if err := c.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// startUp is the time from exec until the agent takes messages.
func (a *Agent) startUp(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	a.Start()
	for {
		resp, err := a.http.Get("http://agent/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(began)
			}
		}
		if time.Since(began) > time.Minute {
			b.Fatal("not ready within a minute")
		}
		time.Sleep(time.Millisecond)
	}
}

// idle is the resident memory once nothing has happened for a while.
func (p *Process) idle(b *testing.B) float64 {
	b.Helper()
	time.Sleep(20 * time.Second) // segments that nobody reads are closed after 15
	return p.memory(b, "VmRSS")
}

// peak is the highest resident memory since clearPeak.
func (p *Process) peak(b *testing.B) float64 { b.Helper(); return p.memory(b, "VmHWM") }

func (p *Process) clearPeak(b *testing.B) {
	b.Helper()
	if err := os.WriteFile(filepath.Join("/proc", strconv.Itoa(p.PID()), "clear_refs"), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

// memory is a value of the process's status in megabytes.
func (p *Process) memory(b *testing.B, name string) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var kb float64
		if n, _ := fmt.Sscanf(string(line), name+": %f kB", &kb); n == 1 {
			return kb / 1024
		}
	}
	b.Fatal("no " + name)
	return 0
}
