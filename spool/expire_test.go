package spool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeHost is a host whose clocks a test sets.
type fakeHost struct {
	mu     sync.Mutex
	wall   time.Time
	since  time.Duration // the boot
	boot   uint64
	synced bool
}

func newHost() *fakeHost {
	return &fakeHost{wall: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), since: time.Hour, boot: 1, synced: true}
}

func (h *fakeHost) host() *host {
	return &host{
		wall:    func() time.Time { h.mu.Lock(); defer h.mu.Unlock(); return h.wall },
		elapsed: func() time.Duration { h.mu.Lock(); defer h.mu.Unlock(); return h.since },
		boot:    func() uint64 { h.mu.Lock(); defer h.mu.Unlock(); return h.boot },
		synced:  func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.synced },
	}
}

// pass lets time pass, also for a host that sleeps.
func (h *fakeHost) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall, h.since = h.wall.Add(d), h.since+d
}

// reboot begins to count anew after an outage.
func (h *fakeHost) reboot(outage time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wall, h.since, h.boot = h.wall.Add(outage), 10*time.Second, h.boot+1
}

func (h *fakeHost) set(wall time.Time) { h.mu.Lock(); h.wall = wall; h.mu.Unlock() }

// timed is a spool on a host of its own.
func timed(t testing.TB) (Config, *fakeHost) {
	h := newHost()
	cfg := small(t, t.TempDir())
	cfg.host = h.host()
	cfg.Now = cfg.host.wall
	return cfg, h
}

func ttl(payload string, d time.Duration) wire.Message {
	m := msg(payload)
	m.TTL = d.Milliseconds()
	return m
}

// TestAgesSurviveClocks: a message is as old as the time that has passed,
// whatever was done to the clock on the wall.
func TestAgesSurviveClocks(t *testing.T) {
	year := 365 * 24 * time.Hour
	reopen := func(*fakeHost) {} // the agent restarts
	for _, c := range []struct {
		name  string
		steps []any // durations pass, functions change the clocks; after each of these the spool is opened again if reopens
		opens bool
		age   time.Duration
	}{
		{"nothing", []any{90 * time.Minute}, false, 90 * time.Minute},
		{"wall ten years forward", []any{time.Minute, func(h *fakeHost) { h.set(h.wall.Add(10 * year)) }, time.Minute}, false, 2 * time.Minute},
		{"wall ten years back", []any{time.Minute, func(h *fakeHost) { h.set(h.wall.Add(-10 * year)) }, time.Minute}, false, 2 * time.Minute},
		{"restart, wall forward", []any{time.Minute, func(h *fakeHost) { h.set(h.wall.Add(10 * year)) }, time.Minute}, true, 2 * time.Minute},
		{"restart, wall back", []any{time.Minute, func(h *fakeHost) { h.set(time.Unix(0, 0)) }, time.Minute}, true, 2 * time.Minute},
		{"restart after an hour", []any{time.Minute, func(h *fakeHost) { h.pass(time.Hour) }, time.Minute}, true, 62 * time.Minute},
		{"boot after an hour", []any{time.Minute, func(h *fakeHost) { h.reboot(time.Hour) }, time.Minute}, true, 62 * time.Minute},
		{"boot in 1970", []any{time.Minute, func(h *fakeHost) { h.reboot(time.Hour); h.set(time.Unix(5, 0)) }, time.Minute}, true, 2 * time.Minute},
		{"boot, clock not set yet", []any{time.Minute, func(h *fakeHost) { h.reboot(time.Hour); h.synced = false }, time.Minute}, true, 2 * time.Minute},
		{"boot ten years later", []any{time.Minute, func(h *fakeHost) { h.reboot(10 * year) }, time.Minute}, true, 2 * time.Minute},
		{"boot, wall back", []any{time.Minute, func(h *fakeHost) { h.reboot(-time.Hour) }, time.Minute}, true, 2 * time.Minute},
		{"boot in 1970 twice", []any{func(h *fakeHost) { h.reboot(time.Hour); h.set(time.Unix(5, 0)) }, time.Minute, func(h *fakeHost) { h.reboot(time.Hour) }, time.Minute}, true, 2 * time.Minute},
		{"two restarts", []any{time.Minute, reopen, time.Minute, reopen, time.Minute}, true, 3 * time.Minute},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			cfg, h := timed(t)
			s := open(t, cfg)
			flow := appendOK(t, s, wire.Normal, ttl("dead", c.age), ttl("alive", c.age+time.Second), msg("forever")).Flow
			for _, step := range c.steps {
				if d, ok := step.(time.Duration); ok {
					h.pass(d)
					continue
				}
				if c.opens {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				step.(func(*fakeHost))(h)
				if c.opens {
					s = open(t, cfg)
				}
			}
			if got := strings.Join(readWhole(t, s, flow, 1), " "); got != "void:ttl alive forever" && got != "blank:ttl alive forever" {
				t.Fatalf("read %v", got)
			}
			if age := h.wall.Sub(s.Stats().Lanes[wire.Normal].Oldest); age != c.age {
				t.Errorf("the oldest is %s old, want %s", age, c.age)
			}
			h.pass(time.Second)
			if got := strings.Join(readWhole(t, s, flow, 1), " "); got != "blank:ttl blank:ttl forever" {
				t.Fatalf("a second later: read %v", got)
			}
		})
	}
}

// TestTTLCounts: what expired without a link is counted and gives its space
// back; the rest of its blocks is delivered.
func TestTTLCounts(t *testing.T) {
	cfg, h := timed(t)
	cfg.shape = tiny()
	s := open(t, cfg)
	var flow wire.Flow
	var want []string
	for i := range 60 {
		switch {
		case i < 30: // whole segments
			flow = appendOK(t, s, wire.Normal, ttl(fmt.Sprint(i), time.Minute)).Flow
			want = append(want, "void:ttl")
		default:
			appendOK(t, s, wire.Normal, ttl(fmt.Sprint(i), time.Minute), msg(fmt.Sprint("k", i)))
			want = append(want, "blank:ttl", fmt.Sprint("k", i))
		}
	}
	s.keeper.wait()
	before := segmentsOnDisk(t, cfg.Dir)
	if st := s.Stats(); len(st.Dropped) != 0 || st.Lanes[wire.Normal].Messages != 90 {
		t.Fatalf("told %+v", st)
	}
	h.pass(time.Minute)
	s.expireAll()
	check := func() {
		t.Helper()
		if st := s.Stats(); st.Dropped[wire.ReasonTTL] != 60 || st.Lanes[wire.Normal].Messages != 30 {
			t.Fatalf("told %+v", st)
		}
	}
	check()
	s.keeper.wantTrim()
	s.keeper.wait()
	if after := segmentsOnDisk(t, cfg.Dir); after >= before {
		t.Errorf("%d segments before, %d after", before, after)
	}
	for range 2 {
		if got := readWhole(t, s, flow, 1); !slices.Equal(got, want) {
			t.Fatalf("read %v", got)
		}
		check()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, cfg)
		check()
	}
	if err := s.Received(flow, wire.Ranges{{First: 1, Last: 90}}); err != nil {
		t.Fatal(err)
	}
	s.keeper.wait()
	if st := s.Stats(); st.Dropped[wire.ReasonTTL] != 60 || st.Lanes[wire.Normal].Messages != 0 {
		t.Fatalf("told %+v in the end", st)
	}
}

func TestMaxAge(t *testing.T) {
	cfg, h := timed(t)
	cfg.shape = tiny()
	cfg.MaxAge = time.Hour
	s := open(t, cfg)
	var flow wire.Flow
	for i := range 60 {
		flow = appendOK(t, s, wire.Normal, msg(fmt.Sprint(i))).Flow
		h.pass(time.Minute)
	}
	if err := s.Received(flow, wire.Ranges{{First: 1, Last: 3}}); err != nil {
		t.Fatal(err)
	}
	h.pass(10 * time.Minute) // 0 to 10 are an hour old
	s.expireAll()
	st := s.Stats()
	if st.Dropped[wire.ReasonMaxAge] != 8 || st.Lanes[wire.Normal].Messages != 49 {
		t.Fatalf("told %+v", st)
	}
	if age := h.wall.Sub(st.Lanes[wire.Normal].Oldest); age > time.Hour {
		t.Errorf("the oldest is %s old", age)
	}
	if got := readWhole(t, s, flow, 4); len(got) != 57 || got[7] != "void:max_age" || got[8] != "11" {
		t.Fatalf("read %v", got)
	}
	h.pass(5 * time.Minute) // nobody looked but the reader
	if got := readWhole(t, s, flow, 12); got[0] != "void:max_age" || got[4] != "void:max_age" || got[5] != "16" {
		t.Fatalf("read %v", got)
	}
	h.pass(2 * time.Hour)
	s.keeper.wantExpire()
	s.keeper.wait()
	if st := s.Stats(); st.Dropped[wire.ReasonMaxAge] != 57 || st.Lanes[wire.Normal].Messages != 0 {
		t.Fatalf("told %+v", st)
	}
	if n := segmentsOnDisk(t, cfg.Dir); n > 2 {
		t.Errorf("%d segments are left", n)
	}
	if _, err := s.Delivered(flow, 20); !errors.Is(err, ErrRemoved) {
		t.Errorf("delivered: %v", err)
	}
}

// TestShortTTLBehindLong: what is published later may expire earlier.
func TestShortTTLBehindLong(t *testing.T) {
	cfg, h := timed(t)
	s := open(t, cfg)
	flow := appendOK(t, s, wire.Normal, ttl("now", time.Second), ttl("long", time.Hour)).Flow
	h.pass(time.Second)
	s.expireAll() // the next is due in an hour
	appendOK(t, s, wire.Normal, ttl("short", time.Second), msg("kept"))
	h.pass(time.Second)
	if got := strings.Join(readWhole(t, s, flow, 1), " "); got != "blank:ttl long blank:ttl kept" {
		t.Fatalf("read %v", got)
	}
	appendOK(t, s, wire.Normal, ttl("next", time.Second), msg("kept too"))
	h.pass(time.Second)
	eventually(t, "the status counts it", func() bool { h.pass(time.Second); return s.Stats().Dropped[wire.ReasonTTL] == 3 })
}
