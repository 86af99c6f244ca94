package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// hole is an address that answers nothing.
func hole(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRace: what a try does, and when the race ends with whom.
func TestRace(t *testing.T) {
	const hangs, fails = -1, -2 // else: succeeds after so many seconds
	for _, c := range []struct {
		name   string
		tries  []int
		winner int
		failed int
		at     time.Duration
	}{
		{"the first", []int{0, 0}, 0, 0, 0},
		{"a dead one costs a moment", []int{hangs, 0}, 1, 0, time.Second},
		{"two dead ones", []int{hangs, hangs, 0}, 2, 0, 2 * time.Second},
		{"after a failure at once", []int{fails, fails, 0}, 2, 2, 0},
		{"the slow one is not given up", []int{3, hangs, hangs}, 0, 0, 3 * time.Second},
		{"a late one is dropped", []int{5, 1}, 1, 0, 2 * time.Second},
		{"all fail", []int{fails, fails}, -1, 2, 0},
		{"all hang", []int{hangs, hangs}, -1, 2, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				began := time.Now()
				w, failed := race(ctx, len(c.tries), time.Second, func(ctx context.Context, i int) (int, error) {
					switch n := c.tries[i]; n {
					case hangs:
						<-ctx.Done()
						return 0, ctx.Err()
					case fails:
						return 0, errors.New("refused")
					default:
						select {
						case <-time.After(time.Duration(n) * time.Second):
							return i, nil
						case <-ctx.Done():
							return 0, ctx.Err()
						}
					}
				}, func(int) {})
				if w.index != c.winner || len(failed) != c.failed || time.Since(began) != c.at {
					t.Errorf("winner %d, %d failed, after %s; want %d, %d, %s", w.index, len(failed), time.Since(began), c.winner, c.failed, c.at)
				}
			})
		})
	}
}

// TestRaceDropsWhoIsLate: a try that cannot be cancelled and succeeds too late.
func TestRaceDropsWhoIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped []int
		w, _ := race(t.Context(), 2, time.Second, func(_ context.Context, i int) (int, error) {
			time.Sleep(time.Duration(5-3*i) * time.Second) // 0 at 5 s, 1 at 3 s
			return i, nil
		}, func(i int) { dropped = append(dropped, i) })
		if w.won != 1 || len(dropped) != 1 || dropped[0] != 0 {
			t.Errorf("winner %d, dropped %v", w.won, dropped)
		}
	})
}

// TestLinkThatReturnsIsNoticed: a server that did not answer the first SYN is
// asked by a new socket every two seconds, and a refusal ends the wait.
func TestLinkThatReturnsIsNoticed(t *testing.T) {
	for _, refused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			back := 5 * time.Second // a socket opened before never gets an answer
			dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
				if time.Since(began) < back {
					return hole(ctx)
				}
				if refused {
					return nil, errors.New("refused")
				}
				a, b := net.Pipe()
				b.Close()
				return a, nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), connectTimeout)
			defer cancel()
			c, err := openSocket(ctx, dial, "tcp", "h:1")
			if (err != nil) != refused || time.Since(began) > back+fresh {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			if c != nil {
				c.Close()
			}
		})
	}
}

// holed makes d drop everything to these addresses, and counts the dials of each.
type holed struct {
	mu    sync.Mutex
	down  map[string]bool
	dials map[string]int
}

func newHoled(d *NATS, down ...string) *holed {
	h := &holed{down: map[string]bool{}, dials: map[string]int{}}
	for _, a := range down {
		h.down[a] = true
	}
	real := d.dial
	d.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		h.mu.Lock()
		h.dials[address]++
		down := h.down[address]
		h.mu.Unlock()
		if down {
			return hole(ctx)
		}
		return real(ctx, network, address)
	}
	return h
}

func (h *holed) set(down bool, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down[address] = down
}

func (h *holed) count(address string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dials[address]
}

// TestDeadServerCostsAMoment: of three servers, one that answers nothing does
// not keep a dial from the others, and is asked last from then on; when it is
// the only one left, it is taken.
func TestDeadServerCostsAMoment(t *testing.T) {
	var urls, addrs []string
	for range 3 {
		s := startServer(t, server.Options{})
		urls, addrs = append(urls, s.ClientURL()), append(addrs, s.Addr().String())
	}
	d := newDialer(t, Config{URLs: urls})
	h := newHoled(d, addrs[0])
	for i := 0; h.count(addrs[0]) == 0; i++ {
		if i == 100 {
			t.Fatal("the order is not random")
		}
		dial(t, d).Close()
	}
	n := h.count(addrs[0])
	for range 20 {
		dial(t, d).Close()
	}
	if h.count(addrs[0]) != n {
		t.Error("a server that did not answer is asked before those that do")
	}
	h.set(false, addrs[0])
	h.set(true, addrs[1])
	h.set(true, addrs[2])
	if c := dial(t, d); c.Server() != urls[0] {
		t.Errorf("connected to %s", c.Server())
	}
}

// TestNamesAreResolvedAnew: what is dialled is the name, every time.
func TestNamesAreResolvedAnew(t *testing.T) {
	a, b := startServer(t, server.Options{}), startServer(t, server.Options{})
	d := newDialer(t, Config{URLs: []string{"nats://hub.example:4222"}})
	var names atomic.Int32
	now := a
	d.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "hub.example:4222" {
			return nil, fmt.Errorf("dialled %s", address)
		}
		names.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, now.Addr().String())
	}
	dial(t, d).Close()
	now = b // the record has changed
	c := dial(t, d)
	if names.Load() != 2 || b.NumClients() != 1 {
		t.Errorf("%d dials of the name, %d clients of the new address", names.Load(), b.NumClients())
	}
	c.Close()
}

// TestServersOfTheCluster: which are tried, in which order, and which are forgotten.
func TestServersOfTheCluster(t *testing.T) {
	now := time.Now()
	s := &servers{configured: []target{{url: "nats://a:1"}}}
	s.told([]string{"nats://b:1", "nats://c:1", "nats://a:1"}, "hub", now)
	if ts := s.order(now); len(ts) != 3 || ts[0].url != "nats://a:1" || ts[1].tlsName != "hub" {
		t.Errorf("%+v", ts)
	}
	s.tried(target{url: "nats://a:1"}, false, now)
	if ts := s.order(now); ts[2].url != "nats://a:1" {
		t.Errorf("one that failed comes before the others: %+v", ts)
	}
	if ts := s.order(now.Add(shunned)); ts[0].url != "nats://a:1" {
		t.Errorf("the failure is not forgotten: %+v", ts)
	}
	s.tried(target{url: "nats://a:1"}, true, now)
	if ts := s.order(now); ts[0].url != "nats://a:1" {
		t.Errorf("one that works again does not come first: %+v", ts)
	}
	later := now.Add(forgotten - time.Second)
	s.told([]string{"nats://b:1"}, "hub", later)
	if ts := s.order(later); len(ts) != 3 {
		t.Errorf("one that may be restarting is forgotten: %+v", ts)
	}
	s.told(nil, "hub", now.Add(forgotten))
	if ts := s.order(later); len(ts) != 2 || ts[1].url != "nats://b:1" {
		t.Errorf("one that left is kept: %+v", ts)
	}
}
