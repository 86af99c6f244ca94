package testenv

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// publishN publishes n messages of a source one after another; all must be acked.
func (w *World) publishN(a *Agent, source string, n int) {
	w.TB.Helper()
	s := &insisting{w: w, a: a, name: source}
	for range n {
		s.publishOne()
	}
}

// insisting is a sequential publisher that insists.
type insisting struct {
	w    *World
	a    *Agent
	name string
	n    int
}

func (s *insisting) publishOne() {
	s.w.TB.Helper()
	s.n++
	p := Published{Device: s.a.Device, Source: s.name, N: s.n, Lane: wire.Normal, Subject: "test." + s.name,
		Payload: fmt.Appendf(nil, `{"device":%q,"source":%q,"n":%d}`, s.a.Device, s.name, s.n)}
	s.w.History.Sent(p)
	r, err := (&source{w: s.w, a: s.a}).post(p, "")
	if err != nil {
		s.w.TB.Fatalf("publish %s/%d: %v", s.name, s.n, err)
	}
	s.w.History.Acked(p, r)
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

// copies is how often the hub has reported that a device came with a copy.
func (w *World) copies(t *testing.T, device string) uint64 {
	t.Helper()
	resp, err := http.Get("http://" + w.HTTP + "/v1/devices/" + device)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var d struct{ Clones *struct{ Reports uint64 } }
	if err := json.NewDecoder(resp.Body).Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Clones == nil {
		return 0
	}
	return d.Clones.Reports
}

func (w *World) wantCopies(t *testing.T, device string, want bool) {
	t.Helper()
	Eventually(t, 20*time.Second, fmt.Sprintf("a copy of %s is reported: %v", device, want), func() error {
		if n := w.copies(t, device); n > 0 != want {
			return fmt.Errorf("%d reports", n)
		}
		return nil
	})
}

func TestRestartIsNoCopy(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	w.publishN(a, "before", 10)
	for range 3 {
		a.Kill()
		a.Start()
		w.WaitAgent(a)
		w.publishN(a, fmt.Sprint("after-", time.Now().UnixNano()), 5)
		w.Drain(30 * time.Second)
	}
	if c := w.Settle(30 * time.Second); c.Stored != 25 {
		t.Fatalf("%v, want 25 stored", c)
	}
	w.wantCopies(t, a.Device, false)
}

func TestWipedSpool(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	w.History.Copies = true
	a := w.AddAgent("press-7", "")
	w.publishN(a, "first", 50)
	w.Drain(30 * time.Second)
	a.Stop(20 * time.Second)
	if err := os.RemoveAll(a.Dir); err != nil {
		t.Fatal(err)
	}
	a.Start()
	w.WaitAgent(a)
	w.publishN(a, "second", 50)
	if c := w.Settle(30 * time.Second); c.Stored != 100 {
		t.Fatalf("%v, want 100 stored", c)
	}
	w.wantCopies(t, a.Device, true)
}

func TestRestoredOlderCopy(t *testing.T) {
	short(t)
	for _, undelivered := range []bool{false, true} {
		t.Run(fmt.Sprintf("undelivered=%v", undelivered), func(t *testing.T) {
			w := NewWorld(t, "")
			w.History.Copies = true
			a := w.AddAgent("press-7", "")
			w.publishN(a, "first", 50)
			w.Drain(30 * time.Second)
			a.Link.Cut(undelivered)
			w.publishN(a, "second", 30)
			a.Kill()
			copyDir(t, a.Dir, a.Dir+".old")
			a.Link.Cut(false)
			a.Start()
			w.WaitAgent(a)
			w.publishN(a, "third", 40)
			w.Drain(30 * time.Second)
			a.Stop(20 * time.Second)
			copyDir(t, a.Dir+".old", a.Dir)
			a.Start()
			w.WaitAgent(a)
			w.publishN(a, "fourth", 40)
			if c := w.Settle(30 * time.Second); c.Stored != 160 {
				t.Fatalf("%v, want 160 stored", c)
			}
			w.wantCopies(t, a.Device, true)
		})
	}
}

func TestCloneBesideItsOriginal(t *testing.T) {
	short(t)
	s, _ := seed(t)
	w := NewWorld(t, "")
	w.History.Copies = true
	a := w.AddAgent("press-7", "")
	w.publishN(a, "before", 50)
	w.Drain(30 * time.Second)
	a.Link.Cut(true)
	w.publishN(a, "undelivered", 50)
	a.Kill()
	b := w.PrepareAgent("clone", "press-7", "")
	copyDir(t, a.Dir, b.Dir)
	a.Link.Cut(false)
	a.Start()
	b.Start()
	w.WaitAgent(a)
	w.WaitAgent(b)
	w.StartLoad(a, 5*time.Millisecond, s)
	w.StartLoad(b, 5*time.Millisecond, s+1)
	for i := range 10 { // a copy that opened at the same moment is noticed when it comes again
		time.Sleep(300 * time.Millisecond)
		[]*Agent{a, b}[i%2].Link.Cut(false)
	}
	w.stopLoads()
	report(t, w)
	w.wantCopies(t, a.Device, true)
}

// TestTruncatedHead cuts the newest bytes off every file of the newest segment,
// after all of it was delivered: what follows must not be taken for it.
func TestTruncatedHead(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	w.History.Copies = true
	a := w.AddAgent("press-7", "")
	for i := range 6 {
		w.publishN(a, fmt.Sprint("round-", i), 30)
		w.Drain(30 * time.Second)
		a.Kill()
		n := truncateHeads(t, a.Dir, int64(200*(i+1)))
		if n == 0 {
			t.Fatal("there is no head to cut")
		}
		a.Start()
		w.WaitAgent(a)
	}
	w.publishN(a, "last", 30)
	if c := w.Settle(30 * time.Second); c.Stored != 210 {
		t.Fatalf("%v, want 210 stored", c)
	}
}

// truncateHeads removes the last n bytes of data from every value log and write-ahead
// log of unsealed segments.
func truncateHeads(t *testing.T, dir string, n int64) (cut int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".vlog" && filepath.Ext(path) != ".mem" {
			return err
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "SEAL")); err == nil {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		used := int64(len(strings.TrimRight(string(b), "\x00")))
		if used <= n+20 {
			return nil
		}
		cut++
		return os.Truncate(path, used-n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return cut
}

// TestHubFolderDeleted: another hub in the old one's place is refused and said
// so; once it is accepted, what the agent still holds is delivered to it, what
// the old one had received included.
func TestHubFolderDeleted(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	w.publishN(a, "delivered", 50) // and still held: its segment has not ended
	w.Drain(30 * time.Second)
	a.Link.Cut(true)
	w.publishN(a, "held", 50)
	w.Hub.Stop(30 * time.Second)
	if err := os.RemoveAll(w.HubDir); err != nil {
		t.Fatal(err)
	}
	w.StartHub()
	a.Link.Cut(false)
	Eventually(t, 40*time.Second, "the agent says that this is another hub", func() error {
		s, err := a.Status()
		if err == nil && !strings.Contains(s.Link.LastError, "hub reset") {
			err = fmt.Errorf("last error %q", s.Link.LastError)
		}
		return err
	})
	if err := a.Post("/v1/hub/reset", ""); err != nil {
		t.Fatal(err)
	}
	w.publishN(a, "new", 50)
	if c := w.Settle(60 * time.Second); c.Stored != 150 {
		t.Fatalf("%v, want 150 stored", c)
	}
}
