package agent

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fieldpost/fieldpost/agent/command"
	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/uplink"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// Upper bounds of the buckets, in seconds: from a fast disk to a stalled one.
var secondsBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// agentMetrics holds every series of DESIGN §6; each is there from the start.
type agentMetrics struct {
	set       *metrics.Set
	published [wire.NumLanes]*metrics.Counter
	refusals  map[string]*metrics.Counter  // by code; written by newMetrics only
	duration  *metrics.PrometheusHistogram // of an HTTP publish, or of a batch of pipelined ones
	fsync     *metrics.PrometheusHistogram
	dropped   map[wire.Reason]*metrics.Counter // set when scraped
	damaged   *metrics.Counter                 // set when scraped
	ups       *metrics.Counter
	downs     *metrics.Counter
	sent      *metrics.Counter
	received  *metrics.Counter
	resent    *metrics.Counter
	rtt       *metrics.PrometheusHistogram
	commands  map[string]*metrics.Counter // by what became of a command; written by newMetrics only

	mu    sync.Mutex
	stats spool.Stats // as of the scrape; guarded by mu
	link  uplink.Status
}

func newMetrics(a *Agent) *agentMetrics {
	s := metrics.NewSet()
	m := &agentMetrics{
		set: s, refusals: map[string]*metrics.Counter{}, dropped: map[wire.Reason]*metrics.Counter{}, commands: map[string]*metrics.Counter{},
		duration: s.NewPrometheusHistogramExt("fieldpost_agent_publish_duration_seconds", secondsBuckets),
		fsync:    s.NewPrometheusHistogramExt("fieldpost_agent_fsync_duration_seconds", secondsBuckets),
		damaged:  s.NewCounter("fieldpost_agent_quarantined_segments_total"),
		ups:      s.NewCounter(`fieldpost_agent_link_transitions_total{to="up"}`),
		downs:    s.NewCounter(`fieldpost_agent_link_transitions_total{to="down"}`),
		sent:     s.NewCounter("fieldpost_agent_uplink_sent_bytes_total"),
		received: s.NewCounter("fieldpost_agent_uplink_received_bytes_total"),
		resent:   s.NewCounter("fieldpost_agent_uplink_redelivered_blocks_total"),
		rtt:      s.NewPrometheusHistogramExt("fieldpost_agent_uplink_rtt_seconds", secondsBuckets),
	}
	s.NewGauge(fmt.Sprintf("fieldpost_agent_build_info{version=%q,goversion=%q}", a.cfg.Version, runtime.Version()), func() float64 { return 1 })
	for _, code := range slices.Sorted(maps.Keys(kinds)) {
		m.refusals[code] = s.NewCounter(fmt.Sprintf("fieldpost_agent_publish_errors_total{code=%q}", code))
	}
	for _, r := range wire.Reasons() {
		m.dropped[r] = s.NewCounter(fmt.Sprintf("fieldpost_agent_dropped_total{reason=%q}", r))
	}
	for l := range wire.Lane(wire.NumLanes) {
		m.published[l] = s.NewCounter(fmt.Sprintf("fieldpost_agent_published_total{lane=%q}", l))
		m.gauge(fmt.Sprintf("fieldpost_agent_spool_messages{lane=%q}", l), func() float64 { return float64(m.stats.Lanes[l].Messages) })
		m.gauge(fmt.Sprintf("fieldpost_agent_spool_oldest_age_seconds{lane=%q}", l), func() float64 {
			if t := m.stats.Lanes[l].Oldest; !t.IsZero() {
				return max(0, time.Since(t).Seconds())
			}
			return 0
		})
	}
	m.gauge("fieldpost_agent_spool_bytes", func() float64 { return float64(m.stats.LiveBytes) })
	m.gauge("fieldpost_agent_spool_disk_bytes", func() float64 { return float64(m.stats.DiskUsed) })
	m.gauge("fieldpost_agent_spool_max_bytes", func() float64 { return float64(m.stats.DiskMax) })
	m.gauge("fieldpost_agent_link_up", func() float64 {
		if m.link.Up {
			return 1
		}
		return 0
	})
	for _, to := range command.Transitions() {
		m.commands[to] = s.NewCounter(fmt.Sprintf("fieldpost_agent_command_transitions_total{to=%q}", to))
	}
	s.NewGauge("fieldpost_agent_credentials_expiry_timestamp_seconds", func() float64 { return 0 }) // no credentials that expire yet
	return m
}

// gauge declares one that reads the snapshot; mu is held while f runs.
func (m *agentMetrics) gauge(name string, f func() float64) { m.set.NewGauge(name, f) }

// refused counts a publish that was answered by p.
func (m *agentMetrics) refused(p *problem) { m.refusals[p.code].Inc() }

// command counts what became of a command.
func (m *agentMetrics) command(to string) { m.commands[to].Inc() }

// hooks lets the uplink count for us.
func (m *agentMetrics) hooks(rewound func(messages uint64)) uplink.Hooks {
	return uplink.Hooks{
		Sent:        func(n int) { m.sent.Add(n) },
		Received:    func(n int) { m.received.Add(n) },
		Redelivered: func(n int) { m.resent.Add(n) },
		Rewound:     rewound,
		RTT:         func(d time.Duration) { m.rtt.Update(d.Seconds()) },
		Transition: func(up bool) {
			if up {
				m.ups.Inc()
			} else {
				m.downs.Inc()
			}
		},
	}
}

// serveMetrics is GET /metrics. While the spool is not open, its series show
// what was last known of it.
func (a *Agent) serveMetrics(w http.ResponseWriter, r *http.Request) *problem {
	var out bytes.Buffer
	a.scrape(&out)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(out.Bytes()) // a reader that is gone needs no answer
	return nil
}

func (a *Agent) scrape(out *bytes.Buffer) {
	m := a.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if st, p := a.gate.enter(); p == nil {
		m.stats = st.Stats()
		m.link = a.uplink().Status()
		a.gate.leave()
	}
	for reason, n := range a.dropped(m.stats) {
		m.dropped[reason].Set(n)
	}
	m.damaged.Set(m.stats.Quarantine.Segments)
	m.set.WritePrometheus(out)
}
