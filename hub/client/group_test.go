package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestGroupThatDiffersIsChangedInPlace(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 3)
	c := w.client()
	consume := func(cfg ConsumerConfig, n int) {
		t.Helper()
		got := make(chan struct{}, 10)
		r := w.run(func(ctx context.Context) error {
			return c.Consume(ctx, cfg, func(context.Context, *Message) error {
				got <- struct{}{}
				return nil
			})
		})
		for range n {
			receive(t, "a message", got)
		}
		w.settled("EDGE", "g")
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	}
	consume(ConsumerConfig{Group: "g"}, 3)
	w.edge(4, 5)
	// From is for a new group: this one goes on where it is.
	consume(ConsumerConfig{Group: "g", AckWait: 7 * time.Second, MaxDeliver: 3, Filter: "edge.*.sensors.>", From: From{Seq: 1}}, 2)
	got := w.info("EDGE", "g").Config
	if got.AckWait != 7*time.Second || got.MaxDeliver != 3 || !slices.Equal(filtersOf(&got), []string{"edge.*.sensors.>"}) {
		t.Errorf("%+v", got)
	}
	if !w.log.has("the group's settings are changed") {
		t.Error("nothing is said of the change")
	}
	w.edge(6, 6)
	consume(ConsumerConfig{Group: "g"}, 1)
	if got := w.info("EDGE", "g").Config; len(filtersOf(&got)) > 0 {
		t.Errorf("the filter stays: %+v", got)
	}
}

func TestGroupThatCannotBeChangedIsRefused(t *testing.T) {
	w := newWorld(t)
	c := w.client()
	for say, cfg := range map[string]jetstream.ConsumerConfig{
		"ack policy":     {AckPolicy: jetstream.AckNonePolicy},
		"headers_only":   {AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true},
		"replay policy":  {AckPolicy: jetstream.AckExplicitPolicy, ReplayPolicy: jetstream.ReplayOriginalPolicy},
		"backoff of its": {AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 5, BackOff: []time.Duration{time.Second}},
	} {
		cfg.Durable = "g"
		if _, err := w.js.CreateConsumer(t.Context(), "EDGE", cfg); err != nil {
			t.Fatal(err)
		}
		err := c.Consume(t.Context(), ConsumerConfig{Group: "g"}, func(context.Context, *Message) error { return nil })
		if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "nats consumer rm EDGE g") {
			t.Errorf("%s: %v", say, err)
		}
		if err := w.js.DeleteConsumer(t.Context(), "EDGE", "g"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGroupIsMadeByManyAtOnce(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 1)
	got := make(chan struct{}, 100)
	var rs []*running
	for i := range 8 {
		c := w.client()
		rs = append(rs, w.run(func(ctx context.Context) error {
			cfg := ConsumerConfig{Group: "g", AckWait: time.Duration(20+i%2) * time.Second} // they do not even agree
			return c.Consume(ctx, cfg, func(context.Context, *Message) error {
				got <- struct{}{}
				return nil
			})
		}))
	}
	receive(t, "the message", got)
	w.settled("EDGE", "g")
	for _, r := range rs {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
	if len(got) > 0 {
		t.Errorf("it was handled %d times", 1+len(got))
	}
}

func TestGroupThatIsRemovedEndsTheCall(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 1)
	got := make(chan struct{}, 10)
	c := w.client()
	r := w.run(func(ctx context.Context) error {
		return c.Consume(ctx, ConsumerConfig{Group: "g"}, func(context.Context, *Message) error {
			got <- struct{}{}
			return nil
		})
	})
	receive(t, "the message", got)
	w.settled("EDGE", "g")
	if err := w.js.DeleteConsumer(t.Context(), "EDGE", "g"); err != nil {
		t.Fatal(err)
	}
	if err := r.wait(); !errors.Is(err, ErrGroupRemoved) {
		t.Error(err)
	}
}

func TestRetriesAreReadOnceTheirStreamIsThere(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 1)
	for part := 1; part <= 2; part++ {
		w.put("edge.press-7.large", head(2, "Fieldpost-Part", fmt.Sprintf("%d/2", part)), []byte{'0' + byte(part)})
	}
	got := make(chan *Message, 10)
	c := w.client()
	r := w.run(func(ctx context.Context) error {
		return c.Consume(ctx, ConsumerConfig{Group: "g", MaxInFlight: 1}, func(_ context.Context, m *Message) error {
			got <- m
			return nil
		})
	})
	first, large := receive(t, "a message", got), receive(t, "a large one", got)
	if first.Retry != 0 || string(large.Payload) != "12" {
		t.Errorf("%+v %+v", first, large)
	}
	w.stream("RETRY", "retry.*")
	retry := func(n string, subject, seq string, own nats.Header, data []byte) {
		for k, v := range map[string]string{"Subject": subject, "Stream": "EDGE", "Stream-Seq": seq, "Retry": n} {
			own["Fieldpost-"+k] = []string{v}
		}
		w.put("retry.g", own, data)
	}
	w.put("retry.other", head(9), nil)                                                   // not for this group
	w.put("retry.g", head(9), []byte("does not say what it is"))                         // terminated
	retry("1", "edge.press-7.sensors.temp", "1", head(1), []byte("1"))                   // as it was
	retry("x", "edge.press-7.sensors.temp", "1", head(1), []byte("1"))                   // once, whatever it says
	retry("3", "edge.press-7.large", "3", head(2, "Fieldpost-Part", "2/2"), []byte("2")) // the last part
	retry("1", "edge.press-7.large", "2", head(2, "Fieldpost-Part", "1/2"), []byte("1")) // part of the one before
	for _, want := range []Message{
		{Subject: "sensors.temp", Payload: []byte("1"), StreamSeq: 1, Retry: 1},
		{Subject: "sensors.temp", Payload: []byte("1"), StreamSeq: 1, Retry: 1},
		{Subject: "large", Payload: []byte("12"), StreamSeq: 3, Retry: 3},
	} {
		m := receive(t, "a retry", got)
		if m.Subject != want.Subject || m.Device != "press-7" || string(m.Payload) != string(want.Payload) || m.Stream != "EDGE" ||
			m.StreamSeq != want.StreamSeq || m.Retry != want.Retry || m.Header != nil || m.Malformed != nil || m.Deliveries != 1 {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	w.settled("RETRY", "g")
	if i := w.info("RETRY", "g"); !slices.Equal(filtersOf(&i.Config), []string{"retry.g"}) {
		t.Errorf("%+v", i.Config)
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if len(got) > 0 {
		t.Errorf("%d more messages", len(got))
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 1)
	c := w.client()
	got, release := make(chan struct{}, 10), make(chan struct{})
	r := w.run(func(context.Context) error {
		return c.Consume(context.Background(), ConsumerConfig{Group: "g"}, func(ctx context.Context, _ *Message) error {
			got <- struct{}{}
			<-ctx.Done()
			<-release
			return nil
		})
	})
	receive(t, "the message", got)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	eventually(t, "no new call begins", func() error {
		if err := c.Consume(t.Context(), ConsumerConfig{Group: "g"}, func(context.Context, *Message) error { return nil }); !errors.Is(err, ErrClosed) {
			return fmt.Errorf("%w is not ErrClosed", err)
		}
		return nil
	})
	select {
	case err := <-closed:
		t.Errorf("closed while a handler ran: %v", err)
	default:
	}
	close(release)
	if err := receive(t, "the end of Close", closed); err != nil {
		t.Error(err)
	}
	if err := r.wait(); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if i := w.info("EDGE", "g"); i.NumAckPending > 0 || i.NumPending > 0 {
		t.Errorf("the ack is not there: %+v", i)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestCloseRacesConsume(t *testing.T) {
	w := newWorld(t)
	w.edge(1, 20)
	for range 5 {
		c := w.client()
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				err := c.Consume(context.Background(), ConsumerConfig{Group: "g"}, func(context.Context, *Message) error { return nil })
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%v is not ErrClosed", err)
				}
			})
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		calls.Wait()
	}
}

func TestConnectSaysWhatToDo(t *testing.T) {
	w := newWorld(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for say, test := range map[string]struct {
		ctx context.Context
		cfg Config
	}{
		"is the hub running":  {t.Context(), Config{URLs: []string{"nats://127.0.0.1:1"}}},
		"context canceled":    {ended, Config{URLs: []string{w.url()}}},
		"Config.HTTP":         {t.Context(), Config{URLs: []string{w.url()}, HTTP: "ftp://x"}},
		"Config.CA":           {t.Context(), Config{URLs: []string{w.url()}, CA: "/does/not/exist"}},
		"no certificate":      {t.Context(), Config{URLs: []string{w.url()}, CA: "client.go"}},
		"/does/not/exist.cre": {t.Context(), Config{URLs: []string{w.url()}, Creds: "/does/not/exist.creds"}},
	} {
		if _, err := Connect(test.ctx, test.cfg); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v", say, err)
		}
	}
}

func TestCallsBeginThoughTheServerIsAway(t *testing.T) {
	l := newLedger(t)
	l.edge(1, 1)
	l.block("press-7", msg("a", "1"))
	c := l.client()
	got := make(chan string, 10)
	handle := func(what string) Handler {
		return func(context.Context, *Message) error { got <- what; return nil }
	}
	l.stop()
	calls := []*running{
		l.run(func(ctx context.Context) error { return c.Consume(ctx, ConsumerConfig{Group: "g"}, handle("Consume")) }),
		l.run(func(ctx context.Context) error { return c.Replay(ctx, ReplayConfig{}, handle("Replay")) }),
		l.run(func(ctx context.Context) error {
			return c.ConsumeBatch(ctx, BatchConfig{Group: "g"}, func(context.Context, *Batch) error { got <- "ConsumeBatch"; return nil })
		}),
	}
	eventually(t, "the client knows", func() error {
		if c.nc.IsConnected() {
			return errors.New("it is connected")
		}
		return nil
	})
	l.start()
	var all []string
	for range calls {
		all = append(all, receive(t, "a message", got))
	}
	slices.Sort(all)
	if !slices.Equal(all, []string{"Consume", "ConsumeBatch", "Replay"}) {
		t.Error(all)
	}
	l.settled("EDGE", "g")
	l.settled("BLOCKS", "g")
	for i, r := range calls {
		if err := r.stop(); err != nil && !(i == 1 && errors.Is(err, context.Canceled)) {
			t.Error(err)
		}
	}
}

func TestWhatAServerSaysForGood(t *testing.T) {
	for err, want := range map[error]bool{
		jetstream.ErrStreamNotFound: true, ErrConflict: true, errParts: true, jetstream.ErrMsgNotFound: true,
		&jetstream.APIError{Code: 400}: true, &jetstream.APIError{Code: 503}: false,
		context.DeadlineExceeded: false, nats.ErrTimeout: false, nats.ErrNoResponders: false, nats.ErrReconnectBufExceeded: false,
	} {
		if got := answered(fmt.Errorf("hub/client: x: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func TestFiltersMustBeWithinTheStream(t *testing.T) {
	for filter, ok := range map[string]bool{
		"": true, ">": true, "*.>": true, "edge.>": true, "*.*.sensors.>": true, "edge.*.a": true, "a.b.x.y": true, "a.*.x": true, "a.>": true,
		"sensors.>": false, "edge": false, "*": false, "edgy.>": false, "a.b": false, "a.c.>": false, "fp.blocks.>": false,
	} {
		if err := checkWithin(filter, "EDGE", []string{"edge.", "a.b."}); (err == nil) != ok {
			t.Errorf("%q: %v", filter, err)
		}
	}
	w := newWorld(t)
	c := w.client()
	nothing := func(context.Context, *Message) error { return nil }
	for _, err := range []error{
		c.Consume(t.Context(), ConsumerConfig{Group: "g", Filter: "sensors.>"}, nothing), c.Replay(t.Context(), ReplayConfig{Filter: "sensors.>"}, nothing),
	} {
		if err == nil || !strings.Contains(err.Error(), "edge.<device>.>") {
			t.Error(err)
		}
	}
}
