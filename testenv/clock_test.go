package testenv

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// envClock is the wall clock of agents that wrongClock made: how many seconds it
// is wrong, and for how many seconds since the program began.
const envClock = "FIELDPOST_TEST_CLOCK"

// wrongClock builds the agent with a standard library whose wall clock is wrong
// until somebody sets it; the monotonic one is not touched.
func wrongClock(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(source)
	for _, change := range [][2]string{
		{"\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"syscall\"\n"},
		{"func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tif uint64(mono-startNano) < wrongUntil {\n\t\tsec += wrongBy\n\t}\n"},
	} {
		if strings.Count(text, change[0]) != 1 {
			t.Skipf("%s is not as this test knows it: %q is not there once", file, change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	text += `
var wrongBy, wrongUntil = func() (by int64, until uint64) {
	s, _ := syscall.Getenv("` + envClock + `")
	minus, fields := false, [2]int64{}
	n := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '-':
			minus = true
		case c == ' ':
			n = 1
		default:
			fields[n] = 10*fields[n] + int64(c-'0')
		}
	}
	if minus {
		fields[0] = -fields[0]
	}
	return fields[0], uint64(fields[1]) * uint64(Second)
}()
`
	dir := t.TempDir()
	changed, overlay, agent := filepath.Join(dir, "time.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "fieldpost-agent")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err == nil {
		err = os.WriteFile(changed, []byte(text), 0o600)
	}
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", agent, "github.com/fieldpost/fieldpost/cmd/fieldpost-agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return agent
}

// TestWrongClock: an agent that boots in 1970, or ten years ahead, delivers what
// it takes, without a link at first, while its clock is set, and after a boot with
// the right time; what has a ttl neither dies nor stays for the jump.
func TestWrongClock(t *testing.T) {
	short(t)
	agent := wrongClock(t)
	for name, at := range map[string]time.Time{"1970": time.Unix(60, 0), "ten years ahead": time.Now().AddDate(10, 0, 0)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := NewWorld(t, "")
			a := w.PrepareAgent("press-7", "press-7", "")
			right := a.args
			a.args = append([]string{agent}, right[1:]...)
			const wrongFor = 8 * time.Second
			a.Env = []string{fmt.Sprintf("%s=%d %d", envClock, int64(time.Until(at)/time.Second), wrongFor/time.Second)}
			a.Link.Cut(true)
			began := time.Now()
			a.Start()
			w.WaitAgent(a)
			s := &source{w: w, a: a, name: "wrong", lane: wire.Normal, rnd: rand.New(rand.NewPCG(1, 2))}
			s.publish("", 20)
			s.publish("1h", 20)
			s.publish("1s", 20) // dies before there is a link
			if time.Since(began) > wrongFor {
				t.Skip("this machine is too slow: the clock is right already")
			}
			dropped := func(n int64) {
				t.Helper()
				Eventually(t, 20*time.Second, "what dies of age", func() error {
					st, err := a.Status()
					if err == nil && st.Dropped["ttl"] != n {
						err = fmt.Errorf("dropped %v", st.Dropped)
					}
					return err
				})
			}
			dropped(1)
			a.Link.Cut(false)
			w.publishNoise(a, "linked", wire.Normal, 5, 400)
			linkIs(t, a, true, 20*time.Second)
			w.Drain(20 * time.Second)
			a.Link.Cut(true)
			s.publish("1h", 20)
			time.Sleep(time.Until(began.Add(wrongFor + time.Second))) // somebody sets the clock
			w.publishNoise(a, "set", wire.Normal, 5, 400)
			s.publish("1h", 20)
			dropped(1)
			a.Link.Cut(false)
			w.Drain(20 * time.Second)
			a.Link.Cut(true)
			w.publishNoise(a, "held", wire.Normal, 5, 400)
			a.Kill()
			a.args = right
			a.Start()
			w.WaitAgent(a)
			a.Link.Cut(false)
			w.publishNoise(a, "right", wire.Normal, 5, 400)
			if c := w.Settle(40 * time.Second); c.Stored != 24 || c.Gone != 1 {
				t.Fatalf("%v", c)
			}
			dropped(1)
			times := map[int]int{}
			for _, st := range w.History.stored {
				times[yearOf(t, st)]++
			}
			if times[at.UTC().Year()] == 0 || times[time.Now().UTC().Year()] == 0 {
				t.Errorf("messages by year: %v", times)
			}
		})
	}
}

// yearOf is when a message was accepted, by its device's clock.
func yearOf(t *testing.T, s Stored) int {
	t.Helper()
	h := s.Headers["Fieldpost-Time"]
	if len(h) != 1 {
		t.Fatalf("headers %v", s.Headers)
	}
	at, err := time.Parse(time.RFC3339, h[0])
	if err != nil {
		t.Fatal(err)
	}
	return at.Year()
}
