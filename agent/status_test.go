package agent

import (
	"bufio"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/agent/client"
)

// keys lists the keys of JSON, nested ones as a.b.
func keys(v any, prefix string) (out []string) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	for k, v := range m {
		out = append(out, prefix+k)
		out = append(out, keys(v, prefix+k+".")...)
	}
	slices.Sort(out)
	return out
}

func TestStatus(t *testing.T) {
	w := start(t, nil)
	w.do("POST", "/v1/publish/a", "x")
	r := w.do("GET", "/v1/status", "")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	want := strings.Fields(`backlog backlog.bulk backlog.bulk.bytes backlog.bulk.messages backlog.bulk.oldest
		backlog.normal backlog.normal.bytes backlog.normal.messages backlog.normal.oldest
		backlog.urgent backlog.urgent.bytes backlog.urgent.messages backlog.urgent.oldest
		commands commands.bytes commands.leased commands.pending commands.reports
		device disk disk.free disk.max disk.used dropped epoch
		link link.class link.history link.hub link.last_error link.rtt_ms link.since link.up
		quarantine quarantine.messages quarantine.reports quarantine.segments version`)
	if k := keys(got, ""); !reflect.DeepEqual(k, want) {
		t.Errorf("keys %v\nwant %v", k, want)
	}
	for _, part := range []string{`"device":"dev1"`, `"version":"1.2.3"`, `"epoch":"` + w.store.epoch.String(), `"up":false`,
		`wrong_hub`, `"class":"unmetered"`, `"normal":{"messages":1`, `"reports":[]`,
		`"history":[{"at":"2023-11-14T22:14:20Z","up":false,"hub":"nats://h:4222","reason":"cut"},{"at":"2023-11-14T22:13:20Z","up":true,"hub":"nats://h:4222","reason":""}]`} {
		if !strings.Contains(r.body, part) {
			t.Errorf("no %s in %s", part, r.body)
		}
	}
}

func TestPutLinkAndHubReset(t *testing.T) {
	w := start(t, nil)
	if r := w.do("PUT", "/v1/link", `{"class":"metered"}`); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do("GET", "/v1/status", ""); !strings.Contains(r.body, `"class":"metered"`) {
		t.Errorf("%s", r.body)
	}
	if w.up.kicks != 1 {
		t.Errorf("%d kicks", w.up.kicks)
	}
	if r := w.do("POST", "/v1/hub/reset", ""); r.status != 200 || w.up.reset != 1 {
		t.Errorf("%d %s, %d resets", r.status, r.body, w.up.reset)
	}
}

// Every series is there before anything has happened.
func TestMetricsFromTheStart(t *testing.T) {
	w := start(t, nil)
	r := w.do("GET", "/metrics", "")
	for _, name := range strings.Fields(`build_info{ published_total{lane="urgent"} published_total{lane="normal"} published_total{lane="bulk"}
		publish_errors_total{code="spool_full"} publish_errors_total{code="bad_subject"} publish_duration_seconds_bucket{le="1"} publish_duration_seconds_count
		fsync_duration_seconds_bucket{le="+Inf"} fsync_duration_seconds_sum spool_bytes spool_disk_bytes spool_max_bytes
		spool_messages{lane="bulk"} spool_oldest_age_seconds{lane="normal"} dropped_total{reason="ttl"} dropped_total{reason="hub_rewound"}
		quarantined_segments_total link_up link_transitions_total{to="up"} link_transitions_total{to="down"}
		uplink_sent_bytes_total uplink_received_bytes_total uplink_redelivered_blocks_total uplink_rtt_seconds_count
		command_transitions_total{to="acked"} credentials_expiry_timestamp_seconds`) {
		if !regexp.MustCompile(`(?m)^fieldpost_agent_` + regexp.QuoteMeta(name)).MatchString(r.body) {
			t.Errorf("no %s", name)
		}
	}
	w.do("POST", "/v1/publish/a", "x")
	w.do("POST", "/v1/publish/$a", "x")
	w.dial().Publish(background, client.Message{Subject: "a"})
	w.dial().Publish(background, client.Message{Subject: "$a"})
	r = w.do("GET", "/metrics", "")
	for _, line := range []string{`published_total{lane="normal"} 2`, `publish_errors_total{code="bad_subject"} 2`, `spool_messages{lane="normal"} 2`,
		`publish_duration_seconds_count 2`} {
		if !strings.Contains(r.body, "fieldpost_agent_"+line+"\n") {
			t.Errorf("no %s in\n%s", line, r.body)
		}
	}
}

func TestTap(t *testing.T) {
	w := start(t, nil)
	resp, err := w.http.Get("http://agent/v1/tap?filter=a.*")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.do("POST", "/v1/publish/b.x", "no")
	w.do("POST", "/v1/publish/a.x", "<yes>", "Fieldpost-Id", "i", "Fieldpost-Lane", "bulk", "Fieldpost-Headers", `{"k":"v"}`, "Fieldpost-Time", "2024-01-01T00:00:00Z")
	w.do("POST", "/v1/publish/a.x", "<yes>", "Fieldpost-Id", "i") // was accepted before
	w.dial().Publish(background, client.Message{Subject: "a.y", Payload: []byte{0xff}})
	in := bufio.NewReader(resp.Body)
	for _, want := range []string{
		`{"subject":"a.x","payload":"<yes>","lane":"bulk","epoch":"` + w.store.epoch.String() + `","seq":1,"id":"i","time":"2024-01-01T00:00:00Z","headers":{"k":"v"}}`,
		`{"subject":"a.y","payload_b64":"/w==","lane":"normal","epoch":"` + w.store.epoch.String() + `","seq":2,"time":`,
	} {
		if got, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%v\n%s\nwant\n%s", err, got, want)
		}
	}
	w.stop() // ends it
	if rest, _ := in.ReadString('\n'); rest != "" {
		t.Errorf("%q", rest)
	}
}

// A reader that does not read is dropped; publishers never wait for it.
func TestSlowTapIsDropped(t *testing.T) {
	w := start(t, nil)
	resp, err := w.http.Get("http://agent/v1/tap")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	c := w.dial()
	w.eventually("the tap is gone", func() bool {
		for range 20 {
			c.PublishAsync(client.Message{Subject: "a", Payload: make([]byte, 50<<10)})
		}
		if err := c.Flush(background); err != nil {
			t.Fatal(err)
		}
		w.a.taps.mu.Lock()
		defer w.a.taps.mu.Unlock()
		for _, r := range w.a.taps.list {
			r.mu.Lock()
			dropped := r.dropped
			r.mu.Unlock()
			return dropped
		}
		return true
	})
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	last := ""
	for in.Scan() {
		last = in.Text()
	}
	if !strings.Contains(last, `"code":"quota"`) {
		t.Errorf("it was not told: %.200s", last)
	}
}

func TestTooManyTaps(t *testing.T) {
	w := start(t, nil)
	var resps []*http.Response
	for range maxTaps {
		resp, err := w.http.Get("http://agent/v1/tap")
		if err != nil {
			t.Fatal(err)
		}
		resps = append(resps, resp)
	}
	if r := w.do("GET", "/v1/tap", ""); r.status != 429 {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, r := range resps {
		r.Body.Close()
	}
	w.eventually("they are gone", func() bool { return !w.a.taps.any.Load() })
}
