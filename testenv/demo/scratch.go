package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fieldpost/fieldpost/testenv"
)

// scratch is what a world needs of a test: a folder, an end, a way to fail.
type scratch struct {
	screen
	interrupted chan os.Signal
	cleanups    []func()
	failed      bool
}

var _ testenv.TB = (*scratch)(nil)

// failure is what Fatalf panics with.
type failure string

func newScratch() *scratch {
	s := &scratch{screen: newScreen(os.Stdout), interrupted: make(chan os.Signal, 1)}
	signal.Notify(s.interrupted, os.Interrupt, syscall.SIGTERM)
	return s
}

func (s *scratch) Helper()                         {}
func (s *scratch) Failed() bool                    { return s.failed }
func (s *scratch) Cleanup(f func())                { s.cleanups = append(s.cleanups, f) }
func (s *scratch) Logf(format string, args ...any) { s.say(format, args...) }

// Fatalf ends the story; only the goroutine of run may call it.
func (s *scratch) Fatalf(format string, args ...any) {
	s.failed = true
	panic(failure(fmt.Sprintf(format, args...)))
}

func (s *scratch) TempDir() string {
	dir, err := os.MkdirTemp("", "fieldpost-demo-")
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// pause waits; an interrupt ends the story.
func (s *scratch) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case sig := <-s.interrupted:
		s.Fatalf("%v", sig)
	}
}

// until shows text as it changes, for d: as a passing line, and every two
// seconds to stay.
func (s *scratch) until(d time.Duration, text func() string) {
	end, next := time.Now().Add(d), time.Now().Add(2*time.Second)
	for now := time.Now(); now.Before(end); now = time.Now() {
		if now.After(next) {
			next = next.Add(2 * time.Second)
			s.say("%s", text())
		} else {
			s.line(text())
		}
		s.pause(100 * time.Millisecond)
	}
}

// end cleans up, whatever happened, and says how it went.
func (s *scratch) end(panicked any) (failed bool) {
	if panicked != nil {
		s.failed = true
		s.say("FAILED: %v", panicked)
	}
	for len(s.cleanups) > 0 {
		f := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		f()
	}
	if _, ours := panicked.(failure); panicked != nil && !ours {
		panic(panicked)
	}
	s.say("done in %s", time.Since(s.began).Round(100*time.Millisecond))
	return s.failed
}
