package uplink

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestClassChanges: a link of another class is dialled anew at once, whatever
// stands; a kick without a change only asks.
func TestClassChanges(t *testing.T) {
	class := "unmetered"
	now := time.Unix(1_800_000_000, 0)
	s := NewSender(SenderConfig{Class: func() string { return class }})
	did := func(in Event) (names []string) {
		for _, a := range s.Step(now, in) {
			names = append(names, strings.TrimPrefix(fmt.Sprintf("%T", a), "uplink."))
		}
		return names
	}
	want := func(got []string, names ...string) {
		t.Helper()
		if !slices.Equal(got, names) {
			t.Fatalf("%v, not %v", got, names)
		}
	}
	change := func() {
		class = map[string]string{"unmetered": "metered", "metered": "unmetered"}[class]
	}
	want(did(Ticked{}), "Dial")
	want(did(Linked{}), "List")
	change()
	want(did(Kicked{}), "Hangup", "Dial") // opening
	want(did(Linked{}), "List")
	want(did(Spooled{}), "SendOpen")
	id := wire.Epoch{7}
	did(OpenReplied{&wire.OpenReply{Protocol: wire.Protocol, Session: &id, HubID: "h", Instance: "i1", MaxPayload: 1 << 20, Window: 1 << 20}})
	if !s.Up() {
		t.Fatal(s.Problem())
	}
	want(did(Kicked{}), "SendFrame") // a ping
	change()
	want(did(Kicked{}), "Hangup", "Dial")
	if s.Up() {
		t.Fatal("still up")
	}
}

// TestOneCodecAtATime: a second one is not kept beside it, and a rate about the
// limit does not swap them. A link that holds nothing back is not slow.
func TestOneCodecAtATime(t *testing.T) {
	s := NewSender(SenderConfig{})
	var last *wire.Encoder
	for i, c := range []struct {
		rate  float64
		tight bool
		slow  bool
	}{
		{0, false, false}, {slowRate / 2, false, false}, {slowRate / 2, true, true}, {slowRate * 1.5, true, true},
		{slowRate * 3, true, false}, {slowRate * 1.5, true, false}, {slowRate / 2, true, true}, {slowRate / 2, false, false},
	} {
		s.window.rates[0], s.window.tight = c.rate, c.tight
		was := s.codecs.slow
		e := s.codecs.get(s.slow())
		if s.codecs.slow != c.slow || i > 0 && (e == last) != (was == c.slow) {
			t.Errorf("%v B/s: slow is %v", c.rate, s.codecs.slow)
		}
		last = e
	}
}
