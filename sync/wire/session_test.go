package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

var session1 = SessionID{1, 2, 3, 4, 5, 6, 7, 8}

func TestFrameRoundTrip(t *testing.T) {
	for _, f := range []Frame{
		{Type: FrameBlock, Session: session1, Counter: 1, Body: []byte("a block")},
		{Type: FramePing, Session: session1, Counter: 127, Body: []byte{}},
		{Type: FrameConfirm, Session: session1, Counter: 128, Body: []byte("0011223344556677.8899aabbccddeeff")},
		{Type: FrameDrained, Session: session1, Counter: 1 << 40, Body: flow1.Epoch[:]},
		{Type: FrameBye, Session: SessionID{}, Counter: 1<<64 - 1, Body: []byte{}},
		{Type: FrameStream, Session: session1, Counter: 2, Body: []byte("x"), Lazy: true},
		{Type: FrameChunk, Session: session1, Counter: 2, Body: []byte("x"), Backfill: true},
		{Type: FrameBlock, Session: session1, Counter: 3, Body: []byte("x"), Backfill: true, Lazy: true},
	} {
		got, err := ParseFrame(AppendFrame([]byte{}, f))
		mine, foreign := got.Of(f.Session), got.Of(SessionID{9})
		got = Frame{Type: got.Type, Session: f.Session, Counter: got.Counter, Body: got.Body, Backfill: got.Backfill, Lazy: got.Lazy}
		if err != nil || !reflect.DeepEqual(got, f) || !mine || foreign {
			t.Errorf("%+v, %v, want %+v; of its session: %t, of another: %t", got, err, f, mine, foreign)
		}
	}
}

func TestParseFrameRefuses(t *testing.T) {
	frame := func(typ FrameType, counter uint64, body string) []byte {
		return AppendFrame(nil, Frame{Type: typ, Session: session1, Counter: counter, Body: []byte(body)})
	}
	good := frame(FrameDrained, 300, string(flow1.Epoch[:]))
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":            {nil, ErrCorrupt},
		"type 0":           {frame(0, 1, ""), ErrCorrupt},
		"newer type":       {frame(8, 1, "x"), ErrVersion},
		"newer flag":       {frame(FramePing|0x20, 1, ""), ErrVersion},
		"lazy ping":        {AppendFrame(nil, Frame{Type: FramePing, Counter: 1, Lazy: true}), ErrVersion},
		"no stream":        {frame(FrameStream, 1, ""), ErrCorrupt},
		"no chunk":         {frame(FrameChunk, 1, ""), ErrCorrupt},
		"no check":         {[]byte{byte(FramePing), 1, 0, 0, 0}, ErrCorrupt},
		"a hub's":          {frame(FrameAck, 1, "x"), ErrCorrupt},
		"counter 0":        {frame(FramePing, 0, ""), ErrCorrupt},
		"ping with a body": {frame(FramePing, 1, "x"), ErrCorrupt},
		"bye with a body":  {frame(FrameBye, 1, "x"), ErrCorrupt},
		"no block":         {frame(FrameBlock, 1, ""), ErrCorrupt},
		"no token":         {frame(FrameConfirm, 1, ""), ErrCorrupt},
		"long token":       {frame(FrameConfirm, 1, strings.Repeat("x", MaxToken+1)), ErrCorrupt},
		"odd token":        {frame(FrameConfirm, 1, "a b"), ErrCorrupt},
		"short epoch":      {frame(FrameDrained, 1, "1234567"), ErrCorrupt},
		"long epoch":       {frame(FrameDrained, 1, "123456789"), ErrCorrupt},
		"zero epoch":       {frame(FrameDrained, 1, string(make([]byte, 8))), ErrCorrupt},
		"long counter":     {[]byte{byte(FramePing), 0x81, 0, 1, 2, 3, 4}, ErrCorrupt},
	} {
		if f, err := ParseFrame(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %+v, %v, want %v", name, f, err, c.want)
		}
	}
	for n := range len(good) {
		if f, err := ParseFrame(good[:n]); !errors.Is(err, ErrCorrupt) && (err != nil || f.Of(session1)) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	for bit := range 8 * len(good) {
		good[bit/8] ^= 1 << (bit % 8)
		if f, err := ParseFrame(good); err == nil && f.Of(session1) {
			t.Errorf("bit %d turned passes", bit)
		}
		good[bit/8] ^= 1 << (bit % 8)
	}
}

// ackOf returns an ack of n flows with m ranges each.
func ackOf(n, m int) Ack {
	a := Ack{Counter: 300}
	for i := range n {
		f := FlowReceived{Flow: Flow{Epoch{1, byte(i)}, Lane(i % NumLanes)}}
		for j := range uint64(m) {
			f.Ranges = append(f.Ranges, Range{1 + 1000*j, 1 + 1000*j + 3*j})
		}
		a.Flows = append(a.Flows, f)
	}
	return a
}

func TestAckRoundTrip(t *testing.T) {
	top := Ack{Counter: 1<<64 - 1, Flows: []FlowReceived{{flow1, Ranges{{1, 1}, {3, MaxSeq}}}}}
	for _, a := range []Ack{{}, ackOf(1, 0), ackOf(1, 1), ackOf(3, 2), ackOf(MaxAckFlows, MaxRanges), top} {
		got, end, err := ParseReply(AppendAck(nil, a))
		if err != nil || end != nil || !reflect.DeepEqual(*got, a) {
			t.Errorf("%+v, %v, %v, want %+v", got, end, err, a)
		}
	}
	if n := len(AppendAck(nil, ackOf(1, 1))); n > 18 {
		t.Errorf("an ack of one range takes %d bytes", n)
	}
	got, _, err := ParseReply(AppendAck(nil, ackOf(MaxAckFlows+1, MaxRanges+1)))
	if err != nil || !reflect.DeepEqual(*got, ackOf(MaxAckFlows, MaxRanges)) {
		t.Errorf("an ack beyond the limits is not its beginning: %v", err)
	}
}

func TestEndRoundTrip(t *testing.T) {
	for _, c := range []struct{ in, out SessionError }{
		{SessionError{CodeGap, "frame 7 after 5"}, SessionError{CodeGap, "frame 7 after 5"}},
		{SessionError{CodeIdle, ""}, SessionError{CodeIdle, ""}},
		{SessionError{CodeRefused, "a\nb\x00ü\xff"}, SessionError{CodeRefused, "a?b?ü?"}},
		{SessionError{CodeRefused, strings.Repeat("x", 600)}, SessionError{CodeRefused, strings.Repeat("x", 512)}},
		{SessionError{CodeRefused, "x" + strings.Repeat("ü", 300)}, SessionError{CodeRefused, "x" + strings.Repeat("ü", 255)}},
	} {
		ack, end, err := ParseReply(AppendEnd(nil, c.in))
		if err != nil || ack != nil || *end != c.out {
			t.Errorf("%+v, %v, want %+v", end, err, c.out)
		}
	}
}

func TestParseReplyRefuses(t *testing.T) {
	flow := string(flow1.Epoch[:]) + "\x01"
	for name, c := range map[string]struct {
		data string
		want error
	}{
		"empty":            {"", ErrCorrupt},
		"type alone":       {"\x10", ErrCorrupt},
		"an agent's":       {"\x01\x01\x01", ErrCorrupt},
		"type 32":          {"\x20\x01\x01", ErrCorrupt},
		"newer type":       {"\x12\x01\x01", ErrVersion},
		"newer ack":        {"\x10\x02\x01\x00", ErrVersion},
		"newer end":        {"\x11\x02\x01\x00", ErrVersion},
		"bytes after":      {"\x10\x01\x01\x00\x00", ErrCorrupt},
		"too many flows":   {"\x10\x01\x01\x41", ErrLimit},
		"flows missing":    {"\x10\x01\x01\x01", ErrCorrupt},
		"flow twice":       {"\x10\x01\x01\x02" + flow + "\x00" + flow + "\x00", ErrCorrupt},
		"lane 3":           {"\x10\x01\x01\x01" + flow[:8] + "\x03\x00", ErrCorrupt},
		"zero epoch":       {"\x10\x01\x01\x01" + string(make([]byte, 8)) + "\x00\x00", ErrCorrupt},
		"too many ranges":  {"\x10\x01\x01\x01" + flow + "\x41" + strings.Repeat("\x00", 130), ErrLimit},
		"ranges missing":   {"\x10\x01\x01\x01" + flow + "\x02\x00\x00\x00", ErrCorrupt},
		"beyond the end":   {"\x10\x01\x01\x01" + flow + "\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", ErrCorrupt},
		"wraps":            {"\x10\x01\x01\x01" + flow + "\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", ErrCorrupt},
		"after the end":    {"\x10\x01\x01\x01" + flow + "\x02\x00\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00", ErrCorrupt},
		"end without code": {"\x11\x01\x00\x00", ErrCorrupt},
		"long code":        {"\x11\x01\x21" + strings.Repeat("x", 33) + "\x00", ErrLimit},
		"not printable":    {"\x11\x01\x01\x07\x00", ErrCorrupt},
		"end cut off":      {"\x11\x01\x03gap\x05four", ErrCorrupt},
		"end with more":    {"\x11\x01\x03gap\x00\x00", ErrCorrupt},
	} {
		ack, end, err := ParseReply([]byte(c.data))
		if !errors.Is(err, c.want) || ack != nil || end != nil {
			t.Errorf("%s: %+v, %+v, %v, want %v", name, ack, end, err, c.want)
		}
	}
	good := AppendAck(nil, ackOf(3, 3))
	for n := range len(good) {
		if _, _, err := ParseReply(good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
}

func goodOpen() *Open {
	return &Open{
		Protocol: 1, Version: "1.0.0 (linux/arm64)", Process: "p-1", HubID: "hub", Token: "aa.bb", Order: "fifo", Class: "metered",
		Flows:  []FlowHeld{{Flow: flow1, Base: 1, First: 5, Last: 9}, {Flow: Flow{flow1.Epoch, Bulk}, Base: 1, First: 1, Last: MaxSeq}},
		Labels: map[string]string{"site": "Nürnberg, hall 4"},
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseOpen(t *testing.T) {
	if got, err := ParseOpen(marshal(t, goodOpen())); err != nil || !reflect.DeepEqual(got, goodOpen()) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ParseOpen([]byte(`{"protocol":2,"process":"p","order":"fresh-first","a_newer_key":{"x":[1]}}`)); err != nil {
		t.Errorf("a newer agent is refused: %v", err)
	}
	many := make(map[string]string)
	for i := range MaxLabels + 1 {
		many[fmt.Sprint("l", i)] = ""
	}
	for name, spoil := range map[string]func(o *Open){
		"protocol 0":     func(o *Open) { o.Protocol = 0 },
		"version":        func(o *Open) { o.Version = "1\n2" },
		"long version":   func(o *Open) { o.Version = strings.Repeat("1", 256) },
		"no process":     func(o *Open) { o.Process = "" },
		"process":        func(o *Open) { o.Process = "a.b" },
		"hub id":         func(o *Open) { o.HubID = "a b" },
		"token":          func(o *Open) { o.Token = strings.Repeat("x", MaxToken+1) },
		"order":          func(o *Open) { o.Order = "lifo" },
		"no order":       func(o *Open) { o.Order = "" },
		"class":          func(o *Open) { o.Class = "a\x00" },
		"stream":         func(o *Open) { o.Streams = []string{"a b"} },
		"many streams":   func(o *Open) { o.Streams = make([]string, 9) },
		"too many flows": func(o *Open) { o.Flows = make([]FlowHeld, MaxFlows+1) },
		"flow twice":     func(o *Open) { o.Flows[1].Flow = flow1 },
		"zero epoch":     func(o *Open) { o.Flows[0].Epoch = Epoch{} },
		"base 0":         func(o *Open) { o.Flows[0].Base = 0 },
		"base too high":  func(o *Open) { o.Flows[0].Base = 6 },
		"first too high": func(o *Open) { o.Flows[0].First = 10 },
		"last too high":  func(o *Open) { o.Flows[1].Last = MaxSeq + 1 },
		"labels":         func(o *Open) { o.Labels = many },
		"label key":      func(o *Open) { o.Labels["a b"] = "" },
		"long label key": func(o *Open) { o.Labels[strings.Repeat("k", 65)] = "" },
		"label value":    func(o *Open) { o.Labels["a"] = "\x1b[2J" },
		"long value":     func(o *Open) { o.Labels["a"] = strings.Repeat("v", 256) },
	} {
		o := goodOpen()
		spoil(o)
		if got, err := ParseOpen(marshal(t, o)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{", `{"protocol":"1"}`, `{"protocol":1,"process":"p","order":"fifo"} x`, `{"protocol":1,"process":"p","order":"fifo","flows":[{"epoch":"x","lane":"normal"}]}`} {
		if _, err := ParseOpen([]byte(bad)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseOpen(append(marshal(t, goodOpen()), bytes.Repeat([]byte(" "), MaxOpen)...)); !errors.Is(err, ErrLimit) {
		t.Errorf("an oversized request: %v", err)
	}
}

func TestParseOpenReply(t *testing.T) {
	good := func() *OpenReply {
		s := Epoch(session1)
		return &OpenReply{Protocol: 1, Session: &s, Instance: "i1", HubID: "hub", Token: "t", MaxPayload: 1 << 20, Window: 1 << 20,
			Received: []FlowReceived{{flow1, Ranges{{1, 5}}}, {Flow{flow1.Epoch, Urgent}, nil}}, Time: accepted1,
			Partial: []Partial{{Slot: 5, Bytes: 1, Size: 2, CRC: 1<<32 - 1}}}
	}
	got, err := ParseOpenReply(marshal(t, good()))
	if err != nil || len(got.Received) != 2 || got.Received[0].Ranges.String() != "1-5" || *got.Session != Epoch(session1) || len(got.Partial) != 1 || got.Partial[0] != good().Partial[0] {
		t.Errorf("%+v, %v", got, err)
	}
	refusal := &OpenReply{Error: &SessionError{CodeWrongHub, "this is hub b"}, HubID: "b"}
	if got, err := ParseOpenReply(marshal(t, refusal)); err != nil || !reflect.DeepEqual(got, refusal) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, spoil := range map[string]func(r *OpenReply){
		"neither":        func(r *OpenReply) { r.Session = nil },
		"both":           func(r *OpenReply) { r.Error = &SessionError{CodeGap, ""} },
		"no code":        func(r *OpenReply) { r.Session, r.Error = nil, &SessionError{"", "x"} },
		"protocol 3":     func(r *OpenReply) { r.Protocol = 3 },
		"stream":         func(r *OpenReply) { r.Stream = "a b" },
		"protocol 0":     func(r *OpenReply) { r.Protocol = 0 },
		"zero session":   func(r *OpenReply) { r.Session = new(Epoch) },
		"no instance":    func(r *OpenReply) { r.Instance = "" },
		"instance":       func(r *OpenReply) { r.Instance = "a.>" },
		"no hub id":      func(r *OpenReply) { r.HubID = "" },
		"token":          func(r *OpenReply) { r.Token = "a b" },
		"no payload":     func(r *OpenReply) { r.MaxPayload = 0 },
		"no window":      func(r *OpenReply) { r.Window = -1 },
		"flow twice":     func(r *OpenReply) { r.Received[1].Flow = flow1 },
		"zero epoch":     func(r *OpenReply) { r.Received[1].Epoch = Epoch{} },
		"too many flows": func(r *OpenReply) { r.Received = make([]FlowReceived, MaxFlows+1) },
		"notice":         func(r *OpenReply) { r.Notice = "\x07" },
		"no such slot":   func(r *OpenReply) { r.Partial = []Partial{{Slot: MaxSlots, Bytes: 1, Size: 2}} },
		"slot twice":     func(r *OpenReply) { r.Partial = []Partial{{Bytes: 1, Size: 2}, {Bytes: 2, Size: 3}} },
		"no bytes":       func(r *OpenReply) { r.Partial = []Partial{{Bytes: 0, Size: 2}} },
		"all bytes":      func(r *OpenReply) { r.Partial = []Partial{{Bytes: 2, Size: 2}} },
		"a large block":  func(r *OpenReply) { r.Partial = []Partial{{Bytes: 2, Size: MaxBlock + 1}} },
	} {
		r := good()
		spoil(r)
		if got, err := ParseOpenReply(marshal(t, r)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestParseHeartbeat(t *testing.T) {
	good := func() *Heartbeat {
		return &Heartbeat{Version: "1", Process: "p", Epoch: flow1.Epoch.String(), Every: 300, Started: accepted1, Now: accepted1, Error: NewLastError("no route", time.UnixMilli(accepted1)), Class: "metered",
			Backlog: map[string]LaneBacklog{"normal": {7, 700, accepted1}}, DiskUsed: 1, DiskMax: 2,
			Dropped: map[string]uint64{"ttl": 3, "a_newer_reason": 1}, Quarantine: 1, Labels: map[string]string{"a": "b"}}
	}
	if got, err := ParseHeartbeat(marshal(t, good())); err != nil || !reflect.DeepEqual(got, good()) {
		t.Errorf("%+v, %v", got, err)
	}
	for name, spoil := range map[string]func(h *Heartbeat){
		"process":    func(h *Heartbeat) { h.Process = "" },
		"version":    func(h *Heartbeat) { h.Version = "\x00" },
		"epoch":      func(h *Heartbeat) { h.Epoch = "x" },
		"every 0":    func(h *Heartbeat) { h.Every = 0 },
		"every year": func(h *Heartbeat) { h.Every = 86_401 },
		"started":    func(h *Heartbeat) { h.Started = -1 },
		"now":        func(h *Heartbeat) { h.Now = MaxTime + 1 },
		"error":      func(h *Heartbeat) { h.Error.Text = "a\nb" },
		"error time": func(h *Heartbeat) { h.Error.Time = -1 },
		"class":      func(h *Heartbeat) { h.Class = "a b" },
		"lane":       func(h *Heartbeat) { h.Backlog["other"] = LaneBacklog{} },
		"bytes":      func(h *Heartbeat) { h.Backlog["normal"] = LaneBacklog{Bytes: -1} },
		"oldest":     func(h *Heartbeat) { h.Backlog["normal"] = LaneBacklog{Oldest: MaxTime + 1} },
		"disk":       func(h *Heartbeat) { h.DiskUsed = -1 },
		"reason":     func(h *Heartbeat) { h.Dropped["a b"] = 1 },
		"label":      func(h *Heartbeat) { h.Labels[""] = "" },
	} {
		h := good()
		spoil(h)
		if got, err := ParseHeartbeat(marshal(t, h)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
