package client

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func FuzzMessage(f *testing.F) {
	f.Add("edge.press-7.sensors.temp", testEpoch.String(), "7", "2026-01-02T03:04:05.678Z", "urgent", "1/3")
	f.Add("edge.", "", "0", "", "", "")
	f.Add("edge..x", "0102030000000000", "9223372036854775808", "0000-00-00T00:00:00Z", "bulk", "3/2")
	f.Fuzz(func(t *testing.T, subject, epoch, seq, at, lane, part string) {
		h := nats.Header{hdrEpoch: {epoch}, hdrSeq: {seq}, hdrTime: {at}, hdrLane: {lane}, hdrPart: {part}, "Own": {at}}
		m := parseMessage(subject, h, []string{"edge.", "a.b."})
		if len(m.Header) != 1 || m.Header.Get("Own") != at {
			t.Errorf("own headers: %v", m.Header)
		}
		if m.Malformed == nil {
			if wire.CheckDevice(m.Device) != nil || m.Subject == "" || m.Seq == 0 || m.Seq > wire.MaxSeq || m.Epoch != epoch || m.Time.IsZero() && at == "" {
				t.Errorf("%q: %+v is taken for what a hub writes", subject, m)
			}
			if back := m.Device + "." + m.Subject; subject != "edge."+back && subject != "a.b."+back {
				t.Errorf("%q becomes %q", subject, back)
			}
		}
		if r, err := parseRetry(nats.Header{hdrSubject: {subject}, hdrStream: {lane}, hdrStreamSeq: {seq}, hdrRetry: {part}}); err == nil && (r.n < 1 || r.seq == 0) {
			t.Errorf("%+v", r)
		}
	})
}

func TestReasonsAreTheHandlers(t *testing.T) {
	why := errors.New("no such sensor")
	for _, err := range []error{fmt.Errorf("%w: %w", why, ErrTerminate), fmt.Errorf("%w: %w", ErrTerminate, why), errors.Join(ErrTerminate, why), why} {
		if got := reason(err); got != why.Error() {
			t.Errorf("%q becomes %q", err, got)
		}
	}
	if got := reason(ErrTerminate); got != ErrTerminate.Error() {
		t.Errorf("without a reason: %q", got)
	}
}

func TestReasonsAreShortAndOnOneLine(t *testing.T) {
	for in, want := range map[string]string{"a\r\n b\t c": "a b c", "ü\xff": "ü"} {
		if got := reason(fmt.Errorf("%s", in)); got != want {
			t.Errorf("%q becomes %q", in, got)
		}
	}
	long := ""
	for range 200 {
		long += "ü"
	}
	if got := reason(fmt.Errorf("x%s", long)); len(got) != 255 {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
