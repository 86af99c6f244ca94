//go:build unix

package spool

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// removes reports whether a step belongs to the removal of messages.
func removes(point string) bool {
	return strings.HasPrefix(point, "drop:") || strings.HasPrefix(point, "remove:")
}

// crashRemove is the child that removes what it appends, in every way.
func crashRemove(s *Spool, say func(string, ...any)) {
	n := 0
	for round := range 4 {
		for range 10 {
			for l := range wire.Lane(wire.NumLanes) {
				var ms []wire.Message
				for range 3 {
					n++
					m := on(fmt.Sprintf("%c.x", 'a'+n%3), fmt.Sprint(n))
					m.TTL = []int64{0, 0, 1}[n%3] // a millisecond
					ms = append(ms, m)
				}
				r, err := s.Append(context.Background(), l, ms)
				if err != nil {
					say("error append %v", err)
					return
				}
				for i := range ms {
					say("ack %s %d %d %s", r.Flow.Epoch, r.Flow.Lane, r.First+uint64(i), ms[i].Payload)
				}
			}
		}
		s.keeper.wait()
		s.expireAll()
		for _, h := range s.Flows() { // some of it is on its way
			if _, err := s.Read(h.Flow, h.First+uint64(round)); err != nil {
				say("error read %v", err)
			}
		}
		if _, err := s.Purge(Selection{Filter: "a.>"}); err != nil {
			say("error purge %v", err)
		}
		s.mu.RLock()
		var victims []*segment
		for _, g := range s.segments {
			if g.only(wire.Bulk) && len(victims) < 2 {
				victims = append(victims, g)
			}
		}
		s.mu.RUnlock()
		if _, err := s.dropSegments(victims); err != nil {
			say("error drop %v", err)
		}
	}
	if _, err := s.Purge(Selection{Lanes: []wire.Lane{wire.Urgent}}); err != nil {
		say("error purge %v", err)
	}
	for _, h := range s.Flows() {
		if _, err := s.Read(h.Flow, h.First); err != nil {
			say("error read %v", err)
		}
	}
	if err := s.Close(); err != nil {
		say("error close %v", err)
	}
}

// TestKillWhileRemoving: whenever the process dies, what was acked is there or
// counted, by the reason that its void or blank has.
func TestKillWhileRemoving(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, point := range points {
		if !removes(point) {
			continue
		}
		for _, nth := range []int{1, 2, 3, 4, 5, 7, 9, 12, 15} {
			t.Run(fmt.Sprintf("%s-%d", strings.ReplaceAll(point, ":", "-"), nth), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				l := newLedger()
				if killed := l.run(t, dir, point, nth); !killed && nth < 4 {
					t.Errorf("%s was not reached %d times", point, nth)
				}
				for range 2 { // what is read is told, and stays
					checkRemoved(t, l, dir)
				}
			})
		}
	}
}

func checkRemoved(t *testing.T, l *ledger, dir string) {
	t.Helper()
	s, err := Open(crashConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.expireAll()
	got, removed := map[place]string{}, map[string]uint64{}
	for _, h := range s.Flows() {
		for i, p := range readWhole(t, s, h.Flow, h.First) {
			got[place{h.Flow, h.First + uint64(i)}] = p
			if _, why, gone := strings.Cut(p, ":"); gone {
				removed[why]++
			}
		}
	}
	for name, p := range l.acked {
		if v := got[p]; v != name && !strings.Contains(v, ":") {
			t.Errorf("%s was acked at %v; there is %q", name, p, v)
		}
	}
	told := map[string]uint64{}
	st := s.Stats()
	for why, n := range st.Dropped {
		told[why.String()] = n
	}
	if fmt.Sprint(told) != fmt.Sprint(removed) {
		t.Errorf("counted %v, read %v", told, removed)
	}
	if st.Quarantine.Segments > 0 {
		t.Errorf("nothing was damaged: %+v", st.Quarantine)
	}
}
