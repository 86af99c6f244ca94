package hub

import (
	"context"
	"testing"
)

// A caller that gives up learns what was known, and the next one looks itself.
func TestLookOfAnImpatientCaller(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	m := newMonitor(r.open.Load())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // it may get its turn all the same
		if s := m.look(gone); len(s.lag) != len(r.cfg.Routes) || !s.at.IsZero() {
			t.Fatalf("before anybody has looked: %+v", s)
		}
	}
	m.looking <- struct{}{}
	if s := m.look(gone); len(s.lag) != len(r.cfg.Routes) {
		t.Errorf("while somebody looks: %+v", s)
	}
	<-m.looking
	if s := m.look(t.Context()); s.err != nil || s.at.IsZero() || s.stream("EDGE").Name == "" {
		t.Errorf("the next: %+v", s)
	}
}
