package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
)

const (
	tailPull   = 2 << 20 // bytes asked for ahead of the client, at least one message
	tailBuffer = 4       // messages between the reader and the client
	// tailInactive is how long a consumer lives that nobody asks: longer than a
	// client may take nothing.
	tailInactive = answerTimeout + 15*time.Second
)

// tail streams a route's messages as they are stored.
func (h *Hub) tail(w http.ResponseWriter, r *http.Request) {
	p := h.running(w)
	if p == nil {
		return
	}
	stream, cfg, err := h.tailQuery(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	select {
	case h.tails <- struct{}{}:
		defer func() { <-h.tails }()
	default:
		problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d clients follow already; end one of them", cap(h.tails)))
		return
	}
	// A connection of its own: one that is not read fast enough is cut by the server.
	nc, err := p.store.Connect("fieldpost-hub tail " + h.instance)
	if err != nil {
		h.unreadable(w, err)
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		h.unreadable(w, err)
		return
	}
	// Not under the client's context: a consumer that is made after its client
	// gave up would be nobody's.
	making, made := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	consumer, err := js.CreateConsumer(making, stream, cfg)
	made()
	if err != nil {
		h.unreadable(w, err)
		return
	}
	defer h.forget(js, stream, consumer.CachedInfo().Name)
	messages, err := consumer.Messages(jetstream.PullMaxBytes(max(tailPull, 2*int(nc.MaxPayload()))))
	if err != nil {
		h.unreadable(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(ctx, messages.Stop)()
	lines := make(chan admin.Message, tailBuffer)
	failed := make(chan error, 1)
	go func() { failed <- pump(ctx, messages, lines) }()
	defer func() {
		cancel()
		messages.Stop()
		if err := <-failed; err != nil && r.Context().Err() == nil {
			h.cfg.Log.Debug("a tail ended", "stream", stream, "err", err)
		}
	}()
	sendLines(ctx, w, lines)
	if ctx.Err() == nil {
		panic(http.ErrAbortHandler) // an answer that ends early must not look complete
	}
}

func (h *Hub) unreadable(w http.ResponseWriter, err error) {
	if h.stopping.Load() {
		problem(w, http.StatusServiceUnavailable, "stopping", "the hub is stopping; try again in a moment")
		return
	}
	problem(w, http.StatusServiceUnavailable, "unavailable", "the stream cannot be read now: "+err.Error())
}

// forget removes the consumer now; left alone it would hold the server's memory
// until tailInactive has passed.
func (h *Hub) forget(js jetstream.JetStream, stream, consumer string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := js.DeleteConsumer(ctx, stream, consumer); err != nil && !h.stopping.Load() {
		h.cfg.Log.Debug("consumer of a tail is left to expire", "stream", stream, "err", err)
	}
}

// tailQuery reads ?stream=, ?filter= and ?from=.
func (h *Hub) tailQuery(r *http.Request) (stream string, cfg jetstream.ConsumerConfig, err error) {
	q := r.URL.Query()
	cfg = jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: tailInactive,
		Description: "Fieldpost: GET /v1/tail",
	}
	route := h.cfg.Routes[0]
	if want := q.Get("stream"); want != "" {
		i := 0
		for i < len(h.cfg.Routes) && h.cfg.Routes[i].Stream != want {
			i++
		}
		if i == len(h.cfg.Routes) {
			return "", cfg, fmt.Errorf("stream %q has no route here", want)
		}
		route = h.cfg.Routes[i]
	}
	if filter := q.Get("filter"); filter != "" && filter != ">" {
		if err := checkFilter(filter); err != nil {
			return "", cfg, err
		}
		if !within(filter, route.Prefix) {
			return "", cfg, fmt.Errorf("filter %q: subjects in %s begin with %s., such as %[3]s.<device>.>", filter, route.Stream, route.Prefix)
		}
		cfg.FilterSubjects = []string{filter}
	}
	switch from := q.Get("from"); from {
	case "", "new":
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	case "first":
		cfg.DeliverPolicy = jetstream.DeliverAllPolicy
	default:
		if seq, err := strconv.ParseUint(from, 10, 64); err == nil && seq > 0 {
			cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seq
		} else if t, err := time.Parse(time.RFC3339, from); err == nil {
			cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &t
		} else {
			return "", cfg, fmt.Errorf("from %q is not new, first, a stream sequence or an RFC 3339 time", from)
		}
	}
	return route.Stream, cfg, nil
}

// within reports whether the filter can match a subject below the prefix.
func within(filter, prefix string) bool {
	tokens := strings.Split(filter, ".")
	for i, p := range strings.Split(prefix, ".") {
		switch {
		case i == len(tokens):
			return false
		case tokens[i] == ">":
			return true
		case tokens[i] != "*" && tokens[i] != p:
			return false
		}
	}
	return len(tokens) > len(strings.Split(prefix, "."))
}

// pump moves messages to the client's buffer and waits while it is full; no
// more than tailPull is on its way here meanwhile. A message that got lost on
// the way, as when a cluster's server restarts, ends it: the client goes on with
// from=<the next sequence>.
func pump(ctx context.Context, in jetstream.MessagesContext, out chan<- admin.Message) error {
	defer close(out)
	for next := uint64(1); ; next++ {
		m, err := in.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != next {
			return fmt.Errorf("messages before %d got lost", meta.Sequence.Stream)
		}
		line := admin.Message{Subject: m.Subject(), Seq: meta.Sequence.Stream, Time: meta.Timestamp.UTC(), Payload: m.Data()}
		for key, values := range m.Headers() {
			if strings.HasPrefix(key, "Nats-") {
				continue // of the storage, not of the message
			}
			if line.Headers == nil {
				line.Headers = map[string][]string{}
			}
			line.Headers[key] = values
		}
		select {
		case out <- line:
		case <-ctx.Done():
			return nil
		}
	}
}

// sendLines returns when the client is gone or takes nothing for answerTimeout.
func sendLines(ctx context.Context, w http.ResponseWriter, lines <-chan admin.Message) {
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	// The server's read deadline is for requests; here it would end the answer.
	if rc.SetReadDeadline(time.Time{}) != nil || rc.Flush() != nil {
		return
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for {
		select {
		case <-ctx.Done():
			return
		case m, ok := <-lines:
			if !ok {
				return
			}
			if rc.SetWriteDeadline(time.Now().Add(answerTimeout)) != nil || enc.Encode(m) != nil {
				return
			}
			if len(lines) == 0 && rc.Flush() != nil {
				return
			}
		}
	}
}
