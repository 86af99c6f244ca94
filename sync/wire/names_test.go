package wire

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckSubject(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "sensors.temperature": true, "a.b-c_d.1": true, "a$": true, "a.b$c": true, "grüße.東京": true,
		"$a": false, "a.$b": false, "$SYS.x": false, "": false, ".": false, ".a": false, "a.": false, "a..b": false,
		"*": false, "a.*": false, "a.>": false, ">": false, "a*b": false, "a>b": false,
		"a b": false, "a\tb": false, "a\r\nb": false, "a\x00": false, "a\x7f": false, "a\u0085b": false, "a\u00a0b": false, "a\u2028b": false,
		"\xff": false, "a.\xc3": false, "a\uFFFD": true,
		strings.Repeat("a", 255): true, strings.Repeat("a", 256): false, strings.Repeat("é", 127): true, strings.Repeat("é", 128): false,
	} {
		if err := CheckSubject(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCheckDevice(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "Plant_7-b": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "a.b": false, "a b": false, "a\n": false, "ä": false, "*": false, "$a": false,
	} {
		if err := CheckDevice(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestCheckHeaders(t *testing.T) {
	big := strings.Repeat("x", MaxHeaders-1)
	for _, c := range []struct {
		ok bool
		hs []Pair
	}{
		{true, nil},
		{true, []Pair{{"Trace-Id", "7"}, {"Trace-Id", "8"}, {"x.y_z", ""}}},
		{true, []Pair{{"Natsish", "1"}, {"Fieldposts", "1"}, {"X-Nats-Y", "1"}}},
		{true, []Pair{{"a", "grüße"}}},
		{true, []Pair{{"a", big}}},
		{false, []Pair{{"ab", big}}},
		{false, []Pair{{"a", big}, {"b", ""}}},
		{false, []Pair{{"", "x"}}},
		{false, []Pair{{"a b", "x"}}},
		{false, []Pair{{"a:", "x"}}},
		{false, []Pair{{"ä", "x"}}},
		{false, []Pair{{"Nats-Msg-Id", "x"}}},
		{false, []Pair{{"status", "100"}}},
		{true, []Pair{{"X-Status", "100"}}},
		{false, []Pair{{"nats-", "x"}}},
		{false, []Pair{{"NATS-EXPECTED-STREAM", "x"}}},
		{false, []Pair{{"fieldpost-seq", "x"}}},
		{false, []Pair{{"FieldPost-Time", "x"}}},
		{false, []Pair{{"a", "x\r\nNats-Msg-Id: y"}}},
		{false, []Pair{{"a", "x\ny"}}},
		{false, []Pair{{"a", "x\x00"}}},
		{false, []Pair{{"a", " x"}}},
		{false, []Pair{{"a", "\xff"}}},
	} {
		if err := CheckHeaders(c.hs); (err == nil) != c.ok {
			t.Errorf("%.60q: %v", c.hs, err)
		}
	}
}

func TestCheckID(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "order 17": true, "7e57/δ": true, strings.Repeat("x", 255): true,
		"": false, strings.Repeat("x", 256): false, " a": false, "a ": false, "a\nb": false, "a\x00": false, "\xff": false,
	} {
		if err := CheckID(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestNamesAsText(t *testing.T) {
	for l := range Lane(NumLanes) {
		if got, err := ParseLane(l.String()); err != nil || got != l {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	for _, s := range []string{"", "Urgent", "lane(1)", "low"} {
		if _, err := ParseLane(s); err == nil {
			t.Errorf("lane %q is accepted", s)
		}
	}
	if _, err := Lane(NumLanes).MarshalText(); err == nil {
		t.Error("lane 3 has a name")
	}
	for _, s := range []string{"", "112233445566778", "11223344556677889", "112233445566778g", "AABBCCDDEEFF0011"} {
		if _, err := ParseEpoch(s); err == nil {
			t.Errorf("epoch %q is accepted", s)
		}
	}
	if a, b := NewEpoch(), NewEpoch(); a == b || a.IsZero() {
		t.Error("epochs are not random")
	}
	in := FlowReceived{Flow: flow1, Ranges: Ranges{{1, 4}, {9, 9}}}
	data, err := json.Marshal(in)
	if err != nil || string(data) != `{"epoch":"1122334455667788","lane":"normal","ranges":"1-4,9-9"}` {
		t.Errorf("%s, %v", data, err)
	}
	var out FlowReceived
	if err := json.Unmarshal(data, &out); err != nil || out.Flow != in.Flow || out.Ranges.String() != "1-4,9-9" {
		t.Errorf("%+v, %v", out, err)
	}
	for _, r := range Reasons() {
		if !r.Valid() || r.String() == "" || strings.HasPrefix(r.String(), "reason(") {
			t.Errorf("reason %d is %q", r, r)
		}
	}
	if Reason(0).Valid() || numReasons.Valid() {
		t.Error("a reason that does not exist is valid")
	}
}

func TestSubjects(t *testing.T) {
	s := SessionID{0xab, 1}
	for got, want := range map[string]string{
		OpenSubject("d"):         "fp.open.d",
		FrameSubject("i", "d"):   "fp.in.i.d",
		UpSubject("d"):           "fp.up.d",
		WakeSubject("d"):         "fp.wake.d",
		InboxPrefix("d"):         "_INBOX_d",
		SessionSubject("d", s):   "_INBOX_d.sab0100",
		StraySubject("d", "i"):   "_INBOX_d.ii",
		BlockSubject("d", flow1): "fp.blocks.d.1122334455667788.normal",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
