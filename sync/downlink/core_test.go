package downlink

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden scripts of the core")

// TestCoreScripts runs testdata/core/*.txt. A script is cases separated by empty
// lines: events, a line ----, what the core does and when it wants to be woken.
func TestCoreScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runCoreScript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: it does something else (go test -update rewrites it)\n--- want\n%s\n--- got\n%s", file, text, got)
			}
		})
	}
}

// coreScript is one core and what a driver would do with it.
type coreScript struct {
	now     time.Time
	c       *core
	metered bool
	jitter  float64
	out     strings.Builder
}

func runCoreScript(t *testing.T, text string) string {
	s := &coreScript{now: time.Unix(1_700_000_000, 0)}
	s.c = &core{metered: func() bool { return s.metered }, rand: func() float64 { return s.jitter }}
	var out strings.Builder
	for _, part := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(part, "\n----")
		s.out.Reset()
		for _, line := range strings.Split(commands, "\n") {
			if err := s.do(strings.Fields(line)); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
		if at := s.c.Deadline(); at.IsZero() {
			s.out.WriteString("under way\n")
		} else {
			fmt.Fprintf(&s.out, "next in %v\n", at.Sub(s.now))
		}
		fmt.Fprintf(&out, "%s\n----\n%s\n", commands, s.out.String())
	}
	return strings.TrimSuffix(out.String(), "\n")
}

func (s *coreScript) do(words []string) (err error) {
	has := func(i int, word string) bool { return len(words) > i && words[i] == word }
	switch {
	case len(words) == 0 || strings.HasPrefix(words[0], "#"):
	case has(0, "woken"):
		s.step(Woken{})
	case has(0, "updated"):
		s.step(Updated{})
	case has(0, "answered"):
		s.step(Answered{More: has(1, "more")})
	case has(0, "failed"):
		s.step(Failed{Timeout: has(1, "timeout")})
	case has(0, "metered"):
		s.metered = has(1, "on")
	case has(0, "jitter"):
		s.jitter, err = strconv.ParseFloat(words[1], 64)
	case has(0, "pass"):
		var d time.Duration
		if d, err = time.ParseDuration(words[1]); err == nil {
			s.pass(s.now.Add(d))
		}
	default:
		err = fmt.Errorf("unknown event")
	}
	return err
}

// pass lets time go by as a driver does: it ticks when the core wants it to.
func (s *coreScript) pass(until time.Time) {
	for at := s.c.Deadline(); !at.IsZero() && !at.After(until); at = s.c.Deadline() {
		s.now = latest(s.now, at)
		s.step(Ticked{})
	}
	s.now = until
}

func (s *coreScript) step(ev Event) {
	for _, a := range s.c.Step(s.now, ev) {
		fmt.Fprintf(&s.out, "ask, at most for %v\n", a.Timeout)
	}
}
