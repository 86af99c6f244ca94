package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestConsumeShowsAMessageAsItWasPublished(t *testing.T) {
	w := newWorld(t)
	h := head(7, "Fieldpost-Lane", "urgent", "Fieldpost-Id", "id-1", "Fieldpost-Clock", "unsynced", "Fieldpost-Backfill", "true", "Unit", "C", "Unit", "F")
	w.put("edge.press-7.sensors.temp", h, []byte("21.5"))
	w.put("edge.press-7.a", head(8), nil)
	got := make(chan *Message, 2)
	r := w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 1}, func(_ context.Context, m *Message) error {
			got <- m
			return nil
		})
	})
	m := receive(t, "a message", got)
	if m.Stored.IsZero() {
		t.Error("no time of storage")
	}
	m.Stored = time.Time{}
	want := &Message{
		Device: "press-7", Subject: "sensors.temp", Payload: []byte("21.5"), Header: nats.Header{"Unit": {"C", "F"}}, ID: "id-1",
		Epoch: testEpoch.String(), Lane: "urgent", Seq: 7, Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), Unsynced: true, Backfill: true,
		Stream: "EDGE", StreamSeq: 1, Deliveries: 1,
	}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("got  %+v\nwant %+v", m, want)
	}
	m = receive(t, "another", got)
	if m.Lane != "normal" || m.Subject != "a" || m.Header != nil || len(m.Payload) != 0 || m.Unsynced || m.Backfill || m.Malformed != nil {
		t.Errorf("%+v", m)
	}
	w.settled("EDGE", "g")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeTakesHostileMessages(t *testing.T) {
	w := newWorld(t)
	bad := []*nats.Msg{
		{Subject: "edge.d.s", Data: []byte("no headers")},
		{Subject: "edge.d", Header: head(1)},
		{Subject: "edge.d$.s", Header: head(1)},
		{Subject: "edge.d.s", Header: nats.Header{"Fieldpost-Seq": {"-1"}, "Fieldpost-Epoch": {"xyz"}, "Fieldpost-Time": {"now"}}},
		{Subject: "edge.d.s", Header: head(0)},
		{Subject: "edge.d.s", Header: nats.Header{"Fieldpost-Seq": {"18446744073709551616"}, "Fieldpost-Epoch": {testEpoch.String()}, "Fieldpost-Time": {"2026-01-02T03:04:05Z"}}},
		{Subject: "edge.d.s", Header: head(1, "Fieldpost-Lane", "\x00slow")},
		{Subject: "edge.d.s", Header: nats.Header{"Fieldpost-Seq": {}, "Fieldpost-Epoch": {""}, "fieldpost-seq": {"1"}}},
	}
	for _, m := range bad {
		w.put(m.Subject, m.Header, m.Data)
	}
	broken := []string{"2/1", "0/0", "-1/2", "2/99999999999999999999", "65/65", "x", "2/2/2", "2/2"}
	for _, v := range broken { // the last: there is no first part
		w.put("edge.d.s", head(1, "Fieldpost-Part", v), []byte("part"))
	}
	w.put("edge.d.end", head(9), nil)
	got := make(chan *Message, 100)
	w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 1}, func(_ context.Context, m *Message) error {
			got <- m
			return nil
		})
	})
	for i := range bad {
		if m := receive(t, "a message", got); m.Malformed == nil || m.StreamSeq != uint64(i+1) {
			t.Errorf("message %d: %+v", i+1, m)
		}
	}
	if m := receive(t, "the last message", got); m.Malformed != nil || m.Subject != "end" {
		t.Errorf("%+v", m)
	}
	w.settled("EDGE", "g") // what cannot be put together was terminated
	if !w.log.has("cannot be put together") {
		t.Error("nothing is said of messages that cannot be put together")
	}
}

func TestConsumeTriesAgain(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 1)
	c := w.client()
	got := make(chan int, 10)
	w.run(func(ctx context.Context) error {
		cfg := ConsumerConfig{Group: "g", MaxDeliver: 5, AckWait: time.Hour, Backoff: []time.Duration{time.Millisecond, 3 * time.Millisecond}}
		return c.Consume(ctx, cfg, func(_ context.Context, m *Message) error {
			got <- m.Deliveries
			if m.Deliveries < 4 {
				return errors.New("not yet")
			}
			return nil
		})
	})
	for want := 1; want <= 4; want++ { // the ack wait would take an hour
		if n := receive(t, "a delivery", got); n != want {
			t.Errorf("delivery %d, want %d", n, want)
		}
	}
	w.settled("EDGE", "g")
}

func TestBackoffGrowsWithDeliveries(t *testing.T) {
	p := &puller{backoff: []time.Duration{1, 5, 30}}
	var got []time.Duration
	for nth := range 6 {
		got = append(got, p.delay(nth))
	}
	if want := []time.Duration{1, 1, 5, 30, 30, 30}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestConsumeTerminates(t *testing.T) {
	w := newWorld(t)
	adv, err := w.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.EDGE.g")
	if err != nil {
		t.Fatal(err)
	}
	w.edge(1, 2)
	got := make(chan string, 10)
	w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, ConsumerConfig{Group: "g"}, func(_ context.Context, m *Message) error {
			got <- string(m.Payload)
			if string(m.Payload) == "1" {
				return fmt.Errorf("no such\nsensor: %w", ErrTerminate)
			}
			return nil
		})
	})
	m, err := adv.NextMsg(patience)
	if err != nil || !strings.Contains(string(m.Data), "no such sensor") || strings.Contains(string(m.Data), `\n`) {
		t.Errorf("advisory %v %v", m, err)
	}
	w.settled("EDGE", "g")
	all := []string{receive(t, "one", got), receive(t, "two", got)}
	slices.Sort(all)
	if !slices.Equal(all, []string{"1", "2"}) || len(got) != 0 {
		t.Errorf("%v and %d more", all, len(got))
	}
}

func TestConsumeGivesUpAfterMaxDeliver(t *testing.T) {
	w := newWorld(t)
	adv, err := w.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.EDGE.g")
	if err != nil {
		t.Fatal(err)
	}
	w.edge(1, 1)
	got := make(chan int, 10)
	w.run(func(ctx context.Context) error {
		// The pause after the last failure does not count: DEAD need not wait.
		cfg := ConsumerConfig{Group: "g", MaxDeliver: 3, AckWait: time.Hour, Backoff: []time.Duration{time.Millisecond, time.Millisecond, time.Hour}}
		return w.client().Consume(ctx, cfg, func(_ context.Context, m *Message) error {
			got <- m.Deliveries
			return errors.New("never")
		})
	})
	m, err := adv.NextMsg(patience)
	if err != nil || !strings.Contains(string(m.Data), `"deliveries":3`) {
		t.Errorf("advisory %v %v", m, err)
	}
	if len(got) != 3 {
		t.Errorf("%d deliveries", len(got))
	}
}

func TestConsumeSharesTheGroup(t *testing.T) {
	w := newWorld(t)
	const n = 400
	var mu sync.Mutex
	seen := map[string]int{}
	both := make(chan struct{}, 2)
	start := make(chan struct{})
	for range 2 {
		c := w.client()
		w.run(func(ctx context.Context) error {
			var once sync.Once
			return c.Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 8}, func(_ context.Context, m *Message) error {
				once.Do(func() { both <- struct{}{} })
				<-start // nobody takes all of it before the other has one
				mu.Lock()
				defer mu.Unlock()
				seen[string(m.Payload)]++
				return nil
			})
		})
	}
	w.edge(1, n)
	receive(t, "the first process has a message", both)
	receive(t, "the second has one, too", both)
	close(start)
	w.settled("EDGE", "g")
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i <= n; i++ {
		if got := seen[fmt.Sprint(i)]; got != 1 {
			t.Errorf("message %d was handled %d times", i, got)
		}
	}
}

func TestConsumeGivesBackAtOnce(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 4)
	cfg := ConsumerConfig{Group: "g", MaxInFlight: 2, AckWait: time.Hour}
	first, release := make(chan string, 10), make(chan struct{})
	a := w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, cfg, func(ctx context.Context, m *Message) error {
			first <- string(m.Payload)
			if string(m.Payload) == "1" {
				<-release // it is not interrupted, and acks
				return nil
			}
			<-ctx.Done() // this one gives up
			return ctx.Err()
		})
	})
	got := []string{receive(t, "a message", first), receive(t, "another", first)}
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("handled first: %v", got)
	}
	eventually(t, "the rest is fetched", func() error {
		if i := w.info("EDGE", "g"); i.NumAckPending != 4 {
			return fmt.Errorf("%d of 4", i.NumAckPending)
		}
		return nil
	})
	a.cancel()
	second := make(chan string, 10)
	w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, cfg, func(_ context.Context, m *Message) error {
			second <- string(m.Payload)
			return nil
		})
	})
	got = nil
	for range 3 { // the ack wait would take an hour
		got = append(got, receive(t, "what was given back", second))
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"2", "3", "4"}) {
		t.Errorf("given back: %v", got)
	}
	select {
	case err := <-a.done:
		t.Errorf("it ended while a handler ran: %v", err)
	default:
	}
	close(release)
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	w.settled("EDGE", "g")
	if len(first) != 0 || len(second) != 0 {
		t.Errorf("handled twice: %d, %d", len(first), len(second))
	}
}

func TestConsumeKeepsALongHandlersMessage(t *testing.T) {
	w := newWorld(t)
	acks, err := w.nc.SubscribeSync("$JS.ACK.EDGE.g.>")
	if err != nil {
		t.Fatal(err)
	}
	w.edge(1, 1)
	release := make(chan struct{})
	w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, ConsumerConfig{Group: "g", AckWait: 3 * time.Second}, func(context.Context, *Message) error {
			<-release
			return nil
		})
	})
	for range 3 { // longer than the ack wait
		if m, err := acks.NextMsg(patience); err != nil || string(m.Data) != "+WPI" {
			t.Fatalf("%v %v", m, err)
		}
	}
	close(release)
	for {
		m, err := acks.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) == "+WPI" {
			continue
		}
		if string(m.Data) != "+ACK" || m.Reply == "" {
			t.Errorf("%q, reply to %q: not an ack that is confirmed", m.Data, m.Reply)
		}
		break
	}
	w.settled("EDGE", "g")
}

func TestConsumeOutlivesTheServer(t *testing.T) {
	w := newWorld(t)
	const n = 60
	var mu sync.Mutex
	seen := map[string]bool{}
	got := make(chan struct{}, 10*n)
	hold := make(chan struct{})
	r := w.run(func(ctx context.Context) error {
		return w.client().Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 4, AckWait: 2 * time.Second, MaxDeliver: -1}, func(_ context.Context, m *Message) error {
			if string(m.Payload) == "10" {
				<-hold // its ack needs the server that comes back
			}
			mu.Lock()
			seen[string(m.Payload)] = true
			mu.Unlock()
			got <- struct{}{}
			return nil
		})
	})
	w.edge(1, n/2)
	for range 9 {
		receive(t, "a message", got)
	}
	w.stop()
	close(hold)
	w.start()
	w.edge(n/2+1, n)
	w.settled("EDGE", "g")
	mu.Lock()
	if len(seen) != n {
		t.Errorf("%d of %d messages were handled", len(seen), n)
	}
	mu.Unlock()
	if err := r.stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumePutsPartsTogether(t *testing.T) {
	w := newWorld(t)
	want := map[string]string{}
	for i := 1; i <= 20; i++ {
		w.put("edge.d.small", head(1000+i), []byte("s"))
		whole := ""
		for part := 1; part <= 3; part++ {
			text := fmt.Sprintf("[%d of message %d]", part, i)
			whole += text
			w.put("edge.d.large", head(i, "Fieldpost-Part", fmt.Sprintf("%d/3", part)), []byte(text))
		}
		want[fmt.Sprint(i)] = whole
	}
	type result struct{ seq, payload string }
	got := make(chan result, 100)
	for range 2 { // the parts of a message go to both
		c := w.client()
		w.run(func(ctx context.Context) error {
			return c.Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 1, Filter: "edge.*.large"}, func(_ context.Context, m *Message) error {
				got <- result{fmt.Sprint(m.Seq), string(m.Payload)}
				return nil
			})
		})
	}
	for range 20 {
		r := receive(t, "a message", got)
		if w, ok := want[r.seq]; !ok || w != r.payload {
			t.Errorf("message %s: %q", r.seq, r.payload)
		}
		delete(want, r.seq)
	}
	w.settled("EDGE", "g")
	if len(got) > 0 {
		t.Errorf("%d more messages", len(got))
	}
}

func TestConsumeFiltersAndBegins(t *testing.T) {
	w := newWorld(t)
	for i, s := range []string{"edge.a.sensors.x", "edge.b.sensors.y", "edge.a.alarm", "edge.c.sensors.z"} {
		w.put(s, head(i+1), nil)
	}
	third := receiveStored(t, w, 3)
	for name, test := range map[string]struct {
		cfg  ConsumerConfig
		want []uint64
	}{
		"filter": {ConsumerConfig{Filter: "edge.*.sensors.>"}, []uint64{1, 2, 4}},
		"device": {ConsumerConfig{Filter: "edge.a.>"}, []uint64{1, 3}},
		"all":    {ConsumerConfig{Filter: ">"}, []uint64{1, 2, 3, 4}},
		"seq":    {ConsumerConfig{From: From{Seq: 4}}, []uint64{4}},
		"time":   {ConsumerConfig{From: From{Time: third}}, []uint64{3, 4}},
		"new":    {ConsumerConfig{From: From{New: true}}, nil},
	} {
		test.cfg.Group, test.cfg.MaxInFlight = name, 1
		got := make(chan uint64, 100)
		r := w.run(func(ctx context.Context) error {
			return w.client().Consume(ctx, test.cfg, func(_ context.Context, m *Message) error {
				got <- m.StreamSeq
				return nil
			})
		})
		eventually(t, "the group is there", func() error {
			_, err := w.js.Consumer(t.Context(), "EDGE", name)
			return err
		})
		var all []uint64
		for range test.want {
			all = append(all, receive(t, "a message of "+name, got))
		}
		w.settled("EDGE", name)
		if err := r.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		close(got)
		for seq := range got {
			all = append(all, seq)
		}
		if !slices.Equal(all, test.want) {
			t.Errorf("%s: %v, want %v", name, all, test.want)
		}
	}
}

// receiveStored is when EDGE took a message.
func receiveStored(t *testing.T, w *world, seq uint64) time.Time {
	t.Helper()
	s, err := w.js.Stream(t.Context(), "EDGE")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	return m.Time
}

func TestConsumeRefusesWhatCannotBe(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	nothing := func(context.Context, *Message) error { return nil }
	for say, cfg := range map[string]ConsumerConfig{
		"Group":        {Group: "a.b"},
		"Group \"\"":   {},
		"Filter":       {Group: "g", Filter: "edge..x"},
		"AckWait":      {Group: "g", AckWait: time.Millisecond},
		"MaxDeliver":   {Group: "g", MaxDeliver: -2},
		"MaxInFlight":  {Group: "g", MaxInFlight: 1 << 20},
		"Backoff":      {Group: "g", Backoff: []time.Duration{-1}},
		"From":         {Group: "g", From: From{New: true, Seq: 1}},
		"ConsumeBatch": {Group: "g", Stream: "BLOCKS"},
		"stream NONE":  {Group: "g", Stream: "NONE"},
	} {
		if err := c.Consume(t.Context(), cfg, nothing); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
	if err := c.Consume(t.Context(), ConsumerConfig{Group: "g"}, nil); err == nil {
		t.Error("no handler is accepted")
	}
	if err := c.Consume(t.Context(), ConsumerConfig{Group: "g", Stream: "NONE"}, nothing); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error(err)
	}
}
