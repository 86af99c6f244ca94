package deadletter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

const maxPayload = 1 << 20

// text is a message in one line, without its id.
func text(m store.Msg) string {
	out := m.Subject
	for _, k := range slices.Sorted(maps.Keys(m.Header)) {
		if k != hdrID {
			out += fmt.Sprintf(" %s=%s", strings.TrimPrefix(k, "Fieldpost-"), strings.Join(m.Header[k], ","))
		}
	}
	return fmt.Sprintf("%s %q", out, m.Data)
}

func TestLetter(t *testing.T) {
	edge := func(h nats.Header) *store.Stored {
		return &store.Stored{Subject: "edge.d.a.b", Seq: 7, Header: h, Data: []byte("x")}
	}
	again := func(subject string, h nats.Header) *store.Stored {
		return &store.Stored{Subject: subject, Seq: 3, Header: h, Data: []byte("x")}
	}
	given1 := given{Stream: "EDGE", Consumer: "w", Seq: 7, Deliveries: 5, Reason: MaxDeliveries}
	givenR := given{Stream: "RETRY", Consumer: "w2", Seq: 3, Deliveries: 5, Reason: Terminated, Detail: "no"}
	for _, tt := range []struct {
		g    given
		m    *store.Stored
		want string
	}{
		{given1, edge(nil), `dead.EDGE.edge.d.a.b Consumer=w Deliveries=5 Reason=max_deliveries Stream=EDGE Stream-Seq=7 "x"`},
		{given1, edge(nats.Header{"K": {"1", "2"}, "Fieldpost-Seq": {"9"}, "Nats-Msg-Id": {"i"}, "nats-expected-last-msg-id": {"i"}, "Nats-Batch-Id": {"b"},
			"Nats-Expected-Last-Sequence": {"6"}, "Nats-Rollup": {"all"}, "Nats-TTL": {"1s"}, "Nats-Stream": {"S"}}),
			`dead.EDGE.edge.d.a.b Consumer=w Deliveries=5 Reason=max_deliveries Seq=9 Stream=EDGE Stream-Seq=7 K=1,2 Nats-Stream=S "x"`},
		{given1, nil, `dead.EDGE.unknown Body=gone Consumer=w Deliveries=5 Detail=the message has left its stream before the hub could keep it Reason=max_deliveries Stream=EDGE Stream-Seq=7 ""`},
		{givenR, again("retry.w", nats.Header{"K": {"1"}, HdrSubject: {"edge.d.a.b"}, HdrStream: {"EDGE"}, HdrStreamSeq: {"7"}, HdrRetry: {"4"}}),
			`dead.EDGE.edge.d.a.b Consumer=w Deliveries=5 Detail=no Reason=terminated Retry=4 Stream=EDGE Stream-Seq=7 K=1 "x"`},
		// What did not come from here, or is not what it says, stays what it is.
		{givenR, again("retry.w", nil), `dead.RETRY.retry.w Consumer=w Deliveries=5 Detail=no Reason=terminated Retry=1 Stream=RETRY Stream-Seq=3 "x"`},
		{givenR, again("retry.w", nats.Header{HdrSubject: {"edge.>"}, HdrStream: {"EDGE"}, HdrStreamSeq: {"7"}, HdrRetry: {"-4"}}),
			`dead.RETRY.retry.w Consumer=w Deliveries=5 Detail=no Reason=terminated Retry=1 Stream=RETRY Stream-Seq=3 "x"`},
		{givenR, again("retry.w", nats.Header{HdrSubject: {"a b"}, HdrStream: {"EDGE"}, HdrStreamSeq: {"7"}, HdrRetry: {"99999999999"}}),
			`dead.RETRY.retry.w Consumer=w Deliveries=5 Detail=no Reason=terminated Retry=1 Stream=RETRY Stream-Seq=3 "x"`},
		{givenR, nil, `dead.RETRY.unknown Body=gone Consumer=w2 Deliveries=5 Detail=no (the message has left its stream before the hub could keep it) Reason=terminated Stream=RETRY Stream-Seq=3 ""`},
	} {
		got := letter(tt.g, tt.m, "EDGE.1.w.7", maxPayload)
		if text(got) != tt.want {
			t.Errorf("got  %s\nwant %s", text(got), tt.want)
		}
		if got.Header.Get(hdrID) != "EDGE.1.w.7" {
			t.Errorf("id %q", got.Header.Get(hdrID))
		}
	}
}

func TestLetterAlwaysFits(t *testing.T) {
	g := given{Stream: "EDGE", Consumer: "w", Seq: 7, Reason: Terminated, Detail: strings.Repeat("x", 5000)}
	for _, n := range []int{0, 1000, maxPayload - 2000, maxPayload - 1000, maxPayload} {
		for _, headers := range []int{0, 1000, maxPayload} {
			m := &store.Stored{Subject: "edge.d", Data: make([]byte, n), Header: nats.Header{"K": {strings.Repeat("v", headers)}}}
			got := letter(g, m, "EDGE.1.w.7", maxPayload)
			if size(&got) > maxPayload || len(got.Data) != n && (len(got.Data) != 0 || got.Header.Get(HdrBody) != BodyTooLarge) {
				t.Errorf("%d bytes with %d of headers: a letter of %d, body %q", n, headers, size(&got), got.Header.Get(HdrBody))
			}
			if got.Header.Get(HdrConsumer) != "w" || got.Header.Get(hdrID) == "" {
				t.Errorf("headers are lost: %v", got.Header)
			}
		}
	}
	m := &store.Stored{Subject: "edge.\x01", Data: []byte("x")}
	if got := letter(g, m, "EDGE.1.w.7", maxPayload); got.Subject != "dead.EDGE.unknown" || string(got.Data) != "x" || RefuseRetry(got.Subject, got.Header) == nil {
		t.Errorf("a subject with a control character: %s", text(got))
	}
}

func TestRetryOfALetter(t *testing.T) {
	h := nats.Header{"K": {"1"}, "Fieldpost-Seq": {"9"}, HdrReason: {Terminated}, HdrDetail: {"no"}, HdrConsumer: {"w"}, HdrDeliveries: {"5"}, HdrStream: {"EDGE"},
		HdrStreamSeq: {"7"}, hdrID: {"EDGE.1.w.7"}, "Nats-Expected-Last-Sequence": {"8"}}
	m := store.Stored{Subject: "dead.EDGE.edge.d.a.b", Seq: 12, Header: h, Data: []byte("x")}
	if err := RefuseRetry(m.Subject, h); err != nil {
		t.Fatal(err)
	}
	got := retry(&m, retryID(time.Unix(0, 0x10), 12))
	if want := `retry.w Retry=1 Seq=9 Stream=EDGE Stream-Seq=7 Subject=edge.d.a.b K=1 "x"`; text(got) != want || got.Header.Get(hdrID) != "DEAD.10.retry.12" {
		t.Errorf("got  %s, %v\nwant %s", text(got), got.Header[hdrID], want)
	}
	// Out and back: nothing but the count has changed.
	back := letter(given{Stream: "RETRY", Consumer: "w", Seq: 1, Deliveries: 5, Reason: Terminated, Detail: "no"},
		&store.Stored{Subject: got.Subject, Header: got.Header, Data: got.Data, Seq: 1}, "RETRY.1.w.1", maxPayload)
	if want := `dead.EDGE.edge.d.a.b Consumer=w Deliveries=5 Detail=no Reason=terminated Retry=1 Seq=9 Stream=EDGE Stream-Seq=7 K=1 "x"`; text(back) != want {
		t.Errorf("got  %s\nwant %s", text(back), want)
	}

	for name, change := range map[string]func(h nats.Header, subject *string){
		"gap":            func(h nats.Header, s *string) { *s = "dead.gap.d"; h[HdrGap] = []string{"1/normal/1-2"} },
		"poison":         func(h nats.Header, s *string) { *s = "dead.BLOCKS.fp.blocks.d.1.normal" },
		"other reason":   func(h nats.Header, s *string) { h[HdrReason] = []string{"expired"} },
		"no consumer":    func(h nats.Header, s *string) { delete(h, HdrConsumer) },
		"no body":        func(h nats.Header, s *string) { h[HdrBody] = []string{BodyGone} },
		"no subject":     func(h nats.Header, s *string) { *s = "dead.EDGE" },
		"dotted name":    func(h nats.Header, s *string) { h[HdrConsumer] = []string{"a.b"} },
		"wild name":      func(h nats.Header, s *string) { h[HdrConsumer] = []string{">"} },
		"name with room": func(h nats.Header, s *string) { h[HdrConsumer] = []string{"a b"} },
		"endless name":   func(h nats.Header, s *string) { h[HdrConsumer] = []string{strings.Repeat("a", 300)} },
		"binary name":    func(h nats.Header, s *string) { h[HdrConsumer] = []string{"\xff"} },
	} {
		h, subject := maps.Clone(h), m.Subject
		change(h, &subject)
		if err := RefuseRetry(subject, h); err == nil || len(err.Error()) > 500 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLetterIDsAreNotTrusted(t *testing.T) {
	for id, ok := range map[string]bool{
		"EDGE.1.w.7": true, "EDGE.1a.wörker.7": true, "": false, "EDGE.1.w": false, "EDGE.1.w.7.8": false, "EDGE.>.w.7": false, "EDGE..w.7": false,
		"a b.1.w.7": false, "DEAD.1.retry.7": false, strings.Repeat("x", 900) + ".1.w.7": false,
	} {
		if got := letterID(&store.Stored{Header: nats.Header{hdrID: {id}}}); (got == id) != ok && id != "" || !ok && got != "" {
			t.Errorf("%.40q: %q", id, got)
		}
	}
}

func TestWords(t *testing.T) {
	for in, want := range map[string]string{"": "", " a\r\nb\x00 ": "a  b", "\xffx": "�x", strings.Repeat("y", maxDetail): strings.Repeat("y", maxDetail)} {
		if got := words(in); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	for n := range 8 {
		got := words(strings.Repeat("z", n) + strings.Repeat("ü€😀", 300))
		if len(got) > maxDetail || len(got) < maxDetail-8 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("a long text becomes %d bytes: …%q", len(got), got[len(got)-10:])
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		filter, subject string
		want            bool
	}{
		{">", "a", true}, {">", "a.b", true}, {"*", "a", true}, {"*", "a.b", false}, {"a.>", "a", false}, {"a.>", "a.b", true}, {"a.>", "a.b.c", true},
		{"a.*.c", "a.b.c", true}, {"a.*.c", "a.b.d", false}, {"a.*", "a.b.c", false}, {"a.b", "a.b", true}, {"a.b", "a", false}, {"a", "a.b", false},
		{"*.>", "a.b", true}, {"b.>", "a.b", false}, {">", "", false}, {"*.*", "a.b", true},
	} {
		if got := matches(tt.filter, tt.subject); got != tt.want {
			t.Errorf("%s takes %s: %v", tt.filter, tt.subject, got)
		}
	}
}

// FuzzAdvisory: whatever is published on an advisory's subject is refused, or is
// one message of one consumer that can be named.
func FuzzAdvisory(f *testing.F) {
	const good = `{"id":"i","timestamp":"2026-01-02T03:04:05Z","stream":"EDGE","consumer":"w","stream_seq":1,"deliveries":2,"reason":"x"}`
	f.Add("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.EDGE.w", []byte(good))
	f.Add("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.EDGE.w", []byte(good))
	f.Add("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.EDGE.w.x", []byte(`{"id":"i","stream":"EDGE","consumer":"w.x","stream_seq":1}`))
	f.Add("x", []byte(`{}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		g, err := parseAdvisory(subject, data)
		if err != nil {
			return
		}
		if !isToken(g.Stream) || !isToken(g.Consumer) || g.Seq == 0 || g.ID == "" || g.Reason != MaxDeliveries && g.Reason != Terminated {
			t.Fatalf("%+v", g)
		}
		m := letter(g, nil, g.key(time.Unix(1, 0)), maxPayload)
		if !isLiteral(m.Subject) || size(&m) > maxPayload || g.Stream != store.Dead && letterID(&store.Stored{Header: m.Header}) == "" {
			t.Fatalf("%+v", m)
		}
	})
}
