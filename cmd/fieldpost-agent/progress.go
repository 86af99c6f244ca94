package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

const (
	// quiet is how often a line appears where lines cannot be overwritten.
	quiet = 5 * time.Second
	// barWidth is that of the bar, in columns.
	barWidth = 20
	// idle is after how long without progress the reason is looked for.
	idle = 5 * time.Second
)

// progress of a drain: one line that is overwritten on a terminal, a line now
// and then elsewhere, and a line of JSON every second with --json.
type progress struct {
	c        *cobra.Command
	w        io.Writer
	terminal bool
	every    time.Duration // from one line to the next
	shown    time.Time     // of the last line
	open     bool          // a line stands on the terminal

	m        meter
	rate     float64 // messages a second, smoothed
	byteRate float64
	left     uint64
	done     uint64    // that have left meanwhile
	moved    time.Time // when some did last
}

func newProgress(c *cobra.Command) *progress {
	p := &progress{c: c, w: c.ErrOrStderr(), terminal: cli.Terminal(c.ErrOrStderr()) && !cli.JSON(c), every: quiet}
	switch {
	case cli.JSON(c):
		p.every = time.Second
	case p.terminal:
		p.every = 0
	}
	return p
}

// progressJSON is a line of drain --json while something waits.
type progressJSON struct {
	Drained     bool    `json:"drained"` // false
	Messages    uint64  `json:"messages"`
	Bytes       int64   `json:"bytes"`
	PerSecond   float64 `json:"messages_per_second"`
	BytesPerSec float64 `json:"bytes_per_second"`
	Left        float64 `json:"left_seconds,omitempty"` // 0: not known
	Up          bool    `json:"up"`
	Why         string  `json:"why,omitempty"` // it does not progress
}

func (p *progress) show(now time.Time, s *status) error {
	p.look(now, s)
	if now.Sub(p.shown) < p.every {
		return nil
	}
	p.shown = now
	if cli.JSON(p.c) {
		out := progressJSON{Messages: p.left, Bytes: p.m.bytes, PerSecond: p.rate, BytesPerSec: p.byteRate, Up: s.Link.Up, Why: p.why(now, s), Left: p.timeLeft().Seconds()}
		return cli.Print(p.c, out, nil)
	}
	if !p.terminal {
		fmt.Fprintln(p.w, p.line(now, s))
		return nil
	}
	text := p.line(now, s)
	if p.why(now, s) == "" { // else the reason needs the room
		text = p.bar() + text
	}
	line := []rune(text)
	line = line[:min(len(line), cli.Width(p.w)-1)] // one that wraps could not be overwritten
	fmt.Fprintf(p.w, "\r%s\x1b[K", string(line))
	p.open = true
	return nil
}

// look takes in how much waits now.
func (p *progress) look(now time.Time, s *status) {
	left, bytes := s.waiting()
	p.m.add(now, left, bytes)
	if known := p.m.known; known && p.rate == 0 && p.byteRate == 0 {
		p.rate, p.byteRate = max(p.m.perSecond, 0), max(p.m.bytesPerSecond, 0)
	} else if known {
		p.rate += 0.2 * (max(p.m.perSecond, 0) - p.rate)
		p.byteRate += 0.2 * (max(p.m.bytesPerSecond, 0) - p.byteRate)
	}
	if p.moved.IsZero() || left < p.left {
		p.moved = now
		p.done += max(p.left, left) - left
	}
	p.left = left
}

func (p *progress) timeLeft() time.Duration {
	if p.rate < 1 {
		return 0
	}
	return time.Duration(float64(p.left) / p.rate * float64(time.Second))
}

func (p *progress) bar() string {
	part := float64(p.done) / float64(max(p.done+p.left, 1))
	n := int(part * barWidth)
	return fmt.Sprintf("[%s%s] %3d%% ", strings.Repeat("#", n), strings.Repeat(".", barWidth-n), int(part*100))
}

func (p *progress) line(now time.Time, s *status) string {
	line := fmt.Sprintf("%s messages (%s) to go", cli.Count(p.left), cli.Bytes(p.m.bytes))
	if why := p.why(now, s); why != "" {
		return line + ", " + cli.Visible(why)
	}
	if p.rate >= 1 {
		line += fmt.Sprintf(", %s/s (%s/s), about %s", cli.Count(uint64(p.rate)), cli.Bytes(int64(p.byteRate)), cli.Span(p.timeLeft()))
	}
	return line
}

// why is what holds it up; empty if it progresses. What the agent knows of a hub
// that is full it says as the last error.
func (p *progress) why(now time.Time, s *status) string {
	switch still := now.Sub(p.moved); {
	case !s.Link.Up:
		return "link is down: " + cmp.Or(s.Link.LastError, "connecting")
	case s.Link.LastError != "":
		return "link is up, held up: " + s.Link.LastError
	case s.limited(now) != "":
		return "link is up, " + s.limited(now)
	case still >= idle:
		return fmt.Sprintf("link is up, but the backlog has not shrunk for %s: look at limits and windows in fieldpost-agent status, and at fieldpost-hub status", cli.Span(still))
	}
	return ""
}

// limited is why nothing of what waits may use the link; empty if something may.
func (s *status) limited(now time.Time) string {
	var why []string
	for _, lane := range []string{"urgent", "normal", "bulk"} {
		if s.Backlog[lane].Messages == 0 {
			continue
		}
		w := s.Link.waits(lane, now)
		if w == "" {
			return ""
		}
		why = append(why, w)
	}
	return strings.Join(why, ", ")
}

// end leaves the cursor on a fresh line.
func (p *progress) end() {
	if p.open {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.open = false
	}
}
