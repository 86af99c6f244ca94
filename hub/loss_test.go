package hub

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// failing makes every step whose label begins so fail while it is set.
func failing(on *atomic.Bool, label string) func(string) error {
	return func(point string) error {
		if on.Load() && strings.HasPrefix(point, label) {
			return errors.New("injected")
		}
		return nil
	}
}

// says reports whether one of the lines holds all the words.
func says(lines []string, words ...string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// TestPurgedTooEarly: what somebody takes out of the ledger before it was
// unpacked is counted where people look.
func TestPurgedTooEarly(t *testing.T) {
	var held atomic.Bool
	held.Store(true)
	cfg := testConfig(t.TempDir())
	cfg.Fault = failing(&held, "unpack:read")
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	for _, text := range []string{"one", "two"} {
		d.send(wire.FrameBlock, d.block(text))
		d.acked()
	}
	eventually(t, "unpacking has begun", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && says(st.Reasons, "EDGE", "injected")
	})
	inside, err := r.inside().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := inside.PurgeStream(store.Blocks, &nats.StreamPurgeRequest{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	held.Store(false)
	eventually(t, "status, readyz and metrics say what is gone", func() bool {
		st, err := r.admin().Status(t.Context())
		_, page := r.get("/metrics")
		_, ready := r.get("/readyz")
		_, routes := r.get("/v1/routes")
		return err == nil && st.Ready && st.Routes[0].Lost == 1 && says(st.Notes, "removed from BLOCKS", "EDGE", ": 1, the newest 1 to 1;") &&
			strings.Contains(page, `fieldpost_hub_unpack_lost_blocks_total{route="EDGE"} 1`) &&
			strings.Contains(ready, "removed from BLOCKS") && strings.Contains(routes, `"lost_blocks":1`)
	})
}

// TestStreamsAroundDeadFillUp: somebody is told before it hurts.
func TestStreamsAroundDeadFillUp(t *testing.T) {
	var held atomic.Bool
	held.Store(true)
	cfg := testConfig(t.TempDir())
	cfg.Dead.MaxBytes = Size{Bytes: 8 << 20}
	cfg.Fault = failing(&held, "dead:fetch")
	r := start(t, cfg)
	js, err := jetstream.New(r.inside())
	if err != nil {
		t.Fatal(err)
	}
	fill := func(stream, subject string) {
		t.Helper()
		s, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		max := s.CachedInfo().Config.MaxBytes
		for sent := int64(0); sent < max*19/20; sent += 32<<10 + 100 {
			if _, err := js.Publish(t.Context(), subject, make([]byte, 32<<10)); err != nil {
				t.Fatal(err)
			}
		}
	}
	status := func() *admin.Status {
		st, err := r.admin().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return &st
	}
	fill(store.Retry, "retry.billing")
	eventually(t, "a note about RETRY", func() bool { return says(status().Notes, "RETRY is full", "`dead retry` is refused") })
	if says(status().Reasons, "RETRY") {
		t.Errorf("the hub works and says that it does not: %v", status().Reasons)
	}
	fill(store.Advisories, store.TerminatedPrefix+"EDGE.billing")
	eventually(t, "a reason about ADVISORIES", func() bool { return says(status().Reasons, "ADVISORIES is full", "letters") })
	_, page := r.get("/metrics")
	for _, stream := range []string{store.Retry, store.Advisories} {
		if !slices.ContainsFunc(status().Streams, func(s admin.Stream) bool { return s.Name == stream && s.Bytes > 0 && s.MaxBytes > 0 }) ||
			!strings.Contains(page, `fieldpost_hub_stream_bytes{stream="`+stream+`"}`) || !strings.Contains(page, `fieldpost_hub_stream_max_bytes{stream="`+stream+`"}`) {
			t.Errorf("%s is not shown", stream)
		}
	}
	held.Store(false)
	eventually(t, "what is no advisory is cleared away", func() bool { return !says(status().Reasons, "ADVISORIES") })
}
