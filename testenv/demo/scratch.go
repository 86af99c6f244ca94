package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fieldpost/fieldpost/testenv"
)

// scratch is what a world needs of a test: a folder, an end, a way to fail.
type scratch struct {
	screen
	cleanups []func()
	failed   bool
}

var _ testenv.TB = (*scratch)(nil)

// failure is what Fatalf panics with.
type failure string

func newScratch() *scratch { return &scratch{screen: newScreen(os.Stdout)} }

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
