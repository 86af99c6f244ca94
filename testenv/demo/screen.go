package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// screen writes the story with the time in front of each line.
type screen struct {
	began    time.Time
	terminal bool
	mu       *sync.Mutex
	w        io.Writer
	width    *int // of the passing line; 0: none
}

func newScreen(f *os.File) screen {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return screen{began: time.Now(), terminal: terminal, mu: new(sync.Mutex), w: f, width: new(int)}
}

func (s screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprintf(s.w, "[%5.1fs] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// line shows a passing line; elsewhere than on a terminal it is left out.
func (s screen) line(text string) {
	if !s.terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprint(s.w, text)
	*s.width = len(text)
}

func (s screen) wipe() {
	if *s.width > 0 {
		fmt.Fprintf(s.w, "\r%s\r", strings.Repeat(" ", *s.width))
		*s.width = 0
	}
}

func (s screen) pause(d time.Duration) { time.Sleep(d) }

// until shows text as it changes, for d: as a passing line, and every two seconds to stay.
func (s screen) until(d time.Duration, text func() string) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end, next := time.Now().Add(d), time.Now().Add(2*time.Second)
	for now := range tick.C {
		if now.After(next) {
			next = next.Add(2 * time.Second)
			s.say("%s", text())
		} else {
			s.line(text())
		}
		if now.After(end) {
			return
		}
	}
}

// bar is a progress bar from a number down to zero.
func bar(from, left uint64) string {
	const cells = 40
	done := cells
	if from > 0 && left > 0 {
		done = cells - int(min(left, from)*cells/from)
	}
	return fmt.Sprintf("[%s%s] %d to go", strings.Repeat("#", done), strings.Repeat(".", cells-done), left)
}

// watcher counts what arrives and shows some of it.
type watcher struct {
	n     atomic.Uint64
	shown atomic.Int64 // messages that may still be shown
}

// manyShown is enough to see that it is real.
const manyShown = 12

// watch subscribes to everything that reaches EDGE until ctx ends.
func watch(ctx context.Context, s *scratch, addr string) *watcher {
	w := new(watcher)
	w.shown.Store(manyShown)
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		s.Fatalf("watching: %v", err)
	}
	s.Cleanup(nc.Close)
	_, err = nc.Subscribe("edge.>", func(m *nats.Msg) {
		if w.n.Add(1); ctx.Err() == nil && w.shown.Add(-1) >= 0 {
			s.say("  %-28s %.90s", m.Subject, m.Data)
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		s.Fatalf("watching: %v", err)
	}
	return w
}

// quiet shows no more messages.
func (w *watcher) quiet() { w.shown.Store(0) }
