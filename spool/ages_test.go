package spool

import (
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestAgeOfALoneMessage: the age of what waits is its own, not that of the
// delivered messages before it in the segment.
func TestAgeOfALoneMessage(t *testing.T) {
	cfg, h := timed(t)
	s := open(t, cfg)
	oldest := func() time.Duration { return h.wall.Sub(s.Stats().Lanes[wire.Normal].Oldest) }
	var flow wire.Flow
	for range 500 {
		flow = appendOK(t, s, wire.Normal, msg("x")).Flow
		h.pass(time.Minute)
	}
	if got := oldest(); got != 500*time.Minute {
		t.Fatalf("nothing is delivered: the oldest is %s old", got)
	}
	for delivered := uint64(1); delivered < 500; delivered++ {
		if err := s.Received(flow, wire.Ranges{{First: 1, Last: delivered}}); err != nil {
			t.Fatal(err)
		}
		want := time.Duration(500-delivered) * time.Minute
		if got := oldest(); got < want || got > want+want/2 {
			t.Errorf("%d delivered: the oldest is %s old, want %s to %s", delivered, got, want, want+want/2)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s = open(t, cfg); oldest() < time.Minute {
		t.Errorf("opened again: the oldest is %s old", oldest())
	}
}

func TestAgesAreBounded(t *testing.T) {
	var a ages
	for i := range uint64(1 << 20) {
		a.note(i+1, int64(i))
		if len(a) > maxAges || a[len(a)-1].first != i+1 || a[0].first != 1 {
			t.Fatalf("after %d blocks: %v", i+1, a)
		}
	}
	if got := a.of(0, -5); got != -5 {
		t.Errorf("of what came before: %d", got)
	}
}
