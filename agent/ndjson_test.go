package agent

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestLines(t *testing.T) {
	w := start(t, nil)
	body := strings.Join([]string{
		`{"subject":"a","payload":"text \"q\" \u00e9\ud83d\ude00\n"}`,
		``,
		` { "payload_b64" : "AP8=" , "subject" : "b" , "id" : "1" } ` + "\r",
		`{"json":{ "x" : [1, 2.50, "a b", null] , "x": 1e400},"subject":"c","ttl":"1h","headers":{"k":"v"}}`,
		`{"subject":"d","json":" s\u0041 ","time":"2024-01-01T00:00:00Z"}`,
		`{"subject":"d","payload":""}`,
	}, "\n")
	r := w.do("POST", "/v1/publish", body)
	want := fmt.Sprintf(`{"epoch":"%s","lane":"normal","accepted":5,"duplicates":0,"first_seq":1,"last_seq":5}`+"\n", w.store.epoch)
	if r.status != 200 || r.body != want {
		t.Errorf("%d %s, want %s", r.status, r.body, want)
	}
	got := w.store.stored(wire.Normal)
	for i := range got {
		if i != 3 {
			got[i].Time = 0
		}
	}
	if want := []wire.Message{
		{Subject: "a", Payload: []byte("text \"q\" é😀\n")},
		{Subject: "b", Payload: []byte("\x00\xff"), ID: "1"},
		{Subject: "c", Payload: []byte(`{"x":[1,2.50,"a b",null],"x":1e400}`), TTL: 3_600_000, Headers: []wire.Pair{{Key: "k", Value: "v"}}},
		{Subject: "d", Payload: []byte(`" s\u0041 "`), Time: 1704067200000},
		{Subject: "d", Payload: []byte{}},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v\nwant   %+v", got, want)
	}
	// The same again: one is a duplicate.
	r = w.do("POST", "/v1/publish", body)
	want = fmt.Sprintf(`{"epoch":"%s","lane":"normal","accepted":4,"duplicates":1,"first_seq":6,"last_seq":9}`+"\n", w.store.epoch)
	if r.status != 200 || r.body != want {
		t.Errorf("%d %s, want %s", r.status, r.body, want)
	}
	if r := w.do("POST", "/v1/publish?ack=memory", body); r.status != 202 || !strings.Contains(r.body, `"durable":"memory"`) {
		t.Errorf("memory: %d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/publish?ack=hub&timeout=0s", body); r.status != 202 || !strings.Contains(r.body, `"durable":"disk"`) {
		t.Errorf("hub: %d %s", r.status, r.body)
	}
}

const good = `{"subject":"a","payload":"x"}`

// badLines are refused whole, with the line that is at fault.
var badLines = []struct {
	name string
	line string // the seventh
	code string
	part string // of the detail
}{
	{"no JSON", `hello`, "bad_line", "'h'"},
	{"half an object", `{"subject":"a"`, "bad_line", "too early"},
	{"half a string", `{"subject":"a","payload":"x`, "bad_line", "too early"},
	{"two objects", good + good, "bad_line", "after the end"},
	{"a list", `[` + good + `]`, "bad_line", "'['"},
	{"trailing comma", `{"subject":"a","payload":"x",}`, "bad_line", "'}'"},
	{"unknown key", `{"subject":"a","payload":"x","prio":"1"}`, "bad_line", "prio"},
	{"key in another case", `{"Subject":"a","payload":"x"}`, "bad_line", "Subject"},
	{"key twice", `{"subject":"a","subject":"b","payload":"x"}`, "bad_line", "twice"},
	{"no payload", `{"subject":"a"}`, "bad_line", "exactly one"},
	{"two payloads", `{"subject":"a","payload":"x","json":1}`, "bad_line", "exactly one"},
	{"bad base64", `{"subject":"a","payload_b64":"!!"}`, "bad_line", "base64"},
	{"base64 without padding", `{"subject":"a","payload_b64":"AA"}`, "bad_line", "base64"},
	{"base64 with loose bits", `{"subject":"a","payload_b64":"AB=="}`, "bad_line", "base64"},
	{"bad json", `{"subject":"a","json":{"x":01}}`, "bad_line", "json"},
	{"no json", `{"subject":"a","json":}`, "bad_line", "json"},
	{"payload no string", `{"subject":"a","payload":1}`, "bad_line", "'1'"},
	{"half a pair", `{"subject":"a","payload":"\ud800"}`, "bad_line", "surrogate"},
	{"the wrong pair", `{"subject":"a","payload":"\ud800\u0041"}`, "bad_line", "surrogate"},
	{"not UTF-8", "{\"subject\":\"a\",\"payload\":\"\xff\"}", "bad_line", "UTF-8"},
	{"raw control character", "{\"subject\":\"a\",\"payload\":\"\x01\"}", "bad_line", "control"},
	{"bad escape", `{"subject":"a","payload":"\x"}`, "bad_line", "escape"},
	{"no subject", `{"payload":"x"}`, "bad_subject", "no subject"},
	{"empty subject", `{"subject":"","payload":"x"}`, "bad_subject", "empty"},
	{"wildcard", `{"subject":"a.>","payload":"x"}`, "bad_subject", "wildcard"},
	{"256 bytes", `{"subject":"` + strings.Repeat("s", 256) + `","payload":"x"}`, "bad_subject", "255"},
	{"system", `{"subject":"$SYS.x","payload":"x"}`, "bad_subject", "$"},
	{"unknown lane", `{"subject":"a","payload":"x","lane":"express"}`, "bad_lane", "express"},
	{"another lane", `{"subject":"a","payload":"x","lane":"bulk"}`, "mixed_lanes", "bulk"},
	{"negative ttl", `{"subject":"a","payload":"x","ttl":"-1s"}`, "bad_ttl", "-1s"},
	{"bad time", `{"subject":"a","payload":"x","time":"now"}`, "bad_header", "now"},
	{"bad headers", `{"subject":"a","payload":"x","headers":{"a":1}}`, "bad_header", "strings"},
	{"reserved header", `{"subject":"a","payload":"x","headers":{"Nats-X":"1"}}`, "bad_header", "reserved"},
	{"empty id", `{"subject":"a","payload":"x","id":""}`, "bad_header", "id"},
	{"oversize", `{"subject":"a","payload":"` + strings.Repeat("x", 1001) + `"}`, "too_large", "max_payload"},
}

func TestBadLines(t *testing.T) {
	w := start(t, func(c *Config) { c.Socket.MaxPayload = 1000 })
	for _, c := range badLines {
		t.Run(c.name, func(t *testing.T) {
			r := w.do("POST", "/v1/publish", strings.Repeat(good+"\n", 6)+c.line+"\n"+good+"\n")
			p := r.problem(t)
			if p.Status != kinds[c.code].status || p.Code != c.code || p.Line != 7 || !strings.HasPrefix(p.Detail, "line 7: ") || !strings.Contains(p.Detail, c.part) {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
	}
	if r := w.do("POST", "/v1/publish", "\n\n"); r.status != 400 || r.problem(t).Code != "bad_line" {
		t.Errorf("nothing: %d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/publish", strings.Repeat(good+"\n", maxAtomicBody/len(good))); r.status != 413 || r.problem(t).Code != "too_large" {
		t.Errorf("over 4 MiB: %d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/publish", strings.Repeat(`{"subject":"a","json":1}`+"\n", wire.MaxCount+1)); r.status != 413 || r.problem(t).Line != wire.MaxCount+1 {
		t.Errorf("too many: %d %s", r.status, r.body)
	}
	w.nothingStored()
	if w.a.lines.used != 0 || w.a.bodies.used != 0 {
		t.Errorf("held: %d lines, %d bytes", w.a.lines.used, w.a.bodies.used)
	}
}

// Of a stream, everything before a bad line is stored and has a receipt.
func TestStreamOfLines(t *testing.T) {
	w := start(t, nil)
	const before = 5000
	body := strings.Repeat(good+"\n", before) + "nonsense\n" + good + "\n"
	r := w.do("POST", "/v1/publish?stream=1", body)
	lines := strings.Split(strings.TrimSpace(r.body), "\n")
	accepted, upTo := 0, 0
	for _, l := range lines[:len(lines)-1] {
		var b batchJSON
		if err := json.Unmarshal([]byte(l), &b); err != nil || b.Line <= upTo || b.FirstSeq != uint64(accepted+1) {
			t.Fatalf("%s: %v", l, err)
		}
		accepted += b.Accepted
		upTo = b.Line
	}
	var end struct {
		Problem problemJSON
		Code    string
		Line    int
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || end.Code != "bad_line" || end.Line != before+1 || end.Problem.Status != 400 {
		t.Errorf("end: %s", lines[len(lines)-1])
	}
	if accepted != before || upTo != before || len(w.store.stored(wire.Normal)) != before || r.status != 200 || len(lines) < 3 {
		t.Errorf("%d accepted up to line %d, %d stored, status %d, %d lines", accepted, upTo, len(w.store.stored(wire.Normal)), r.status, len(lines))
	}
	if r := w.do("POST", "/v1/publish?stream=1", "nonsense"); r.status != 400 || r.problem(t).Line != 1 {
		t.Errorf("bad at once: %d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/publish?stream=1", ""); r.status != 400 || r.problem(t).Code != "bad_line" {
		t.Errorf("empty: %d %s", r.status, r.body)
	}
	mixed := good + "\n" + `{"subject":"a","payload":"x","lane":"bulk"}` + "\n" + good // without a line end
	if r := w.do("POST", "/v1/publish?stream=1", mixed); r.status != 200 || strings.Count(r.body, "\n") != 3 || strings.Count(r.body, "bulk") != 1 {
		t.Errorf("mixed lanes: %d %s", r.status, r.body)
	}
	long := `{"subject":"a","payload":"` + strings.Repeat("x", 500<<10) + `"}`
	if r := w.do("POST", "/v1/publish?stream=1", good+"\n"+long+"\n"+good); r.status != 200 || !strings.Contains(r.body, `"line":3`) {
		t.Errorf("a long line: %d %s", r.status, r.body)
	}
	if r := w.do("POST", "/v1/publish?stream=1", good+"\n"+strings.Repeat("x", 4<<20)); !strings.Contains(r.body, `"too_large"`) || !strings.Contains(r.body, `"line":2`) {
		t.Errorf("an endless line: %d %s", r.status, r.body)
	}
	w.eventually("no memory is held", func() bool { w.a.bodies.mu.Lock(); defer w.a.bodies.mu.Unlock(); return w.a.bodies.used == 0 })
}

// A program that writes a line now and then has its receipts at once.
func TestLiveStream(t *testing.T) {
	w := start(t, nil)
	c, err := net.Dial("unix", w.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "POST /v1/publish?stream=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	in := bufio.NewReader(c)
	for i := range 3 {
		fmt.Fprintf(c, "%x\r\n%s\n\r\n", len(good)+1, good)
		want := fmt.Sprintf(`"line":%d}`, i+1)
		for {
			l, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(l, want) {
				break
			}
		}
	}
	io.WriteString(c, "0\r\n\r\n")
	if rest, err := io.ReadAll(io.LimitReader(in, int64(len("\r\n0\r\n\r\n")))); err != nil || !strings.HasSuffix(string(rest), "0\r\n\r\n") {
		t.Errorf("%q %v", rest, err)
	}
}

// FuzzLine compares with encoding/json: what is accepted means the same there.
func FuzzLine(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"subject":"c","json":{ "x" : [1,2,"a\"b"]},"ttl":"1h","headers":{"k":"v\u00e9"},"time":"2024-01-01T00:00:00Z","lane":"bulk","id":"i"}`))
	f.Add([]byte(`{"payload_b64":"AP8=","subject":"\u0061.\ud83d\ude00"}`))
	for _, c := range badLines {
		f.Add([]byte(c.line))
	}
	a, err := New(Config{Device: "d"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		given := bytes.Clone(line)
		lp := lineParser{a: a}
		m, lane, p := lp.parse(line)
		if p != nil {
			if _, ok := kinds[p.code]; !ok || p.detail == "" || !utf8.ValidString(p.detail) {
				t.Fatalf("%q: %+v", given, p)
			}
			return
		}
		var want struct {
			Subject string
			Payload *string
			B64     *string `json:"payload_b64"`
			JSON    json.RawMessage
			ID      string
			Lane    *wire.Lane
			TTL     string
			Time    string
			Headers map[string]string
		}
		if err := json.Unmarshal(given, &want); err != nil {
			t.Fatalf("%q was accepted: %v", given, err)
		}
		var payload []byte
		switch {
		case want.Payload != nil:
			payload = []byte(*want.Payload)
		case want.B64 != nil:
			payload, _ = base64.StdEncoding.DecodeString(*want.B64)
		default:
			var b bytes.Buffer
			json.Compact(&b, want.JSON)
			payload = b.Bytes()
		}
		if m.Subject != want.Subject || !bytes.Equal(m.Payload, payload) || m.ID != want.ID {
			t.Fatalf("%q: %+v, want %+v", given, m, want)
		}
		if want.Lane != nil && *want.Lane != lane {
			t.Fatalf("%q: lane %v", given, lane)
		}
		for _, h := range m.Headers {
			if _, ok := want.Headers[h.Key]; !ok {
				t.Fatalf("%q: header %q", given, h.Key)
			}
		}
	})
}
