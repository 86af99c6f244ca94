package hub

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
)

// pumped is a group that is read without an HTTP client.
func (r *running) pumped(cfg jetstream.ConsumerConfig) (jetstream.Consumer, <-chan admin.Message, <-chan error, context.CancelFunc) {
	r.t.Helper()
	c := backEnd(r.t, r.connect(), "EDGE", cfg)
	ctx, cancel := context.WithCancel(context.Background())
	r.t.Cleanup(cancel)
	out, failed := make(chan admin.Message), make(chan error, 1)
	go func() { failed <- pumpGroup(ctx, c, 0, out) }()
	return c, out, failed, cancel
}

func take(t *testing.T, in <-chan admin.Message) admin.Message {
	t.Helper()
	select {
	case m := <-in:
		return m
	case <-time.After(time.Minute):
		t.Fatal("no message comes")
		return admin.Message{}
	}
}

func ends(t *testing.T, failed <-chan error) error {
	t.Helper()
	select {
	case err := <-failed:
		return err
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return nil
	}
}

// TestUnseenMessagesUseUpNothing: where deliveries are counted, a client that
// leaves has used up those of what it was handed, and of the next at most.
func TestUnseenMessagesUseUpNothing(t *testing.T) {
	r := withMessages(t, "one", "two", "three", "four", "five", "six")
	c, out, failed, cancel := r.pumped(jetstream.ConsumerConfig{Durable: "billing", MaxDeliver: 1})
	if m := take(t, out); string(m.Payload) != "one" {
		t.Fatalf("got %q", m.Payload)
	}
	eventually(t, "the next is on its way", func() bool {
		info, err := c.Info(t.Context())
		return err == nil && info.Delivered.Consumer >= 2
	})
	cancel()
	if err := ends(t, failed); err != nil {
		t.Error(err)
	}
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Delivered.Stream > 2 {
		t.Errorf("%d messages count as delivered, and one was handed over", info.Delivered.Stream)
	}
}

// TestGroupRemovedBehindTheClientsBack: nothing was asked for when the group was
// removed, so that nobody was told of it.
func TestGroupRemovedBehindTheClientsBack(t *testing.T) {
	for what, remove := range map[string]func(*running) error{
		"consumer": func(r *running) error { return r.open.Load().js.DeleteConsumer(r.t.Context(), "EDGE", "billing") },
		"stream":   func(r *running) error { return r.open.Load().js.DeleteStream(r.t.Context(), "EDGE") },
	} {
		t.Run(what, func(t *testing.T) {
			r := withMessages(t, "one", "two", "three")
			_, out, failed, _ := r.pumped(jetstream.ConsumerConfig{Durable: "billing", MaxDeliver: 5})
			take(t, out)
			take(t, out) // the third is fetched, or will be
			if err := remove(r); err != nil {
				t.Fatal(err)
			}
			for {
				select {
				case <-out:
					continue
				case err := <-failed:
					if !groupGone(err) {
						t.Errorf("it ends with %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("it does not end")
				}
				return
			}
		})
	}
}

// TestManyGroups: clients make no more than the server can keep.
func TestManyGroups(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), func(h *Hub) { h.groups = 2 })
	for _, group := range []string{"a", "b", "a"} {
		if got := r.read("wait=50ms&group=" + group); len(got) != 0 {
			t.Errorf("%s: %+v", group, got)
		}
	}
	if code, body := r.get("/v1/messages?wait=50ms&group=c"); code != http.StatusTooManyRequests || !strings.Contains(body, "stream EDGE has 2") {
		t.Errorf("one too many: %d %s", code, body)
	}
}

// askAs is a request of a group with a header.
func (r *running) askAs(query, key, value string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Addrs().HTTP+"/v1/messages?"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(key, value)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestGroupIsNotForOtherSites: an image of any page would take messages.
func TestGroupIsNotForOtherSites(t *testing.T) {
	r := withMessages(t, "one")
	for _, site := range []string{"cross-site", "same-site", "what"} {
		if code, body := r.askAs("group=billing&limit=1", "Sec-Fetch-Site", site); code != http.StatusForbidden || !strings.Contains(body, "other sites") {
			t.Errorf("%s: %d %s", site, code, body)
		}
	}
	if _, err := r.open.Load().js.Consumer(t.Context(), "EDGE", "billing"); err == nil {
		t.Error("the group was made")
	}
	if code, _ := r.askAs("group=billing&limit=1", "Sec-Fetch-Site", "same-origin"); code != http.StatusOK {
		t.Errorf("a page of the hub: %d", code)
	}
}

// TestGroupAsEvents: a group knows where it is. A place that a browser remembers
// may be one of another stream, and would make a new group pass messages over.
func TestGroupAsEvents(t *testing.T) {
	r := withMessages(t, "one", "two")
	code, body := r.askAs("group=billing&limit=2", "Last-Event-ID", "1")
	if code != http.StatusOK || strings.Contains(body, "id:") || !strings.Contains(body, `"payload":"one"`) || !strings.Contains(body, `"payload":"two"`) {
		t.Errorf("%d %s", code, body)
	}
}

// TestAckOfWhatWasNotHandedOut: a token that somebody made up takes no message
// away from the group.
func TestAckOfWhatWasNotHandedOut(t *testing.T) {
	r := withMessages(t, "one", "two", "three")
	got := r.read("group=billing&limit=1")
	forged := admin.Ack{Acks: []string{ackToken(ackPrefix + "EDGE.billing.1.3.3.0.0")}}
	if code, body := r.postJSON("/v1/ack", forged); code != http.StatusServiceUnavailable {
		t.Errorf("an ack of what was not handed out: %d %s", code, body)
	}
	rest := r.read("group=billing&limit=2")
	if payloads(rest) != "two three" || payloads(got) != "one" {
		t.Errorf("got %+v, then %+v", got, rest)
	}
}

// fetched is a message of a batch that is not over yet.
type fetched struct {
	jetstream.Msg
	back *atomic.Int64
}

func (m fetched) Metadata() (*jetstream.MsgMetadata, error) { return &jetstream.MsgMetadata{}, nil }
func (m fetched) Subject() string                           { return "edge.d.a" }
func (m fetched) Headers() nats.Header                      { return nil }
func (m fetched) Data() []byte                              { return nil }
func (m fetched) Reply() string                             { return "" }
func (m fetched) Nak() error                                { m.back.Add(1); return nil }

type openBatch struct{ messages chan jetstream.Msg }

func (b openBatch) Messages() <-chan jetstream.Msg { return b.messages }
func (b openBatch) Error() error                   { return nil }

// TestWhatGoesBackDoesNotComeAgain: as long as a request for messages stands, what
// is given back would come straight to it.
func TestWhatGoesBackDoesNotComeAgain(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var back atomic.Int64
	batch := openBatch{make(chan jetstream.Msg)}
	done := make(chan error, 1)
	go func() {
		_, err := handOver(gone, batch, make(chan admin.Message))
		done <- err
	}()
	const n = 3
	for range n {
		batch.messages <- fetched{back: &back}
		if got := back.Load(); got != 0 {
			t.Errorf("%d went back while the request stands", got)
		}
	}
	close(batch.messages)
	if err := ends(t, done); err != nil || back.Load() != n {
		t.Errorf("%d of %d went back: %v", back.Load(), n, err)
	}
}
