package hub

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// read returns the lines of an answer that ends.
func (r *running) read(query string) (out []admin.Message) {
	r.t.Helper()
	code, body := r.get("/v1/messages?" + query)
	if code != http.StatusOK {
		r.t.Fatalf("%s: %d %s", query, code, body)
	}
	for dec := json.NewDecoder(strings.NewReader(body)); ; {
		var m admin.Message
		if err := dec.Decode(&m); err == io.EOF {
			return out
		} else if err != nil {
			r.t.Fatalf("%s: %v in %q", query, err, body)
		}
		out = append(out, m)
	}
}

func (r *running) postJSON(path string, in any) (int, string) {
	r.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.post(path, "application/json", string(body))
}

func (r *running) settle(in admin.Ack) {
	r.t.Helper()
	if code, body := r.postJSON("/v1/ack", in); code != http.StatusNoContent {
		r.t.Fatalf("%+v: %d %s", in, code, body)
	}
}

func payloads(messages []admin.Message) string {
	var out []string
	for _, m := range messages {
		out = append(out, string(m.Payload))
	}
	return strings.Join(out, " ")
}

// withMessages is a hub whose EDGE holds what a device has sent.
func withMessages(t *testing.T, texts ...string) *running {
	t.Helper()
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block(texts...))
	d.acked()
	edge(t, r.connect(), "press-7", len(texts))
	return r
}

func TestMessagesWithoutGroup(t *testing.T) {
	r := withMessages(t, "one", "two", "three")
	if got := r.read("limit=3"); payloads(got) != "one two three" || got[0].Ack != "" {
		t.Errorf("limit=3: %+v", got)
	}
	if got := r.read("from=2&limit=1"); payloads(got) != "two" {
		t.Errorf("from=2: %+v", got)
	}
	if got := r.read("wait=50ms&filter=edge.other.>"); len(got) != 0 {
		t.Errorf("a filter that nothing matches: %+v", got)
	}
	if got := r.read("wait=1s&from=2"); payloads(got) != "two three" {
		t.Errorf("wait: %+v", got)
	}
}

// TestMessagesAsEvents: a browser goes on where it was cut off.
func TestMessagesAsEvents(t *testing.T) {
	r := withMessages(t, "one", "two", "three")
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Addrs().HTTP+"/v1/messages?limit=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", "1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var ids, data []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
		case "id":
			ids = append(ids, value)
		case "data":
			var m admin.Message
			if err := json.Unmarshal([]byte(value), &m); err != nil {
				t.Fatal(err)
			}
			data = append(data, string(m.Payload))
		}
	}
	if got := resp.Header.Get("Content-Type") + " " + strings.Join(append(ids, data...), " "); got != "text/event-stream 2 3 two three" {
		t.Errorf("got %s", got)
	}
}

func TestMessagesOfGroup(t *testing.T) {
	r := withMessages(t, "one", "two", "three", "four")
	const group = "group=billing&ack_wait=1m"
	got := r.read(group + "&limit=2")
	if payloads(got) != "one two" || got[0].Deliveries != 1 {
		t.Fatalf("first: %+v", got)
	}
	second := r.read(group + "&limit=2")
	if payloads(second) != "three four" {
		t.Fatalf("another client of the group: %+v", second)
	}
	r.settle(admin.Ack{Acks: []string{got[0].Ack, second[1].Ack}})
	r.settle(admin.Ack{Acks: []string{got[0].Ack}}) // once more
	r.settle(admin.Ack{Acks: []string{got[1].Ack}, Action: "progress"})
	r.settle(admin.Ack{Acks: []string{got[1].Ack}, Action: "nak"})
	r.settle(admin.Ack{Acks: []string{second[0].Ack}, Action: "term", Reason: "not a number"})
	again := r.read("group=billing&limit=1")
	if payloads(again) != "two" || again[0].Deliveries != 2 {
		t.Fatalf("after a nak: %+v", again)
	}
	r.settle(admin.Ack{Acks: []string{again[0].Ack}, Action: "nak", Delay: "1h"})
	if got := r.read("group=billing&wait=1s"); len(got) != 0 {
		t.Errorf("what is settled, or waits, comes again: %+v", got)
	}
}

// TestGroupReadsItsRetries: a letter that is retried comes to the group as it was.
func TestGroupReadsItsRetries(t *testing.T) {
	r := withMessages(t, "one")
	got := r.read("group=billing&limit=1")
	r.settle(admin.Ack{Acks: []string{got[0].Ack}, Action: "term", Reason: "not now"})
	eventually(t, "the letter is there", func() bool {
		_, page := r.get("/v1/dead?consumer=billing")
		return strings.Contains(page, `"detail":"not now"`)
	})
	if code, body := r.post("/v1/dead/retry", "application/json", `{"all":true,"consumer":"billing"}`); code != http.StatusOK {
		t.Fatalf("retry: %d %s", code, body)
	}
	again := r.read("group=billing&limit=1")
	if payloads(again) != "one" || again[0].Subject != got[0].Subject || again[0].Seq != got[0].Seq || again[0].Headers["Fieldpost-Retry"] == nil {
		t.Fatalf("the retry: %+v, it was %+v", again, got)
	}
	r.settle(admin.Ack{Acks: []string{again[0].Ack}})
	if got := r.read("group=billing&wait=1s"); len(got) != 0 {
		t.Errorf("what is settled comes again: %+v", got)
	}
}

// TestMessagesComeAgain: without an ack within ack_wait.
func TestMessagesComeAgain(t *testing.T) {
	r := withMessages(t, "one")
	for want := range uint64(2) {
		got := r.read("group=billing&ack_wait=1s&limit=1")
		if payloads(got) != "one" || got[0].Deliveries != want+1 {
			t.Fatalf("got %+v, want delivery %d", got, want+1)
		}
	}
}

// TestLeavingClientGivesBack: what is on its way to a client that leaves goes to
// another of the group long before ack_wait is over.
func TestLeavingClientGivesBack(t *testing.T) {
	const blocks, each = 4, 75 // 64 KiB a message: more than the socket's buffers hold
	r := start(t, testConfig(t.TempDir()))
	d := newDevice(r, "press-7")
	d.open()
	for b := range blocks {
		texts := make([]string, each)
		for i := range texts {
			texts[i] = fmt.Sprint(b, "/", i) + strings.Repeat(".", 64<<10)
		}
		d.send(wire.FrameBlock, d.block(texts...))
		d.acked()
	}
	eventually(t, "all is unpacked", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && st.Routes[0].Lag == 0
	})
	resp, err := http.Get("http://" + r.Addrs().HTTP + "/v1/messages?group=billing&ack_wait=1h")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close() // with some in the socket, and some in the hub's hands
	again := 0
	for range each {
		got := r.read("group=billing&limit=1")
		if got[0].Deliveries > 2 {
			t.Errorf("delivery %d, and one client has left", got[0].Deliveries)
		}
		again += int(got[0].Deliveries) - 1
		r.settle(admin.Ack{Acks: []string{got[0].Ack}})
	}
	if again == 0 {
		t.Error("nothing came again")
	}
}

func TestGroupIsWhatItIs(t *testing.T) {
	r := withMessages(t, "one")
	r.read("group=billing&limit=1&filter=edge.press-7.>")
	for query, want := range map[string]string{
		"group=billing&filter=edge.press-8.>": "group billing has filter [edge.press-7.>], not [edge.press-8.>]",
		"group=billing&ack_wait=5s":           "group billing has ack_wait 30s, not 5s",
		"group=billing&max_deliver=3":         "group billing has max_deliver -1, not 3",
		"group=billing&max_in_flight=3":       "group billing has max_in_flight 1000, not 3",
	} {
		if code, body := r.get("/v1/messages?" + query); code != http.StatusConflict || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query, code, body, want)
		}
	}
	for query, want := range map[string]string{
		"group=a.b":                    "A-Z a-z",
		"group=*":                      "A-Z a-z",
		"group=g&ack_wait=1ms":         "ack_wait",
		"group=g&max_deliver=0":        "max_deliver",
		"group=g&max_in_flight=many":   "max_in_flight",
		"group=g&limit=0":              "limit",
		"limit=-1":                     "limit",
		"wait=soon":                    "wait",
		"group=g&stream=BLOCKS":        "no route",
		"stream=KV_fieldpost_hub":      "no route",
		"filter=fp.blocks.>":           "begin with edge.",
		"from=yesterday":               "from",
		"group=g&filter=dead.>&from=1": "begin with edge.",
	} {
		if code, body := r.get("/v1/messages?" + query); code != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query, code, body, want)
		}
	}
}

func TestHostileAcks(t *testing.T) {
	r := withMessages(t, "one")
	token := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, in := range map[string]admin.Ack{
		"none":               {},
		"too many":           {Acks: make([]string, maxAckAsks+1)},
		"no base64":          {Acks: []string{"%"}},
		"too short":          {Acks: []string{token("EDGE.g.1.1.1.1")}},
		"too long":           {Acks: []string{token("d.a.EDGE.g.1.1.1.1.0.r.x")}},
		"not a number":       {Acks: []string{token("EDGE.g.1.x.1.1.0")}},
		"wildcard":           {Acks: []string{token("EDGE.*.1.1.1.1.0")}},
		"space":              {Acks: []string{token("EDGE.g 1.1.1.1.1.0")}},
		"newline":            {Acks: []string{token("EDGE.g\r\n.1.1.1.1.0")}},
		"an internal stream": {Acks: []string{token("KV_fieldpost_hub.g.1.1.1.1.0")}},
		"action":             {Acks: []string{token("EDGE.g.1.1.1.1.0")}, Action: "+NXT"},
		"delay":              {Acks: []string{token("EDGE.g.1.1.1.1.0")}, Action: "nak", Delay: "-1s"},
		"delay of an ack":    {Acks: []string{token("EDGE.g.1.1.1.1.0")}, Delay: "1s"},
		"long reason":        {Acks: []string{token("EDGE.g.1.1.1.1.0")}, Action: "term", Reason: strings.Repeat("x", 300)},
	} {
		if code, body := r.postJSON("/v1/ack", in); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, body := r.postJSON("/v1/ack", admin.Ack{Acks: []string{token("EDGE.nobody.1.1.1.1.0")}}); code != http.StatusNotFound {
		t.Errorf("a group that does not exist: %d %s", code, body)
	}
	if code, _ := r.postJSON("/v1/ack", map[string]any{"ackz": 1}); code != http.StatusBadRequest {
		t.Errorf("an unknown key: %d", code)
	}
	if code, body := r.post("/v1/ack", "text/plain", `{"acks":["x"]}`); code != http.StatusUnsupportedMediaType {
		t.Errorf("a form of another site: %d %s", code, body)
	}
}

// TestRemovedGroup: the clients of a group that is removed are told.
func TestRemovedGroup(t *testing.T) {
	r := withMessages(t, "one")
	resp, err := http.Get("http://" + r.Addrs().HTTP + "/v1/messages?group=billing")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := r.open.Load().js.DeleteConsumer(t.Context(), "EDGE", "billing"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := lines.ReadString('\n'); ended <- err }()
	select {
	case err := <-ended:
		if err != io.ErrUnexpectedEOF {
			t.Errorf("the answer ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the answer does not end")
	}
}
