package link

import (
	"math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// shunned is how long a server that failed comes after the others.
	shunned = 10 * time.Minute
	// forgotten is after how long a server of the cluster is dropped of which a
	// new connection does not tell any more.
	forgotten = time.Hour
)

// target is one server to try.
type target struct {
	url     string
	tlsName string    // name in the certificate; "": the host's
	told    time.Time // when the cluster told of it last; zero: configured
}

// servers are those of one hub, and what is known of them.
type servers struct {
	configured []target

	mu         sync.Mutex
	discovered []target             // of the cluster
	failed     map[string]time.Time // by host: did not answer, or later than another
}

// order is in which order they are tried: configured ones in random order, then
// those of the cluster; those that failed lately come last.
func (s *servers) order(now time.Time) []target {
	ts := slices.Clone(s.configured)
	shuffle(ts)
	s.mu.Lock()
	defer s.mu.Unlock()
	more := slices.Clone(s.discovered)
	shuffle(more)
	for _, t := range more {
		if !has(ts, t) {
			ts = append(ts, t)
		}
	}
	slices.SortStableFunc(ts, func(a, b target) int { return s.rank(a, now) - s.rank(b, now) })
	return ts
}

// rank is 1 for a server that failed lately.
func (s *servers) rank(t target, now time.Time) int {
	if at, ok := s.failed[hostOf(t.url)]; ok && now.Sub(at) < shunned {
		return 1
	}
	return 0
}

// tried keeps how a server did.
func (s *servers) tried(t target, ok bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = map[string]time.Time{}
	}
	if delete(s.failed, hostOf(t.url)); !ok {
		s.failed[hostOf(t.url)] = now
	}
}

// told takes in what a server tells of its cluster. One that it leaves out may
// be restarting, so it is kept for a while.
func (s *servers) told(urls []string, tlsName string, now time.Time) {
	ts := make([]target, 0, len(urls))
	for _, u := range urls {
		ts = append(ts, target{url: u, tlsName: tlsName, told: now})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.discovered {
		switch {
		case has(ts, t):
		case now.Sub(t.told) < forgotten:
			ts = append(ts, t)
		default:
			delete(s.failed, hostOf(t.url))
		}
	}
	s.discovered = ts
}

func has(ts []target, t target) bool {
	return slices.ContainsFunc(ts, func(o target) bool { return hostOf(o.url) == hostOf(t.url) })
}

func shuffle(ts []target) {
	rand.Shuffle(len(ts), func(i, j int) { ts[i], ts[j] = ts[j], ts[i] })
}

func hostOf(rawURL string) string {
	if u, err := url.Parse(rawURL); err == nil {
		return u.Host
	}
	return rawURL
}
