package deadletter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

func TestGivenUpMessagesAreInDead(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.publish("edge.press-7.sensors.temp", "21.5", nats.Header{"Unit": {"C"}, "Fieldpost-Seq": {"7"}, "Nats-Msg-Id": {"x"}})
	w.publish("alarms.press-7.door", "open", nil)
	worker, slow := w.consumer("EDGE", "worker"), w.consumer("EDGE", "slow", hasty)
	w.each(worker, 2, nak)
	w.each(w.consumer("EDGE", "other"), 1, term)
	w.each(w.consumer("EDGE", "happy"), 1, ack)
	w.each(slow, 2, func(jetstream.Msg) error { return nil }) // neither acks nor naks
	w.each(w.consumer("ALARMS", "bell"), 1, func(m jetstream.Msg) error { return m.TermWithReason("no such\ndoor") })
	once := w.consumer("EDGE", "once", hasty, func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 1 })
	w.each(once, 1, func(jetstream.Msg) error { return nil })
	w.asked(5, worker, slow)
	w.wantDead(
		"dead.EDGE.edge.press-7.sensors.temp max_deliveries once 1 EDGE/1 21.5",
		"dead.EDGE.edge.press-7.sensors.temp max_deliveries worker 2 EDGE/1 21.5",
		"dead.EDGE.edge.press-7.sensors.temp terminated other 1 EDGE/1 21.5",
		"dead.EDGE.edge.press-7.sensors.temp max_deliveries slow 2 EDGE/1 21.5",
		"dead.ALARMS.alarms.press-7.door terminated bell 1 ALARMS/1 (no such door) open",
	)
	for _, m := range w.all(store.Dead) {
		if strings.HasPrefix(m.Subject, "dead.EDGE") && (m.Header.Get("Unit") != "C" || m.Header.Get("Fieldpost-Seq") != "7") {
			t.Errorf("the message's own headers are %v", m.Header)
		}
		if id := m.Header.Get(hdrID); id == "x" || letterID(&m) != id {
			t.Errorf("id %q", id)
		}
	}
}

// hasty lets a message come again soon if nothing is said of it.
func hasty(c *jetstream.ConsumerConfig) { c.AckWait = 100 * time.Millisecond }

// The server keeps its word for a hub that is not there, across its own restart.
func TestGivenUpWhileNoHubRuns(t *testing.T) {
	w := newWorld(t)
	for i := range 70 {
		w.publish(fmt.Sprintf("edge.d%d.x", i%7), fmt.Sprint(i), nil)
	}
	w.each(w.consumer("EDGE", "a"), 70, term)
	b := w.consumer("EDGE", "b")
	w.each(b, 140, nak)
	w.asked(140, b)
	w.s.Close()
	w.open()
	w.run()
	w.run()
	if n := len(w.settled()); n != 140 {
		t.Errorf("%d letters", n)
	}
	w.unique()
	// Neither a restart nor a change of the consumer makes a second letter.
	w.s.Close()
	w.open()
	w.consumer("EDGE", "b", func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 })
	w.publish("edge.d.last", "last", nil)
	w.run()
	w.each(w.consumer("EDGE", "a"), 1, term)
	w.advised(141)
	w.settled()
	w.unique()
}

// unique wants each letter once.
func (w *world) unique() {
	w.t.Helper()
	seen := map[string]int{}
	for _, m := range w.all(store.Dead) {
		h := m.Header
		key := fmt.Sprint(h[HdrStream], h[HdrStreamSeq], h[HdrConsumer], h[HdrRetry])
		if seen[key]++; seen[key] > 1 {
			w.t.Errorf("letter %s is there %d times", key, seen[key])
		}
	}
}

// advise stores an advisory as the server does.
func (w *world) advise(subject string, a map[string]any) {
	w.t.Helper()
	data, err := json.Marshal(a)
	if err != nil {
		w.t.Fatal(err)
	}
	w.publish(subject, string(data), nil)
}

func TestSecondAdvisoryMakesNoSecondLetter(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.publish("edge.d.x", "one", nil)
	w.each(w.consumer("EDGE", "worker"), 1, term)
	w.advised(1)
	const letter = "dead.EDGE.edge.d.x terminated worker 1 EDGE/1 one"
	w.wantDead(letter)
	again := map[string]any{"id": "another", "timestamp": time.Now(), "stream": "EDGE", "consumer": "worker", "stream_seq": 1, "deliveries": 9}
	w.advise(store.MaxDeliveriesPrefix+"EDGE.worker", again)
	w.wantDead(letter)
	// Not even when limits have taken the first.
	if was, err := w.s.Delete(w.ctx(), store.Dead, 1); err != nil || !was {
		t.Fatal(was, err)
	}
	w.forget()
	again["id"] = "a third"
	w.advise(store.TerminatedPrefix+"EDGE.worker", again)
	w.wantDead()
	// The stream of that name that comes after it is another stream.
	if err := w.js.DeleteStream(w.ctx(), "EDGE"); err != nil {
		t.Fatal(err)
	}
	if err := w.s.EnsureStreams(w.ctx(), w.layout); err != nil {
		t.Fatal(err)
	}
	w.publish("edge.d.x", "two", nil)
	w.each(w.consumer("EDGE", "worker"), 1, term)
	w.advised(4)
	w.wantDead("dead.EDGE.edge.d.x terminated worker 1 EDGE/1 two")
}

func TestWhatIsNoAdvisoryIsIgnored(t *testing.T) {
	w := newWorld(t)
	w.publish("edge.d.x", "one", nil)
	good := map[string]any{"id": "i", "timestamp": time.Now(), "stream": "EDGE", "consumer": "c", "stream_seq": 1, "deliveries": 1}
	for k, v := range map[string]any{"id": "", "stream": "ALARMS", "consumer": "c.d", "stream_seq": 0} {
		bad := map[string]any{}
		for k, v := range good {
			bad[k] = v
		}
		bad[k] = v
		w.advise(store.MaxDeliveriesPrefix+"EDGE.c", bad)
	}
	w.publish(store.MaxDeliveriesPrefix+"EDGE.c", "{", nil)
	w.run()
	w.wantDead()
	w.advise(store.MaxDeliveriesPrefix+"EDGE.c", good)
	w.wantDead("dead.EDGE.edge.d.x max_deliveries c 1 EDGE/1 one")
}

func TestMessageThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.publish("edge.d.x", "one", nil)
	w.publish("edge.d.x", "two", nil)
	worker := w.consumer("EDGE", "worker")
	w.each(worker, 1, term)
	w.advised(1)
	w.each(worker, 1, func(jetstream.Msg) error { return nil })
	for seq := range uint64(3) {
		if was, err := w.s.Delete(w.ctx(), "EDGE", seq+1); err != nil || was != (seq < 2) {
			t.Fatal(was, err)
		}
	}
	w.advised(2) // of the message that was removed while the worker had it: nobody gave it up
	l := w.run()
	w.wantDead("dead.EDGE.unknown terminated worker 1 EDGE/1 (the message has left its stream before the hub could keep it) ")
	if out, err := l.Retry(w.ctx(), []uint64{1}); err != nil || len(out.Refused) != 1 || !strings.Contains(out.Refused[0].Why.Error(), "holds no message") {
		t.Errorf("retry: %+v, %v", out, err)
	}
}

func TestLargeMessagesAndReasons(t *testing.T) {
	w := newWorld(t)
	whole := strings.Repeat("x", w.s.MaxPayload()-2000)
	const fit = 6 // more than one batch takes
	for range fit {
		w.publish("edge.d.fits", whole, nil)
	}
	w.publish("edge.d.large", strings.Repeat("y", w.s.MaxPayload()-100), nil)
	w.each(w.consumer("EDGE", "worker"), fit+1, func(m jetstream.Msg) error { return m.TermWithReason(strings.Repeat("ü\x00", 20_000)) })
	w.advised(fit + 1)
	w.run()
	for _, m := range w.settled() {
		detail := m.Header.Get(HdrDetail)
		if !strings.HasPrefix(detail, "ü ü ü") || len(detail) > 2*maxDetail {
			t.Errorf("the client's words became %d bytes: %.60q", len(detail), detail)
		}
		fits := strings.HasSuffix(m.Subject, "fits")
		if fits && string(m.Data) != whole || !fits && (len(m.Data) > 0 || m.Header.Get(HdrBody) != BodyTooLarge || !strings.Contains(detail, "too large for DEAD")) {
			t.Errorf("%s: %d bytes, %v", m.Subject, len(m.Data), m.Header[HdrBody])
		}
	}
	if n := w.info(store.Dead).Messages; n != fit+1 {
		t.Errorf("%d letters", n)
	}
}

func TestDeadIsFullAndThenHasRoom(t *testing.T) {
	w := newWorld(t)
	w.change(store.Dead, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 100, jetstream.DiscardNew })
	l := w.run()
	w.publish("edge.d.x", "one", nil)
	w.publish("edge.d.x", "two", nil)
	worker := w.consumer("EDGE", "worker")
	w.each(worker, 1, term)
	w.eventually("the reason is named", func() bool {
		err := l.Err()
		return err != nil && strings.Contains(err.Error(), "full")
	})
	w.each(worker, 1, term)
	w.advised(2)
	if n := w.info(store.Advisories).Messages; n != 2 {
		t.Errorf("%d advisories are kept", n)
	}
	w.change(store.Dead, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
	w.wantDead("dead.EDGE.edge.d.x terminated worker 1 EDGE/1 one", "dead.EDGE.edge.d.x terminated worker 1 EDGE/2 two")
	w.eventually("nothing is wrong any more", func() bool { return l.Err() == nil })
}

func TestDeadTakesLessThanTheServer(t *testing.T) {
	w := newWorld(t)
	w.change(store.Dead, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
	w.run()
	worker := w.consumer("EDGE", "worker")
	for i, size := range []int{10, 2000, 20, 3000} {
		w.publish("edge.d.x", strings.Repeat(fmt.Sprint(i), size), nil)
	}
	w.each(worker, 4, term)
	w.advised(4)
	for _, m := range w.settled() {
		seq := m.Header.Get(HdrStreamSeq)
		if large := seq == "2" || seq == "4"; large != (m.Header.Get(HdrBody) == BodyTooLarge) || large != (len(m.Data) == 0) {
			t.Errorf("letter of %s: %d bytes, %v", seq, len(m.Data), m.Header)
		}
	}
	w.unique()
	if n := w.info(store.Dead).Messages; n != 4 {
		t.Errorf("%d letters", n)
	}
}

func TestOnAnExternalServer(t *testing.T) {
	w := worldAt(t, []string{external(t)})
	w.publish("edge.d.x", "one", nil)
	w.each(w.consumer("EDGE", "a"), 1, term)
	b := w.consumer("EDGE", "b")
	w.each(b, 2, nak)
	w.asked(2, b)
	w.run()
	w.run()
	w.wantDead("dead.EDGE.edge.d.x terminated a 1 EDGE/1 one", "dead.EDGE.edge.d.x max_deliveries b 2 EDGE/1 one")
}
