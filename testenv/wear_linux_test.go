package testenv

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fieldpost/fieldpost/agent/client"
)

// BenchmarkWear shows what the agent makes the device below its folder write: in
// an idle minute with a backlog, and for a trickle of single messages, which
// commit_delay brings together or not, on the disk or memory-first.
func BenchmarkWear(b *testing.B) {
	for _, c := range []struct {
		name, spool string
		every       time.Duration
		cut         bool
	}{
		{"idle", "", 0, true},
		{"trickle=1s", "", time.Second, true},
		{"trickle=10ms", "", 10 * time.Millisecond, true},
		{"trickle=10ms,commit_delay=100ms", "commit_delay: 100ms", 10 * time.Millisecond, true},
		{"trickle=10ms,link=up", "", 10 * time.Millisecond, false},
		{"trickle=10ms,link=up,memory-first", "durability: memory-first", 10 * time.Millisecond, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				benchWear(b, c.spool, c.every, c.cut)
			}
		})
	}
}

func benchWear(b *testing.B, spool string, every time.Duration, cut bool) {
	d, err := NewDisk(b, 512)
	if err != nil {
		b.Skip(err)
	}
	w := NewWorld(b, "")
	a := w.PrepareAgentIn(d.Dir, "press-7", "spool: {max_bytes: 256MiB, "+spool+"}\n")
	a.Start()
	w.WaitAgent(a)
	a.Link.Cut(true)
	a.publishAll(b, 20_000, 256, reading)
	if !cut {
		a.Link.Cut(false)
		w.Drain(time.Minute)
	}
	quiet(b, d.Dir)
	before, n := deviceBytes(b, d.Dir), 0
	end := time.Now().Add(time.Minute)
	if every > 0 {
		n = trickle(b, a, every, end)
	}
	time.Sleep(time.Until(end))
	unix.Sync()
	wrote := float64(deviceBytes(b, d.Dir) - before)
	b.ReportMetric(wrote, "devB/min")
	if n > 0 {
		b.ReportMetric(wrote/float64(n), "devB/msg")
	}
	a.Stop(30 * time.Second)
	w.Hub.Kill()
}

// trickle publishes a message every so often, without waiting for the answers.
func trickle(b *testing.B, a *Agent, every time.Duration, end time.Time) (n int) {
	c, err := client.Dial(b.Context(), a.Socket)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ; time.Now().Before(end); <-tick.C {
		c.PublishAsync(client.Message{Subject: "bench.trickle", Payload: reading(n)})
		n++
	}
	if err := c.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return n
}

// quiet waits until the file system itself has nothing to write any more.
func quiet(b *testing.B, dir string) {
	unix.Sync()
	last, since := deviceBytes(b, dir), time.Now()
	Eventually(b, 3*time.Minute, "the device is quiet", func() error {
		if n := deviceBytes(b, dir); n != last {
			last, since = n, time.Now()
		}
		if d := time.Since(since); d < 35*time.Second {
			return fmt.Errorf("for %v", d)
		}
		return nil
	})
}

// deviceBytes is what the device below dir has been told to write.
func deviceBytes(b *testing.B, dir string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
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
