package testenv

import (
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestDamagedSpoolIsReported: a stopped or killed agent's spool is damaged. It
// starts, takes messages, delivers what is readable, and what is not is in its
// status, its metrics, and on dead.gap at the hub.
func TestDamagedSpoolIsReported(t *testing.T) {
	short(t)
	for _, c := range []struct {
		name, pattern string
		kill          bool
		damage        func(path string) error
		gone          bool
	}{
		{"sealed log cut", "seg-*/000001.vlog", false, cutHalf, true},
		{"sealed log missing", "seg-*/00001.mem", false, os.Remove, false}, // the large blocks do not need it
		{"sealed folder missing", "seg-*", false, os.RemoveAll, true},
		{"head cut", "seg-*/000001.vlog", true, cutHalf, true},
		{"head zeroed", "seg-*/000001.vlog", true, zeroHalf, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed, _ := seed(t)
			w := NewWorld(t, "")
			a := w.AddAgent("press-7", "")
			s := &source{w: w, a: a, name: "damage", lane: wire.Normal, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 10 { // before the link fails
				s.publish("", 20)
			}
			w.Drain(30 * time.Second)
			a.Link.Cut(true)
			for range 40 {
				s.publish("", 30_000)
			}
			if c.kill {
				a.Kill()
			} else if code := a.Stop(30 * time.Second); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			damageOne(t, filepath.Join(a.Dir, "spool", c.pattern), c.damage)
			a.Start()
			w.WaitAgent(a)
			if !s.publish("", 20) {
				t.Fatal("it does not take messages")
			}
			a.Link.Cut(false)
			counts := w.Settle(60 * time.Second)
			checkGaps(t, w, a, counts)
			st, err := a.Status()
			if err != nil || st.Quarantine.Segments != 1 || st.Quarantine.Messages != st.Dropped["quarantine"] || counts.Gone > 0 != c.gone {
				t.Errorf("%+v, %v, %v", st, counts, err)
			}
			if m := metricsOf(t, a); !strings.Contains(m, "fieldpost_agent_quarantined_segments_total 1\n") {
				t.Error("the metric does not count it")
			}
			t.Log(counts)
		})
	}
}

// damageOne damages the largest match.
func damageOne(t *testing.T, pattern string, damage func(string) error) {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatal(pattern, paths, err)
	}
	largest, size := "", int64(-1)
	for _, path := range paths {
		n := int64(0)
		err := filepath.WalkDir(path, func(p string, _ os.DirEntry, err error) error {
			if data, rerr := os.ReadFile(p); rerr == nil { // a folder is none
				n += int64(len(strings.TrimRight(string(data), "\x00")))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n > size {
			largest, size = path, n
		}
	}
	if err := damage(largest); err != nil {
		t.Fatal(err)
	}
}

// cutHalf and zeroHalf damage the second half of what a file holds.
func cutHalf(path string) error { return os.Truncate(path, content(path)/2) }

func zeroHalf(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	n := content(path)
	_, err = f.WriteAt(make([]byte, n-n/2), n/2)
	return err
}

func content(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0 // the damage fails then
	}
	return int64(len(strings.TrimRight(string(data), "\x00")))
}

func metricsOf(t *testing.T, a *Agent) string {
	t.Helper()
	resp, err := a.http.Get("http://agent/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return string(text)
}
