package hub

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fieldpost/fieldpost/hub/deadletter"
	"github.com/fieldpost/fieldpost/hub/ingest"
	"github.com/fieldpost/fieldpost/hub/registry"
	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// hubMetrics is everything that GET /metrics shows. What has labels that are
// known beforehand exists with 0 from the start, so that a rate never begins
// with a gap.
type hubMetrics struct {
	set    *metrics.Set
	blocks map[string]*metrics.Counter // by result

	messages   *metrics.Counter
	duplicates *metrics.Counter
	ack        *metrics.PrometheusHistogram // seconds from a block's arrival to its ack
	unpacked   map[string]*metrics.Counter  // by route

	mu   sync.Mutex
	seen sighting // guarded by mu
	n    registry.Numbers
}

// ackBuckets are seconds: from one fsync of a fast disk to a hub that is stuck.
var ackBuckets = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}

// results of ingest_blocks_total.
var results = []string{"stored", "void", "duplicate", "partial", "early", "failed"}

// rejectReasons of rejected_total that are known beforehand.
var rejectReasons = []string{
	"heartbeat_invalid", "heartbeat_rate", "too_many_devices", "labels_full", "desired_reports",
	wire.CodeWrongHub, wire.CodeProtocol, wire.CodeGap, wire.CodeCorrupt, wire.CodePartial, wire.CodeEarly,
	wire.CodeReplaced, wire.CodeIdle, wire.CodeUnavailable, wire.CodeStopping, wire.CodeRefused,
	"command_" + wire.CodeWrongHub, "command_" + wire.CodeProtocol, "command_" + wire.CodeRefused, "command_" + wire.CodeUnavailable, "command_unknown",
	"unknown_session", "repeated_frame", "malformed", "bad_device", "bad_reply", "overrun",
}

func newMetrics(cfg Config) *hubMetrics {
	s := metrics.NewSet()
	m := &hubMetrics{
		set: s, blocks: map[string]*metrics.Counter{}, unpacked: map[string]*metrics.Counter{},
		messages:   s.NewCounter("fieldpost_hub_ingest_messages_total"),
		duplicates: s.NewCounter("fieldpost_hub_duplicate_blocks_total"),
		ack:        s.NewPrometheusHistogramExt("fieldpost_hub_ack_duration_seconds", ackBuckets),
	}
	s.NewGauge(fmt.Sprintf("fieldpost_hub_build_info{version=%q,go=%q}", cfg.Version, runtime.Version()), func() float64 { return 1 })
	for _, r := range results {
		m.blocks[r] = s.NewCounter(fmt.Sprintf("fieldpost_hub_ingest_blocks_total{result=%q}", r))
	}
	for _, r := range rejectReasons {
		m.rejected(r)
	}
	for _, r := range wire.Reasons() {
		m.dead(r.String())
	}
	m.dead("poison")
	for _, h := range cfg.Webhooks {
		for _, result := range []string{"delivered", "refused", "failed"} {
			m.webhook(h.Name, result)
		}
	}
	m.dead(deadletter.MaxDeliveries)
	m.dead(deadletter.Terminated)
	m.dead(string(wire.CommandExpired))
	m.dead(string(wire.CommandFailed))
	for _, s := range commandStates {
		m.command(s)
	}
	streams := []string{store.Blocks, store.Dead, store.Retry, store.Advisories, store.Commands}
	for i, r := range cfg.Routes {
		if r.packed() {
			continue // no stream, and nothing to be behind with
		}
		streams = append(streams, r.Stream)
		m.unpacked[r.Stream] = s.NewCounter(fmt.Sprintf("fieldpost_hub_unpack_messages_total{route=%q}", r.Stream))
		m.gauge(fmt.Sprintf("fieldpost_hub_unpack_lag_blocks{route=%q}", r.Stream), func() float64 {
			if i < len(m.seen.lag) {
				return float64(m.seen.lag[i])
			}
			return 0
		})
	}
	m.lostBlocks(cfg)
	for _, name := range streams {
		m.gauge(fmt.Sprintf("fieldpost_hub_stream_bytes{stream=%q}", name), func() float64 { return float64(m.seen.stream(name).Bytes) })
		m.gauge(fmt.Sprintf("fieldpost_hub_stream_max_bytes{stream=%q}", name), func() float64 { return float64(m.seen.stream(name).MaxBytes) })
	}
	m.gauge(`fieldpost_hub_devices{state="online"}`, func() float64 { return float64(m.n.Online) })
	m.gauge(`fieldpost_hub_devices{state="offline"}`, func() float64 { return float64(m.n.Offline) })
	m.gauge("fieldpost_hub_unrouted_messages_total", func() float64 { return float64(m.seen.unrouted) })
	m.gauge("fieldpost_hub_backlog_messages", func() float64 { return float64(m.n.Backlog) })
	return m
}

// gauge reads under m.mu.
func (m *hubMetrics) gauge(name string, read func() float64) {
	m.set.NewGauge(name, func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return read()
	})
}

// show is what the gauges say from now on.
func (m *hubMetrics) show(s sighting, n registry.Numbers) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen, m.n = s, n
}

func (m *hubMetrics) rejected(reason string) *metrics.Counter {
	return m.set.GetOrCreateCounter(fmt.Sprintf("fieldpost_hub_rejected_total{reason=%q}", reason))
}

func (m *hubMetrics) dead(reason string) *metrics.Counter {
	return m.set.GetOrCreateCounter(fmt.Sprintf("fieldpost_hub_dead_total{reason=%q}", reason))
}

func (m *hubMetrics) command(to wire.CommandState) *metrics.Counter {
	return m.set.GetOrCreateCounter(fmt.Sprintf("fieldpost_hub_command_transitions_total{to=%q}", to))
}

func (m *hubMetrics) webhook(name, result string) *metrics.Counter {
	return m.set.GetOrCreateCounter(fmt.Sprintf("fieldpost_hub_webhook_messages_total{webhook=%q,result=%q}", name, result))
}

// ingestHooks counts what ingest reports; closed is passed on.
func (m *hubMetrics) ingestHooks(closed func(device string, e wire.Epoch)) ingest.Hooks {
	return ingest.Hooks{
		Block: func(result string, n int) {
			if c := m.blocks[result]; c != nil {
				c.Add(n)
			}
			if result == "duplicate" {
				m.duplicates.Add(n)
			}
		},
		Messages: func(n uint64) { m.messages.AddInt64(int64(n)) },
		Acked:    func(d time.Duration) { m.ack.Update(d.Seconds()) },
		Rejected: func(reason string) { m.rejected(reason).Inc() },
		Closed:   closed,
	}
}
