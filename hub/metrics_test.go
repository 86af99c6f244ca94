package hub

import (
	"regexp"
	"strings"
	"testing"
)

// Every series exists from the start, and what has happened is counted.
func TestMetrics(t *testing.T) {
	r := start(t, testConfig(t.TempDir()))
	_, page := r.get("/metrics")
	for _, want := range []string{
		`fieldpost_hub_build_info{version="1.2.3",`,
		`fieldpost_hub_devices{state="online"} 0`, `fieldpost_hub_devices{state="offline"} 0`,
		`fieldpost_hub_ingest_blocks_total{result="stored"} 0`, `fieldpost_hub_ingest_blocks_total{result="duplicate"} 0`,
		`fieldpost_hub_ingest_blocks_total{result="void"} 0`, `fieldpost_hub_ingest_messages_total 0`,
		`fieldpost_hub_ack_duration_seconds_bucket{le="0.001"} 0`, `fieldpost_hub_ack_duration_seconds_count 0`,
		`fieldpost_hub_duplicate_blocks_total 0`, `fieldpost_hub_rejected_total{reason="gap"} 0`, `fieldpost_hub_rejected_total{reason="heartbeat_rate"} 0`,
		`fieldpost_hub_unpack_lag_blocks{route="EDGE"} 0`, `fieldpost_hub_unpack_messages_total{route="EDGE"} 0`,
		`fieldpost_hub_dead_total{reason="poison"} 0`, `fieldpost_hub_dead_total{reason="ttl"} 0`, `fieldpost_hub_backlog_messages 0`,
		`fieldpost_hub_stream_bytes{stream="BLOCKS"} 0`, `fieldpost_hub_stream_bytes{stream="EDGE"} 0`, `fieldpost_hub_stream_bytes{stream="DEAD"} 0`,
		`fieldpost_hub_stream_max_bytes{stream="BLOCKS"} 80530636`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	d := newDevice(r, "d1")
	d.open()
	b := d.block("a", "b", "c")
	d.send(1, b)
	d.acked()
	d.send(1, b)
	d.beat(60)
	eventually(t, "it is counted", func() bool {
		_, page = r.get("/metrics")
		for _, want := range []string{
			`ingest_blocks_total{result="stored"} 1`, `ingest_blocks_total{result="duplicate"} 1`, "ingest_messages_total 3", "duplicate_blocks_total 1",
			"ack_duration_seconds_count 1", `unpack_messages_total{route="EDGE"} 3`, `unpack_lag_blocks{route="EDGE"} 0`,
			`devices{state="online"} 1`, "backlog_messages 12",
		} {
			if !strings.Contains(page, want) {
				return false
			}
		}
		return true
	})
	line := regexp.MustCompile(`^fieldpost_hub_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$`)
	for _, l := range strings.Split(strings.TrimSpace(page), "\n") {
		if !strings.HasPrefix(l, "#") && !line.MatchString(l) {
			t.Errorf("not a series: %s", l)
		}
	}
}
