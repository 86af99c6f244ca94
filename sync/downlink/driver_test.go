package downlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// fakeConn is a connection on which answer stands for the hub.
type fakeConn struct {
	link.Conn // what the downlink does not use
	answer    func(ctx context.Context, r *wire.CommandRequest) (*wire.CommandReply, error)

	mu         sync.Mutex
	refuse     error // of Subscribe
	wake       func(string, []byte)
	asked      []string // when, and what
	began      time.Time
	underWay   int
	together   int // most requests under way at a time
	subscribed int
}

func (c *fakeConn) MaxPayload() int { return 1 << 20 }

func (c *fakeConn) Subscribe(subject string, fn func(string, []byte)) (func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	if subject != "fp.wake.d1" {
		return nil, errors.New("subscribes " + subject)
	}
	c.wake, c.subscribed = fn, c.subscribed+1
	return func() { c.mu.Lock(); defer c.mu.Unlock(); c.wake, c.subscribed = nil, c.subscribed-1 }, nil
}

func (c *fakeConn) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	r, err := wire.ParseCommandRequest(data)
	if err != nil || subject != "fp.up.d1" {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	c.mu.Lock()
	c.asked = append(c.asked, fmt.Sprintf("%v after %d, %d reports", time.Since(c.began), r.After, len(r.Reports)))
	c.underWay++
	c.together = max(c.together, c.underWay)
	c.mu.Unlock()
	defer func() { c.mu.Lock(); defer c.mu.Unlock(); c.underWay-- }()
	reply, err := c.answer(ctx, r)
	if err != nil {
		return nil, err
	}
	return json.Marshal(reply)
}

// fakeMemory keeps nothing but where to go on, and reports what it took.
type fakeMemory struct {
	mu      sync.Mutex
	after   uint64
	reports []wire.CommandReport
	err     error // of Take
	updates chan struct{}
}

func (m *fakeMemory) Ask(int) wire.CommandRequest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return wire.CommandRequest{Stream: "s", After: m.after, Room: 1000, Reports: slices.Clone(m.reports)}
}

func (m *fakeMemory) Take(asked wire.CommandRequest, r *wire.CommandReply) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return false, m.err
	}
	m.after = r.Next
	m.reports = slices.DeleteFunc(m.reports, func(p wire.CommandReport) bool { return slices.Contains(r.Noted, p.ID) })
	for _, c := range r.Commands {
		m.reports = append(m.reports, wire.CommandReport{ID: c.ID, State: wire.CommandDelivered})
	}
	if len(m.reports) > 0 && len(r.Commands) > 0 {
		m.tell()
	}
	return true, nil
}

func (m *fakeMemory) Updates() <-chan struct{} { return m.updates }

func (m *fakeMemory) tell() {
	select {
	case m.updates <- struct{}{}:
	default:
	}
}

// session runs a downlink in a bubble; it fails if a goroutine is left behind.
func session(t *testing.T, answer func(ctx context.Context, r *wire.CommandRequest) (*wire.CommandReply, error), do func(c *fakeConn, m *fakeMemory)) *fakeConn {
	t.Helper()
	var c *fakeConn
	synctest.Test(t, func(t *testing.T) {
		c = &fakeConn{answer: answer, began: time.Now()}
		m := &fakeMemory{updates: make(chan struct{}, 1)}
		d := New(Config{Device: "d1", Store: m, HubID: func() string { return "hub" }, Rand: func() float64 { return 0.5 }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx, c) }()
		synctest.Wait()
		do(c, m)
		cancel()
		<-done
		if c.subscribed != 0 || c.underWay != 0 || c.together > 1 {
			t.Errorf("subscribed %d, under way %d, together %d", c.subscribed, c.underWay, c.together)
		}
	})
	return c
}

func wantAsked(t *testing.T, c *fakeConn, want ...string) {
	t.Helper()
	if !slices.Equal(c.asked, want) {
		t.Errorf("asked\n%q, want\n%q", c.asked, want)
	}
}

// Commands are fetched, reported until the report is noted, and wakes that come
// together are one request.
func TestFetchAndReport(t *testing.T) {
	n := 0
	c := session(t, func(_ context.Context, r *wire.CommandRequest) (*wire.CommandReply, error) {
		time.Sleep(100 * time.Millisecond)
		n++
		reply := &wire.CommandReply{Stream: "s", Next: r.After}
		switch n {
		case 1:
			reply.Next, reply.Commands = 7, []wire.Command{{ID: "a", Seq: 7, Subject: "x", AckWait: 1, MaxDeliver: 1}}
		case 2: // does not note it
		default:
			for _, p := range r.Reports {
				reply.Noted = append(reply.Noted, p.ID)
			}
		}
		return reply, nil
	}, func(c *fakeConn, m *fakeMemory) {
		time.Sleep(time.Second)
		for range 5 {
			c.wake("fp.wake.d1", nil)
		}
		synctest.Wait()
		for range 5 {
			c.wake("fp.wake.d1", nil)
		}
		time.Sleep(time.Second)
	})
	wantAsked(t, c, "0s after 0, 0 reports", "100ms after 7, 1 reports", "1s after 7, 1 reports", "1.1s after 7, 0 reports")
}

// A hub that knows no commands, one that is silent and one that refuses are
// asked again, and end nothing.
func TestHubThatDoesNotAnswer(t *testing.T) {
	for name, answer := range map[string]func(ctx context.Context, r *wire.CommandRequest) (*wire.CommandReply, error){
		"no commands": func(context.Context, *wire.CommandRequest) (*wire.CommandReply, error) { return nil, link.ErrNoHub },
		"silent": func(ctx context.Context, _ *wire.CommandRequest) (*wire.CommandReply, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"refuses": func(context.Context, *wire.CommandRequest) (*wire.CommandReply, error) {
			return &wire.CommandReply{Error: &wire.SessionError{Code: "unavailable", Detail: "later"}}, nil
		},
		"garbage": func(context.Context, *wire.CommandRequest) (*wire.CommandReply, error) {
			return &wire.CommandReply{Stream: "s", Next: 1, Commands: []wire.Command{{ID: "not an id"}}}, nil
		},
	} {
		c := session(t, answer, func(*fakeConn, *fakeMemory) { time.Sleep(24 * time.Hour) })
		if n := len(c.asked); n < 200 || n > 24*60 {
			t.Errorf("%s: asked %d times in a day", name, n)
		}
	}
}

// Every answer is waited for longer than the last one that did not come.
func TestTimeouts(t *testing.T) {
	var waited []time.Duration
	session(t, func(ctx context.Context, _ *wire.CommandRequest) (*wire.CommandReply, error) {
		began := time.Now()
		<-ctx.Done()
		waited = append(waited, time.Since(began))
		return nil, ctx.Err()
	}, func(*fakeConn, *fakeMemory) { time.Sleep(12 * time.Minute) })
	if want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute}; len(waited) < 4 || !slices.Equal(waited[:4], want) {
		t.Errorf("%v", waited)
	}
}

// What the store cannot keep is not asked past, and is asked for again.
func TestStoreThatFails(t *testing.T) {
	c := session(t, func(_ context.Context, r *wire.CommandRequest) (*wire.CommandReply, error) {
		return &wire.CommandReply{Stream: "s", Next: 5}, nil
	}, func(c *fakeConn, m *fakeMemory) {
		m.mu.Lock()
		m.err = errors.New("disk full")
		m.mu.Unlock()
		time.Sleep(time.Second)
		m.tell()
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.err = nil
		m.mu.Unlock()
		time.Sleep(2 * time.Minute)
	})
	if n := len(c.asked); n < 4 || c.asked[1] != "1s after 5, 0 reports" {
		t.Errorf("%q", c.asked)
	}
}

// A connection that is gone already ends the session.
func TestNoSubscription(t *testing.T) {
	d := New(Config{Device: "d1", Store: &fakeMemory{}, HubID: func() string { return "hub" }})
	d.Run(t.Context(), &fakeConn{refuse: link.ErrClosed})
}
