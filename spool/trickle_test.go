package spool

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestTrickleIsGrouped: a long commit_delay was asked for to spare the disk. A
// message every 10 ms then shares its commit with all that come within it.
func TestTrickleIsGrouped(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t, dir)
		cfg.CommitDelay = 100 * time.Millisecond
		s := open(t, cfg)
		appendOK(t, s, wire.Normal, msg("first"))
		commits := 0
		s.grouped = func([]record) { commits++ }
		answers := make(chan error, 200)
		for range cap(answers) {
			s.Enqueue(wire.Normal, msgs(1, "m"), func(_ Receipt, err error) { answers <- err })
			time.Sleep(10 * time.Millisecond)
		}
		for range cap(answers) {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		if commits > 25 { // 200 messages in 2 s
			t.Errorf("%d commits", commits)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
