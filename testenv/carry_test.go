package testenv

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// publishNoise publishes n messages that do not compress, and returns their bytes.
func (w *World) publishNoise(a *Agent, from string, lane wire.Lane, n, size int) (bytes int64) {
	w.TB.Helper()
	for i := range n {
		noise := make([]byte, size/2)
		rand.Read(noise)
		p := Published{Device: a.Device, Source: from, N: i + 1, Lane: lane, Subject: "test." + from,
			Payload: fmt.Appendf(nil, "%s/%d %s", from, i+1, hex.EncodeToString(noise))}
		w.History.Sent(p)
		r, err := (&source{w: w, a: a}).post(p, "")
		if err != nil {
			w.TB.Fatalf("publish %s/%d: %v", from, i+1, err)
		}
		w.History.Acked(p, r)
		bytes += int64(len(noise)) // hex halves again
	}
	return bytes
}

// verb runs a program and returns its standard output.
func verb(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%v: %s", err, exit.Stderr)
	}
	return string(out), err
}

func (w *World) export(a *Agent, name string) string {
	w.TB.Helper()
	file := filepath.Join(w.Dir, name)
	if out, err := verb(w.Binaries.Agent, "spool", "export", file, "-c", filepath.Join(w.Dir, a.Device+".yaml")); err != nil {
		w.TB.Fatalf("export: %v\n%s", err, out)
	}
	return file
}

func (w *World) imports(file string) (out admin.Imported, err error) {
	text, err := verb(w.Binaries.Hub, "import", file, "--http", w.HTTP, "--json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &out)
	}
	return out, err
}

// inHub waits until everything acked so far is in the hub's stream, and right.
func (w *World) inHub(what string) Counts {
	w.TB.Helper()
	var c Counts
	Eventually(w.TB, 30*time.Second, what, func() (err error) {
		if err = w.readStreams(); err == nil {
			c, err = w.History.Check()
		}
		return err
	})
	return c
}

// TestBacklogIsCarried: a site without a link has its backlog carried, while it
// runs and while it does not; when the link is back, nothing of it is sent again.
func TestBacklogIsCarried(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	w.publishNoise(a, "before", wire.Normal, 20, 400) // it has met its hub
	w.Drain(30 * time.Second)
	a.Link.Cut(true)

	size := w.publishNoise(a, "cut", wire.Normal, 300, 4000) + w.publishNoise(a, "alarm", wire.Urgent, 20, 4000)
	first := w.export(a, "first.fpx")
	if out, err := w.imports(first); err != nil || out.Stored.Messages != 320 || out.Device != "press-7" {
		t.Fatalf("%+v, %v", out, err)
	}
	w.inHub("what was carried is in EDGE")

	a.Stop(20 * time.Second) // an older file, a newer one without the agent, and both again
	a.Start()
	w.WaitAgent(a)
	size += w.publishNoise(a, "later", wire.Normal, 200, 4000)
	a.Kill()
	second := w.export(a, "second.fpx")
	for i, file := range []string{second, first, second} {
		if out, err := w.imports(file); err != nil || (i == 0) != (out.Stored.Messages == 200) || i > 0 && out.Stored.Messages != 0 {
			t.Fatalf("import %d: %+v, %v", i, out, err)
		}
	}
	if c := w.inHub("all of it is in EDGE"); c.Stored != 540 {
		t.Fatalf("%v", c)
	}

	a.Start()
	w.WaitAgent(a)
	w.publishNoise(a, "after", wire.Normal, 10, 400)
	before := a.Link.Bytes(Up)
	a.Link.Cut(false)
	if c := w.Settle(60 * time.Second); c.Stored != 550 || c.Gone != 0 {
		t.Fatalf("%v", c)
	}
	if sent := a.Link.Bytes(Up) - before; sent > size/20 {
		t.Errorf("%d bytes were sent after %d were carried", sent, size)
	}
	w.wantCopies(t, a.Device, false)
	if info, err := os.Stat(first); err != nil || info.Size() < size/2 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestBacklogIsCarriedAndSent: the file is imported while the device is connected
// and sends the same, and the hub is killed meanwhile.
func TestBacklogIsCarriedAndSent(t *testing.T) {
	short(t)
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	a.Link.Cut(true)
	w.publishNoise(a, "cut", wire.Normal, 600, 8000)
	w.publishNoise(a, "bulk", wire.Bulk, 100, 8000)
	file := w.export(a, "carried.fpx")
	a.Link.Shape(5*time.Millisecond, 1<<20)
	a.Link.Cut(false)
	done := make(chan error)
	for range 2 {
		go func() {
			for tries := 0; ; tries++ {
				_, err := w.imports(file)
				if err == nil || tries == 20 {
					done <- err
					return
				}
				time.Sleep(200 * time.Millisecond) // the hub is down
			}
		}()
	}
	Eventually(t, 30*time.Second, "something has arrived", func() error {
		if err := w.readStreams(); err != nil {
			return err
		}
		if c, _ := w.History.Check(); c.Stored < 50 { // most of it is still missing
			return fmt.Errorf("%v", c)
		}
		return nil
	})
	w.Hub.Kill()
	w.StartHub()
	for range 2 {
		if err := <-done; err != nil {
			t.Errorf("import: %v", err)
		}
	}
	if c := w.Settle(60 * time.Second); c.Stored != 700 || c.Gone != 0 {
		t.Fatalf("%v", c)
	}
}
