package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// watcher shows what arrives: of each device and kind of reading the first.
type watcher struct {
	s     *scratch
	off   atomic.Bool
	shown map[string]bool // by device and kind; owned by the subscription
}

// watch subscribes to everything that reaches EDGE, as any back end would.
func watch(s *scratch, addr string) *watcher {
	w := &watcher{s: s, shown: map[string]bool{}}
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		s.Fatalf("watching: %v", err)
	}
	s.Cleanup(nc.Close)
	if _, err = nc.Subscribe("edge.>", w.arrived); err == nil {
		err = nc.Flush()
	}
	if err != nil {
		s.Fatalf("watching: %v", err)
	}
	return w
}

func (w *watcher) arrived(m *nats.Msg) {
	kind := strings.SplitN(m.Subject, ".", 5) // edge, device, host, cpu, the rest
	kind = kind[:min(len(kind), 4)]
	if name := strings.Join(kind, "."); w.off.Load() || w.shown[name] {
		return
	} else {
		w.shown[name] = true
	}
	w.s.say("  %-34s %s", m.Subject, describe(m.Data))
}

// stop shows no more.
func (w *watcher) stop() { w.off.Store(true) }

// describe is a reading, or a line of standard input, in few words.
func describe(payload []byte) string {
	var r struct {
		reading
		Line *string `json:"line"`
	}
	if err := json.Unmarshal(payload, &r); err != nil {
		return fmt.Sprintf("%.60s", payload)
	}
	if r.Line != nil {
		return fmt.Sprintf("%.60s", *r.Line)
	}
	return fmt.Sprintf("%.10g %s (%s)", r.Value, r.Unit, r.Source)
}
