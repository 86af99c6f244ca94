package alerts

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Values over the minutes of a recording.
func steady(v float64) func(int) float64 { return func(int) float64 { return v } }
func ramp(from, perMinute float64) func(int) float64 {
	return func(m int) float64 { return from + perMinute*float64(m) }
}

// jump is before until a minute, and after from then on.
func jump(before, after float64, at int) func(int) float64 {
	return func(m int) float64 {
		if m < at {
			return before
		}
		return after
	}
}

// of makes a series: metric, the values, label, value …
func of(name string, at func(int) float64, labels ...string) series {
	s := series{name: name, labels: map[string]string{"instance": "i1"}, at: at}
	for i := 0; i+1 < len(labels); i += 2 {
		s.labels[labels[i]] = labels[i+1]
	}
	return s
}

const now = 240 // minute at which the rules are looked at

// fires reports for which labels a rule has held all along its `for`.
func (r alertRule) fires(t *testing.T, all []series) (out []map[string]string) {
	t.Helper()
	n, _, err := parseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range n(all, now) {
		always := true
		for m := now - int(r.For/time.Minute); m < now; m++ {
			always = always && slices.ContainsFunc(n(all, m), func(o sample) bool { return maps.Equal(o.labels, s.labels) })
		}
		if always {
			out = append(out, s.labels)
		}
	}
	return out
}

// scenario is one that a rule is for, and one beside it.
type scenario struct{ fire, quiet [][]series }

func one(s ...series) []series { return s }

func ratio(name, label, bad, good string) scenario {
	of2 := func(b, g float64) []series {
		return one(of(name, ramp(0, b), label, bad), of(name, ramp(0, g), label, good))
	}
	short := one(of(name, func(m int) float64 { return max(0, float64(m-now+3)) * 50 }, label, bad), of(name, ramp(0, 1000), label, good))
	return scenario{fire: [][]series{of2(11, 989), of2(5, 0)}, quiet: [][]series{of2(9, 991), of2(0, 1000), of2(0, 0), short}}
}

var scenarios = map[string]scenario{
	"FieldpostDevicesOffline": {
		fire:  [][]series{one(of("fieldpost_hub_devices", steady(1), "state", "offline"))},
		quiet: [][]series{one(of("fieldpost_hub_devices", steady(0), "state", "offline"), of("fieldpost_hub_devices", steady(9), "state", "online")), one(of("fieldpost_hub_devices", jump(0, 1, now-14), "state", "offline"))},
	},
	"FieldpostLinkDown": {
		fire:  [][]series{one(of("fieldpost_agent_link_up", jump(1, 0, now-15)))},
		quiet: [][]series{one(of("fieldpost_agent_link_up", jump(1, 0, now-14))), one(of("fieldpost_agent_link_up", steady(1)))},
	},
	"FieldpostBacklogGrowing": {
		fire: [][]series{one(of("fieldpost_hub_backlog_messages", ramp(10_000, 10)))},
		quiet: [][]series{one(of("fieldpost_hub_backlog_messages", ramp(0, 10))), one(of("fieldpost_hub_backlog_messages", steady(50_000))),
			one(of("fieldpost_hub_backlog_messages", ramp(90_000, -10)))},
	},
	"FieldpostOldMessages": {
		fire:  [][]series{one(of("fieldpost_agent_spool_oldest_age_seconds", ramp(0, 60), "lane", "bulk"))},
		quiet: [][]series{one(of("fieldpost_agent_spool_oldest_age_seconds", steady(3600), "lane", "bulk"))},
	},
	"FieldpostSpoolFilling": {
		fire:  [][]series{one(of("fieldpost_agent_spool_disk_bytes", steady(81)), of("fieldpost_agent_spool_max_bytes", steady(100)))},
		quiet: [][]series{one(of("fieldpost_agent_spool_disk_bytes", steady(80)), of("fieldpost_agent_spool_max_bytes", steady(100)))},
	},
	"FieldpostMessagesDropped": {
		fire:  [][]series{one(of("fieldpost_agent_dropped_total", jump(0, 1, now-1), "reason", "drop_oldest"))},
		quiet: [][]series{one(of("fieldpost_agent_dropped_total", ramp(0, 5), "reason", "ttl")), one(of("fieldpost_agent_dropped_total", jump(0, 1, now-20), "reason", "purge"))},
	},
	"FieldpostQuarantine": {
		fire:  [][]series{one(of("fieldpost_agent_quarantined_segments_total", jump(3, 4, now-30)))},
		quiet: [][]series{one(of("fieldpost_agent_quarantined_segments_total", steady(4)))},
	},
	"FieldpostUnpackLag": {
		fire:  [][]series{one(of("fieldpost_hub_unpack_lag_blocks", steady(10_001), "route", "EDGE"))},
		quiet: [][]series{one(of("fieldpost_hub_unpack_lag_blocks", steady(10_000), "route", "EDGE")), one(of("fieldpost_hub_unpack_lag_blocks", jump(0, 90_000, now-9), "route", "EDGE"))},
	},
	"FieldpostBlocksLost": {
		fire:  [][]series{one(of("fieldpost_hub_unpack_lost_blocks_total", jump(0, 1, now-5), "route", "EDGE"))},
		quiet: [][]series{one(of("fieldpost_hub_unpack_lost_blocks_total", steady(1), "route", "EDGE"))},
	},
	"FieldpostDeadLetters": {
		fire:  [][]series{one(of("fieldpost_hub_dead_total", jump(5, 6, now-5), "reason", "terminated")), one(of("fieldpost_hub_dead_total", jump(9, 1, now-5), "reason", "poison"))},
		quiet: [][]series{one(of("fieldpost_hub_dead_total", ramp(0, 5), "reason", "ttl")), one(of("fieldpost_hub_dead_total", steady(6), "reason", "terminated"))},
	},
	"FieldpostIngestFailing": ratio("fieldpost_hub_ingest_blocks_total", "result", "failed", "stored"),
	"FieldpostRejections": {
		fire:  [][]series{one(of("fieldpost_hub_rejected_total", ramp(0, 11), "reason", "corrupt"), of("fieldpost_hub_ingest_blocks_total", ramp(0, 1000), "result", "stored"))},
		quiet: [][]series{one(of("fieldpost_hub_rejected_total", ramp(0, 500), "reason", "idle"), of("fieldpost_hub_ingest_blocks_total", ramp(0, 1000), "result", "stored"))},
	},
	"FieldpostCommandsFailing": ratio("fieldpost_hub_command_transitions_total", "to", "failed", "acked"),
	"FieldpostCredentialsEnding": {
		fire:  [][]series{one(of("fieldpost_agent_credentials_expiry_timestamp_seconds", steady(now*60+20*86400))), one(of("fieldpost_agent_credentials_expiry_timestamp_seconds", steady(1)))},
		quiet: [][]series{one(of("fieldpost_agent_credentials_expiry_timestamp_seconds", steady(now*60+22*86400))), one(of("fieldpost_agent_credentials_expiry_timestamp_seconds", steady(0)))},
	},
	"FieldpostLedgerNearlyFull": {
		fire: [][]series{one(of("fieldpost_hub_stream_bytes", steady(86), "stream", "BLOCKS"), of("fieldpost_hub_stream_max_bytes", steady(100), "stream", "BLOCKS"))},
		quiet: [][]series{one(of("fieldpost_hub_stream_bytes", steady(99), "stream", "EDGE"), of("fieldpost_hub_stream_max_bytes", steady(100), "stream", "EDGE")),
			one(of("fieldpost_hub_stream_bytes", steady(99), "stream", "BLOCKS"), of("fieldpost_hub_stream_max_bytes", steady(-1), "stream", "BLOCKS"))},
	},
}

// TestAlertsFireOnWhatTheyAreFor: on a recording beyond a rule's threshold it
// fires, and no other rule does; on one below, or too short, none does.
func TestAlertsFireOnWhatTheyAreFor(t *testing.T) {
	rules := alertRules(t)
	firing := func(all []series) (out []string) {
		for _, r := range rules {
			if labels := r.fires(t, all); len(labels) > 0 {
				out = append(out, r.Alert)
			}
		}
		return out
	}
	for _, r := range rules {
		s, ok := scenarios[r.Alert]
		if !ok {
			t.Errorf("%s has no scenario", r.Alert)
		}
		for i, all := range s.fire {
			if got := strings.Join(firing(all), " "); got != r.Alert {
				t.Errorf("%s, recording %d: firing are %q", r.Alert, i, got)
			}
		}
		for i, all := range s.quiet {
			if got := firing(all); len(got) > 0 {
				t.Errorf("%s, quiet recording %d: firing are %q", r.Alert, i, got)
			}
		}
	}
	if len(scenarios) != len(rules) {
		t.Errorf("%d scenarios for %d rules", len(scenarios), len(rules))
	}
}

// TestExpressionsAreReadOrRefused: what the evaluator does not know is an error.
func TestExpressionsAreReadOrRefused(t *testing.T) {
	all := one(of("a", steady(2), "x", "1"), of("a", steady(3), "x", "2"), of("b", steady(4), "x", "1"), of("c", ramp(0, 60)))
	for text, want := range map[string]float64{
		"a{x=\"1\"} + 2 * 3": 8, "(a{x!=\"2\"} + 2) * 3": 12, "b / a": 2, "sum by (instance) (a)": 5, "rate(c[5m])": 1, "increase(c[5m])": 300, "delta(c[5m])": 300,
		"a > 2 and a < 4": 3, "time()": now * 60, "a{x=~\"1|9\"} == 2": 2, "a{x!~\"1|9\"}": 3, "1 - 2 - 3": -4,
	} {
		n, _, err := parseExpr(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := n(all, now); len(got) != 1 || got[0].v != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "a >", "avg(a)", "a[5m]", "rate(a)", "a or b", "sum(a)", "a{x=1}", "a & b", "(a"} {
		if _, _, err := parseExpr(text); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}
