package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/spool"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestPublish(t *testing.T) {
	w := start(t, func(c *Config) { c.Lanes = []LaneRule{{Match: "alarm.>", Lane: wire.Urgent}} })
	type object = map[string]any
	for _, c := range []struct {
		name    string
		path    string
		body    string
		headers []string
		status  int
		want    object
		lane    wire.Lane
		stored  wire.Message
	}{
		{"plain", "sensors.temp", "21.5", nil, 200, object{"lane": "normal", "seq": 1.0}, wire.Normal,
			wire.Message{Subject: "sensors.temp", Payload: []byte("21.5")}},
		{"empty payload", "a", "", nil, 200, object{"lane": "normal", "seq": 2.0}, wire.Normal,
			wire.Message{Subject: "a", Payload: []byte{}}},
		{"escaped subject", url.PathEscape("a.ü/b"), "x", nil, 200, object{"lane": "normal", "seq": 3.0}, wire.Normal,
			wire.Message{Subject: "a.ü/b", Payload: []byte("x")}},
		{"lane by rule", "alarm.fire", "!", nil, 200, object{"lane": "urgent", "seq": 1.0}, wire.Urgent,
			wire.Message{Subject: "alarm.fire", Payload: []byte("!")}},
		{"lane by header", "alarm.test", "?", []string{"Fieldpost-Lane", "bulk"}, 200, object{"lane": "bulk", "seq": 1.0}, wire.Bulk,
			wire.Message{Subject: "alarm.test", Payload: []byte("?")}},
		{"everything", "b", "\x00\xff", []string{
			"fieldpost-id", "id 1", "FIELDPOST-TTL", "1m30.0000001s", "Fieldpost-Time", "2024-02-29T12:00:00.123+01:00",
			"Fieldpost-Headers", `{"Unit":"C", "x":"a\"\u00e9"}`, "Content-Type", "application/octet-stream"}, 200,
			object{"lane": "normal", "seq": 4.0}, wire.Normal,
			wire.Message{Subject: "b", Payload: []byte("\x00\xff"), ID: "id 1", TTL: 90_001, Time: 1709204400123,
				Headers: []wire.Pair{{Key: "Unit", Value: "C"}, {Key: "x", Value: `a"é`}}}},
		{"in memory", "m?ack=memory", "x", nil, 202, object{"lane": "normal", "durable": "memory"}, wire.Normal,
			wire.Message{Subject: "m", Payload: []byte("x")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := time.Now().UnixMilli()
			have := len(w.store.stored(c.lane))
			r := w.do("POST", "/v1/publish/"+c.path, c.body, c.headers...)
			var got object
			if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != c.status {
				t.Fatalf("%d %s", r.status, r.body)
			}
			if e, ok := got["epoch"]; ok != (c.status == 200) || ok && e != w.store.epoch.String() {
				t.Errorf("epoch %v", e)
			}
			delete(got, "epoch")
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("answer %v, want %v", got, c.want)
			}
			w.eventually("stored", func() bool { return len(w.store.stored(c.lane)) == have+1 })
			m := w.store.stored(c.lane)[have]
			if c.stored.Time == 0 {
				if m.Time < before || m.Time > time.Now().UnixMilli() {
					t.Errorf("time %d", m.Time)
				}
				m.Time = 0
			}
			if !reflect.DeepEqual(m, c.stored) {
				t.Errorf("stored %+v, want %+v", m, c.stored)
			}
		})
	}
}

func TestPublishRefused(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload = 100 })
	long := strings.Repeat("s", 256)
	for _, c := range []struct {
		name    string
		request string // method and path
		body    string
		headers []string
		status  int
		code    string
		detail  string // part of it
	}{
		{"empty subject", "POST /v1/publish/", "x", nil, 400, "bad_subject", "empty"},
		{"wildcard star", "POST /v1/publish/a.*", "x", nil, 400, "bad_subject", "wildcard"},
		{"wildcard rest", "POST /v1/publish/a.%3E", "x", nil, 400, "bad_subject", "wildcard"},
		{"wildcard not escaped", "POST /v1/publish/>", "x", nil, 400, "bad_subject", "wildcard"},
		{"256 bytes", "POST /v1/publish/" + long, "x", nil, 400, "bad_subject", "255"},
		{"system", "POST /v1/publish/$SYS.x", "x", nil, 400, "bad_subject", "$"},
		{"system, escaped", "POST /v1/publish/%24SYS.x", "x", nil, 400, "bad_subject", "$"},
		{"empty token", "POST /v1/publish/a..b", "x", nil, 400, "bad_subject", "empty token"},
		{"dots", "POST /v1/publish/..", "x", nil, 400, "bad_subject", "empty token"},
		{"white space", "POST /v1/publish/a%20b", "x", nil, 400, "bad_subject", "white space"},
		{"not UTF-8", "POST /v1/publish/a%ff", "x", nil, 400, "bad_subject", "UTF-8"},
		{"slash", "POST /v1/publish/a/b", "x", nil, 400, "bad_subject", "slash"},
		{"oversize", "POST /v1/publish/a", strings.Repeat("x", 101), nil, 413, "too_large", "socket.max_payload"},
		{"unknown lane", "POST /v1/publish/a", "x", []string{"Fieldpost-Lane", "express"}, 400, "bad_lane", "express"},
		{"negative ttl", "POST /v1/publish/a", "x", []string{"Fieldpost-Ttl", "-5s"}, 400, "bad_ttl", "-5s"},
		{"zero ttl", "POST /v1/publish/a", "x", []string{"Fieldpost-Ttl", "0s"}, 400, "bad_ttl", "0s"},
		{"ttl without unit", "POST /v1/publish/a", "x", []string{"Fieldpost-Ttl", "5"}, 400, "bad_ttl", "5"},
		{"bad time", "POST /v1/publish/a", "x", []string{"Fieldpost-Time", "yesterday"}, 400, "bad_header", "RFC 3339"},
		{"headers no object", "POST /v1/publish/a", "x", []string{"Fieldpost-Headers", `["a"]`}, 400, "bad_header", "object"},
		{"header value no string", "POST /v1/publish/a", "x", []string{"Fieldpost-Headers", `{"a":1}`}, 400, "bad_header", "object of strings"},
		{"header reserved", "POST /v1/publish/a", "x", []string{"Fieldpost-Headers", `{"nAts-Msg-Id":"1"}`}, 400, "bad_header", "reserved"},
		{"header reserved too", "POST /v1/publish/a", "x", []string{"Fieldpost-Headers", `{"FIELDPOST-x":"1"}`}, 400, "bad_header", "reserved"},
		{"headers too large", "POST /v1/publish/a", "x", []string{"Fieldpost-Headers", `{"a":"` + strings.Repeat("y", 4096) + `"}`}, 400, "bad_header", "4096"},
		{"unknown header", "POST /v1/publish/a", "x", []string{"Fieldpost-Prio", "1"}, 400, "bad_header", "Fieldpost-Prio"},
		{"header twice", "POST /v1/publish/a", "x", []string{"Fieldpost-Id", "1", "Fieldpost-Id", "2"}, 400, "bad_header", "2 times"},
		{"long id", "POST /v1/publish/a", "x", []string{"Fieldpost-Id", long}, 400, "bad_header", "256"},
		{"unknown ack", "POST /v1/publish/a?ack=maybe", "x", nil, 400, "bad_request", "maybe"},
		{"bad timeout", "POST /v1/publish/a?timeout=soon", "x", nil, 400, "bad_request", "soon"},
		{"unknown parameter", "POST /v1/publish/a?lane=bulk", "x", nil, 400, "bad_request", "lane"},
		{"wrong method", "GET /v1/publish/a", "", nil, 405, "method_not_allowed", "POST"},
		{"wrong method, lines", "PUT /v1/publish", "", nil, 405, "method_not_allowed", "POST"},
		{"wrong method, status", "POST /v1/status", "", nil, 405, "method_not_allowed", "GET"},
		{"unknown path", "GET /v2/publish", "", nil, 404, "not_found", "/v2/publish"},
		{"root", "GET /", "", nil, 404, "not_found", "/"},
		{"lines with a header", "POST /v1/publish", "{}", []string{"Fieldpost-Lane", "bulk"}, 400, "bad_header", "each line"},
		{"stream with ack", "POST /v1/publish?stream=1&ack=hub", "{}", nil, 400, "bad_request", "ack"},
		{"wait without epoch", "GET /v1/wait?lane=normal&seq=1", "", nil, 400, "bad_request", "epoch"},
		{"wait for lane", "GET /v1/wait?epoch=0123456789abcdef&lane=x&seq=1", "", nil, 400, "bad_lane", "x"},
		{"wait for what never was", "GET /v1/wait?epoch=0123456789abcdef&lane=normal&seq=1", "", nil, 404, "not_found", "never"},
		{"wait for zero", "GET /v1/wait?epoch=0123456789abcdef&lane=normal&seq=0", "", nil, 400, "bad_request", "seq"},
		{"tap", "GET /v1/tap?filter=a..b", "", nil, 400, "bad_subject", "empty token"},
		{"class", "PUT /v1/link", `{"class":"free"}`, nil, 400, "bad_request", "free"},
		{"class no JSON", "PUT /v1/link", `metered`, nil, 400, "bad_request", "metered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			method, path, _ := strings.Cut(c.request, " ")
			r := w.do(method, path, c.body, c.headers...)
			p := r.problem(t)
			if r.status != c.status || p.Code != c.code || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%d %s", r.status, r.body)
			}
			if c.status == 405 && !strings.Contains(r.header.Get("Allow"), c.detail) {
				t.Errorf("Allow: %q", r.header.Get("Allow"))
			}
		})
	}
	w.nothingStored()
}

func TestSpoolErrors(t *testing.T) {
	w := start(t, nil)
	for err, want := range map[error]struct {
		status int
		code   string
	}{
		spool.ErrFull:      {507, "spool_full"},
		spool.ErrDiskFull:  {507, "disk_full"},
		spool.ErrDiskFault: {503, "disk_fault"},
	} {
		t.Run(want.code, func(t *testing.T) {
			err := fmt.Errorf("wrapped: %w", err)
			w.store.set(func() { w.store.fail, w.store.err = err, err })
			for _, path := range []string{"/v1/publish/a", "/v1/publish/a?ack=memory", "/v1/publish"} {
				r := w.do("POST", path, `{"subject":"a","payload":""}`)
				if r.status != want.status || r.problem(t).Code != want.code {
					t.Errorf("%s: %d %s", path, r.status, r.body)
				}
				if want.status == 503 && r.header.Get("Retry-After") == "" {
					t.Errorf("%s: no Retry-After", path)
				}
			}
			if r := w.do("GET", "/readyz", ""); r.status != 503 && r.status != 507 || r.problem(t).Code != want.code {
				t.Errorf("readyz: %d %s", r.status, r.body)
			}
			if r := w.do("GET", "/v1/status", ""); r.status != 200 {
				t.Errorf("status: %d", r.status)
			}
			if r := w.do("GET", "/healthz", ""); r.status != 200 {
				t.Errorf("healthz: %d", r.status)
			}
		})
	}
	w.store.set(func() { w.store.fail, w.store.err = nil, nil })
	if r := w.do("POST", "/v1/publish/a", "x"); r.status != 200 {
		t.Errorf("when it works again: %d %s", r.status, r.body)
	}
}

func TestDuplicate(t *testing.T) {
	w := start(t, nil)
	first := w.do("POST", "/v1/publish/a", "x", "Fieldpost-Id", "one")
	w.do("POST", "/v1/publish/a", "between")
	again := w.do("POST", "/v1/publish/a", "x", "Fieldpost-Id", "one")
	if first.status != 200 || again.status != 200 || first.body != again.body {
		t.Errorf("first %s, again %s", first.body, again.body)
	}
	if first.header.Get("Fieldpost-Duplicate") != "" || again.header.Get("Fieldpost-Duplicate") != "true" {
		t.Error("the duplicate is not told apart")
	}
	if n := len(w.store.stored(wire.Normal)); n != 2 {
		t.Errorf("%d stored", n)
	}
}

func TestAckHub(t *testing.T) {
	w := start(t, nil)
	r := w.do("POST", "/v1/publish/a?ack=hub&timeout=1ms", "x")
	if r.status != 202 || !strings.Contains(r.body, `"seq":1`) || !strings.Contains(r.body, `"durable":"disk"`) {
		t.Errorf("not delivered: %d %s", r.status, r.body)
	}
	waitURL := fmt.Sprintf("/v1/wait?epoch=%s&lane=normal&seq=2&timeout=", w.store.epoch)
	answer := make(chan reply)
	go func() { answer <- w.do("POST", "/v1/publish/a?ack=hub", "y") }()
	w.eventually("stored", func() bool { return len(w.store.stored(wire.Normal)) == 2 })
	if r := w.do("GET", waitURL+"0s", ""); r.status != 202 || !strings.Contains(r.body, `"pending"`) {
		t.Errorf("wait: %d %s", r.status, r.body)
	}
	w.store.deliver(wire.Normal, 2)
	if r := <-answer; r.status != 200 || !strings.Contains(r.body, `"seq":2`) {
		t.Errorf("delivered: %d %s", r.status, r.body)
	}
	if r := w.do("GET", waitURL+"30s", ""); r.status != 200 {
		t.Errorf("wait: %d %s", r.status, r.body)
	}
	// The stop of the agent ends a wait; what is on disk is told so.
	go func() { answer <- w.do("POST", "/v1/publish/a?ack=hub&timeout=1h", "z") }()
	w.eventually("stored", func() bool { return len(w.store.stored(wire.Normal)) == 3 })
	w.stop()
	if r := <-answer; r.status != 202 || !strings.Contains(r.body, `"durable":"disk"`) {
		t.Errorf("stopping: %d %s", r.status, r.body)
	}
}

// A duplicate in a batch is at the hub when its first copy is, whatever the lane.
func TestAckHubWaitsForFirstCopies(t *testing.T) {
	w := start(t, nil)
	if r := w.do("POST", "/v1/publish", `{"subject":"a","payload":"1","id":"first","lane":"bulk"}`); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	batch := `{"subject":"a","payload":"2","id":"new","lane":"urgent"}` + "\n" + `{"subject":"a","payload":"1","id":"first","lane":"urgent"}`
	answer := make(chan reply)
	go func() { answer <- w.do("POST", "/v1/publish?ack=hub&timeout=300ms", batch) }()
	w.eventually("stored", func() bool { return len(w.store.stored(wire.Urgent)) == 1 })
	w.store.deliver(wire.Urgent, 1)
	if r := <-answer; r.status != 202 || !strings.Contains(r.body, `"durable":"disk"`) {
		t.Errorf("the first copy is not delivered: %d %s", r.status, r.body)
	}
	w.store.deliver(wire.Bulk, 1)
	if r := w.do("POST", "/v1/publish?ack=hub", batch); r.status != 200 || !strings.Contains(r.body, `"durable":"hub"`) {
		t.Errorf("both first copies are delivered: %d %s", r.status, r.body)
	}
}

// Half a request, and one that does not come on, are answered.
func TestSlowAndBrokenRequests(t *testing.T) {
	const soon = 50 * time.Millisecond
	w := start(t, func(c *Config) { c.HeaderTimeout, c.BodyTimeout = soon, soon })
	const head = "POST /v1/publish/a HTTP/1.1\r\nHost: a\r\n"
	for _, c := range []struct {
		name   string
		text   string
		close  bool // the program closes its side
		status int
		code   string
	}{
		{"nothing", "", false, 408, "timeout"},
		{"a byte", "P", false, 408, "timeout"},
		{"half a preface", "FPF", false, 408, "timeout"},
		{"half a line", "POST /v1/pub", false, 408, "timeout"},
		{"half a head", head + "Content-Le", false, 408, "timeout"},
		{"half a body", head + "Content-Length: 10\r\n\r\nabc", false, 408, "timeout"},
		{"half a chunk", head + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", false, 408, "timeout"},
		{"half a stream", "POST /v1/publish?stream=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{\"sub", false, 408, "timeout"},
		{"refused, body missing", "POST /v1/publish/$a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", false, 400, "bad_subject"},
		{"half a preface, closed", "FPF", true, 400, "bad_request"},
		{"half a line, closed", "POST /v1/pub", true, 400, "bad_request"},
		{"half a head, closed", head + "Content-Le", true, 400, "bad_request"},
		{"half a body, closed", head + "Content-Length: 10\r\n\r\nabc", true, 400, "bad_request"},
		{"no HTTP", "hello\r\n\r\n", false, 400, "bad_request"},
		{"another version", "GET / HTTP/7.0\r\n\r\n", false, 400, "bad_request"},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", false, 400, "bad_request"},
		{"bad escape", "POST /v1/publish/%zz HTTP/1.1\r\nHost: a\r\n\r\n", false, 400, "bad_request"},
		{"bad length", head + "Content-Length: -1\r\n\r\n", false, 400, "bad_request"},
		{"huge head", head + "X: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", false, 413, "too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.raw(c.text, c.close)
			if p := r.problem(t); r.status != c.status || p.Code != c.code {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	w.nothingStored()
	w.eventually("no memory is held", func() bool { w.a.bodies.mu.Lock(); defer w.a.bodies.mu.Unlock(); return w.a.bodies.used == 0 })
}

// A connection that was idle between two requests is closed without a word, and
// one whose second request is broken is answered.
func TestSecondRequest(t *testing.T) {
	w := start(t, func(c *Config) { c.HeaderTimeout = 50 * time.Millisecond })
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	buf := make([]byte, 4096)
	n, err := c.Read(buf)
	if err != nil || !strings.Contains(string(buf[:n]), "200 OK") {
		t.Fatalf("%q %v", buf[:n], err)
	}
	io.WriteString(c, "GET /healthz HTTP/1.1\r\nHo")
	rest, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(rest), "HTTP/1.1 408 ") {
		t.Errorf("%q", rest)
	}
}

// Bodies together take no more memory than max_inflight; what is refused for it
// says so, and what is in works on.
func TestInflightIsBounded(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload, c.Socket.MaxInflight = 64<<10, 256<<10 })
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	type result struct {
		i    int
		text string
	}
	answers := make(chan result, 8)
	for i := range 8 {
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		c.SetDeadline(time.Now().Add(20 * time.Second))
		body := bytes.Repeat([]byte("x"), 60<<10)
		fmt.Fprintf(c, "POST /v1/publish/a HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body))
		c.Write(body[:len(body)-1]) // fails where it is refused already
		go func() {
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			answers <- result{i, string(buf[:n])}
		}()
	}
	for range 4 {
		r := <-answers
		if !strings.HasPrefix(r.text, "HTTP/1.1 429 ") || !strings.Contains(r.text, "Retry-After") || !strings.Contains(r.text, "max_inflight") {
			t.Errorf("%q", r.text)
		}
		held[r.i].Close()
	}
	for _, c := range held {
		io.WriteString(c, "x") // fails on those refused
	}
	for range 4 {
		if r := <-answers; !strings.HasPrefix(r.text, "HTTP/1.1 200 ") {
			t.Errorf("%q", r.text)
		}
	}
	w.eventually("no memory is held", func() bool { w.a.bodies.mu.Lock(); defer w.a.bodies.mu.Unlock(); return w.a.bodies.used == 0 })
}

func TestOversizeWithoutLength(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload = 1000 })
	for _, n := range []int{1000, 1001, 3 << 20} {
		req, _ := http.NewRequest("POST", "http://agent/v1/publish/a", io.MultiReader(bytes.NewReader(make([]byte, n))))
		resp, err := w.http.Do(req)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		resp.Body.Close()
		if want := map[bool]int{true: 200, false: 413}[n <= 1000]; resp.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", n, resp.StatusCode, want)
		}
	}
}

func TestTooManyConnections(t *testing.T) {
	w := start(t, nil)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range maxConns {
		c, err := net.Dial("unix", w.path)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	if r := w.raw("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", false); r.status != 429 || r.problem(t).Code != "quota" {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, c := range conns[:10] {
		c.Close()
	}
	w.eventually("room again", func() bool {
		return w.raw("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false).status == 200
	})
}

func TestConcurrentPublishers(t *testing.T) {
	w := start(t, nil)
	const publishers, each = 16, 50
	var wg sync.WaitGroup
	seqs := make(chan float64, publishers*each)
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				r := w.do("POST", "/v1/publish/a", fmt.Sprintf("%d/%d", p, i))
				var out map[string]any
				if json.Unmarshal([]byte(r.body), &out) != nil || r.status != 200 {
					t.Errorf("%d %s", r.status, r.body)
					return
				}
				seqs <- out["seq"].(float64)
			}
		})
	}
	wg.Wait()
	close(seqs)
	seen := map[float64]bool{}
	for s := range seqs {
		seen[s] = true
	}
	if len(seen) != publishers*each || len(w.store.stored(wire.Normal)) != publishers*each {
		t.Errorf("%d sequences, %d stored", len(seen), len(w.store.stored(wire.Normal)))
	}
}
