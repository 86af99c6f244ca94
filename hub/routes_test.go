package hub

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

var noUnpack = new(bool)

func small(match, stream string) Route {
	return Route{Match: match, Stream: stream, MaxBytes: Size{Bytes: 8 << 20}}
}

func TestRoutesAreChecked(t *testing.T) {
	for _, tt := range []struct {
		routes []Route
		want   string // keys
		text   string
	}{
		{[]Route{small("a.>", "A"), {Match: "a.b.>", Unpack: noUnpack}, small(">", "B")}, "routes[1].match",
			"a.b.> never gets a message, because routes[0] (match a.>) takes all of them first; move this route before routes[0], or remove it"},
		{[]Route{small(">", "A"), small("x", "B")}, "routes[1].match", "routes[0] (match >)"},
		{[]Route{small("*", "A"), small("*.>", "B"), small(">", "C")}, "routes[2].match", "routes[0] (match *) and routes[1] (match *.>) together take all of them"},
		{[]Route{small("a.*", "A"), small("a.>", "B"), small(">", "C")}, "", ""},
		{[]Route{small("a..b", "A"), small(">", "B")}, "routes[0].match", "filter"},
		{[]Route{{Match: "a.>", Unpack: noUnpack}, {Match: "b.>", Unpack: noUnpack}, {}}, "", ""},
		{[]Route{{Match: "a.>", Stream: "EDGE", Unpack: noUnpack, MaxBytes: Size{Percent: 50}, Discard: "old", Compression: "s2"}, {}}, "", ""},
		{[]Route{{Unpack: noUnpack}}, "", ""},
		{[]Route{{Unpack: noUnpack, Stream: "a.b"}}, "routes[0].stream", ""},
		{[]Route{{Unpack: noUnpack, MaxAge: 1, MaxBytes: Size{Bytes: -1}}}, "routes[0].max_age routes[0].max_bytes", ""},
		{make([]Route, maxRoutes+1), "nats.max_store routes routes[1].prefix routes[1].stream", "join some"},
	} {
		c := Config{Routes: tt.routes}
		err := c.Validate()
		got := keys(t, err)
		if len(tt.routes) > maxRoutes { // the rest of the list repeats itself
			got = got[:0]
			for _, k := range keys(t, err) {
				if k == "routes" || k == "nats.max_store" || strings.HasPrefix(k, "routes[1].") {
					got = append(got, k)
				}
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%+v: keys %q, want %q (%v)", tt.routes, s, tt.want, err)
		}
		if err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%v lacks %q", err, tt.text)
		}
	}
}

func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		routes []Route
		want   []string // parts of the notes, in order
	}{
		{nil, nil},
		{[]Route{small("a.>", "A")}, []string{"no route matches >"}},
		{[]Route{small("*", "A"), small("*.>", "B")}, nil},
		{[]Route{{Match: "a.>", Unpack: noUnpack, MaxAge: time.Hour}, {}}, nil},
		{[]Route{{Match: "a.>", Unpack: noUnpack}, {}}, []string{"routes[0] (match a.>) is packed: the whole ledger stays for its max_age of 168h"}},
		{[]Route{{Match: "a.>", Unpack: noUnpack, MaxAge: time.Hour, Prefix: "x", Discard: "new"}, {}}, []string{"prefix, discard of it is not used"}},
		{[]Route{{Match: "a.>", Unpack: noUnpack, MaxAge: time.Hour, MaxBytes: Size{Percent: 3}, Compression: "s2"}}, []string{"max_bytes, compression of it is not used", "no route matches >"}},
	} {
		got := Config{Routes: tt.routes}.Notes()
		if len(got) != len(tt.want) {
			t.Errorf("%+v: %q, want %q", tt.routes, got, tt.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], tt.want[i]) {
				t.Errorf("%q lacks %q", got[i], tt.want[i])
			}
		}
	}
}

// of makes the next messages of the device all have a subject.
func (d *fakeDevice) of(subject string, payloads ...string) []byte {
	d.t.Helper()
	b := d.messages(payloads...)
	for i := range b.Messages {
		b.Messages[i].Subject = subject
	}
	data, err := wire.NewEncoder(wire.Fast).Append(nil, b)
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

// A packed route has no stream, and what it takes reaches no other one. It is
// shown as what it is.
func TestPackedRoute(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Routes = []Route{{Match: "logs.>", Stream: "LOGS", Unpack: noUnpack, MaxAge: 48 * time.Hour}, {}}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.of("logs.app", "packed 1", "packed 2"))
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	nc := r.connect()
	if got := edge(t, nc, "press-7", 1); !slices.Equal(got, []string{"one"}) {
		t.Errorf("EDGE holds %q", got)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for name := range js.StreamNames() {
		if name == "LOGS" {
			t.Error("a packed route has a stream")
		}
	}
	m, err := js.GetMsg("BLOCKS", 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := wire.NewDecoder().Decode(m.Data, true)
	if err != nil || len(b.Messages) != 2 || string(b.Messages[1].Payload) != "packed 2" {
		t.Errorf("the ledger holds %+v, %v", b, err)
	}
	st, err := r.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(st.Routes) != 2 || !st.Routes[0].Packed || st.Routes[0].Lag != 0 || st.Routes[1].Packed || len(st.Streams) != 6 || !st.Ready {
		t.Errorf("status: %+v", st)
	}
	_, page := r.get("/metrics")
	if strings.Contains(page, "LOGS") || !strings.Contains(page, `fieldpost_hub_unpack_lag_blocks{route="EDGE"}`) {
		t.Errorf("metrics:\n%s", page)
	}
	for _, query := range []string{"?stream=LOGS", "?filter=logs.>"} {
		if code, body := r.get("/v1/tail" + query); code != 400 {
			t.Errorf("tail %s: %d %s", query, code, body)
		}
	}
	if _, body := r.get("/v1/tail?stream=LOGS"); !strings.Contains(body, "packed in BLOCKS") {
		t.Errorf("tail: %s", body)
	}
}

// With packed routes only, nothing is unpacked, and nothing waits for it.
func TestOnlyPackedRoutes(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Routes = []Route{{Unpack: noUnpack}}
	r := start(t, cfg)
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.block("one"))
	d.acked()
	if code, body := r.get("/readyz"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := r.get("/v1/tail"); code != 400 || !strings.Contains(body, "packed in BLOCKS") {
		t.Errorf("tail: %d %s", code, body)
	}
	eventually(t, "the ledger has it", func() bool {
		st, err := r.admin().Status(t.Context())
		return err == nil && st.Ledger.Seq == 1 && len(st.Streams) == 5
	})
}

// A ledger that a packed route keeps full takes nothing more, says why, and
// devices keep what they have.
func TestLedgerFullOfPackedMessages(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Blocks.MaxBytes = Size{Bytes: 4 << 20}
	cfg.Routes = []Route{{Match: "logs.>", Unpack: noUnpack}, {}}
	r := start(t, cfg)
	nc := r.inside()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{256 << 10, 16 << 10, 1 << 10, 1} { // to the last byte, so that no block fits
		for err == nil {
			_, err = js.Publish("fp.blocks.d.00000000000000ff.normal", make([]byte, size))
		}
		err = nil
	}
	eventually(t, "readyz names the route", func() bool {
		code, body := r.get("/readyz")
		return code == 503 && strings.Contains(body, "stream BLOCKS is full") && strings.Contains(body, "routes[0] (match logs.>) is packed and keeps every block for 168h")
	})
	d := newDevice(r, "press-7")
	d.open()
	d.send(wire.FrameBlock, d.of("logs.app", "waits"))
	eventually(t, "the block is refused", func() bool {
		_, page := r.get("/metrics")
		return !strings.Contains(page, `fieldpost_hub_ingest_blocks_total{result="failed"} 0`)
	})
	if err := js.PurgeStream("BLOCKS"); err != nil {
		t.Fatal(err)
	}
	again := newDeviceAt(t, r.connect(), "press-7")
	again.flow, again.token, again.process = d.flow, d.token, "p1"
	eventually(t, "a device can come", func() bool { code, _ := r.get("/readyz"); return code == 200 })
	again.open()
	again.send(wire.FrameBlock, again.of("logs.app", "waits"))
	again.acked()
}

// A reader who names no stream gets the one that the filter is about, and a route
// that is put before the others changes nothing for those without one.
func TestStreamOfAReader(t *testing.T) {
	no := false
	special, rest := Route{Match: "alarm.>", Stream: "ALARMS"}, Route{Match: ">", Stream: "EDGE"}
	for name, c := range map[string]struct {
		routes                 []Route
		stream, filter, expect string
	}{
		"one route":              {[]Route{rest}, "", "", "EDGE"},
		"a route before it":      {[]Route{special, rest}, "", "", "EDGE"},
		"a filter":               {[]Route{special, rest}, "", "alarms.*.alarm.>", "ALARMS"},
		"a filter of the rest":   {[]Route{special, rest}, "", "edge.>", "EDGE"},
		"a filter of both":       {[]Route{special, rest}, "", "*.press-7.>", "EDGE"},
		"everything":             {[]Route{special, rest}, "", ">", "EDGE"},
		"a filter of none":       {[]Route{special, rest}, "", "other.>", "EDGE"},
		"named":                  {[]Route{special, rest}, "ALARMS", "edge.>", "ALARMS"},
		"nothing takes the rest": {[]Route{special, {Match: "log.>", Stream: "LOGS"}}, "", "", "ALARMS"},
		"the first is packed":    {[]Route{{Match: "debug.>", Unpack: &no}, special}, "", "", "ALARMS"},
		"all are packed":         {[]Route{{Match: ">", Unpack: &no}}, "", "", ""},
		"unknown":                {[]Route{rest}, "OTHER", "", ""},
	} {
		cfg := Config{Routes: c.routes}.withDefaults()
		if r, err := cfg.unpacked(c.stream, c.filter); r.Stream != c.expect || (err == nil) != (c.expect != "") {
			t.Errorf("%s: %s, %v", name, r.Stream, err)
		}
	}
}
