package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
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

// bar is a progress bar from a number down to zero.
func bar(from, left uint64) string {
	const cells = 40
	done := cells
	if from > 0 && left > 0 {
		done = cells - int(min(left, from)*cells/from)
	}
	return fmt.Sprintf("[%s%s] %d to go", strings.Repeat("#", done), strings.Repeat(".", cells-done), left)
}
