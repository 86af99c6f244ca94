package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
func (h *Hub) tail(w http.ResponseWriter, r *http.Request) { h.follow(w, r, "new") }

// follow streams messages that nobody has to acknowledge.
func (h *Hub) follow(w http.ResponseWriter, r *http.Request, from string) {
	stream, cfg, err := h.tailQuery(r, from)
	form, ok := asked(w, r, err)
	if !ok {
		return
	}
	nc, js, end := h.reader(w)
	if nc == nil {
		return
	}
	defer end()
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
	if !sendLines(ctx, w, lines, form) && ctx.Err() == nil {
		panic(http.ErrAbortHandler) // an answer that ends early must not look complete
	}
}

// reader opens a connection for one client that reads, if there is a place for
// it; else it answers why not and returns nil. A connection of its own: one that
// is not read fast enough is cut by the server.
func (h *Hub) reader(w http.ResponseWriter) (nc *nats.Conn, js jetstream.JetStream, end func()) {
	p := h.running(w)
	if p == nil {
		return nil, nil, nil
	}
	select {
	case h.tails <- struct{}{}:
	default:
		problem(w, http.StatusTooManyRequests, "quota", fmt.Sprintf("%d clients follow already; end one of them", cap(h.tails)))
		return nil, nil, nil
	}
	nc, err := p.store.Connect("fieldpost-hub reader " + h.instance)
	if err == nil {
		js, err = jetstream.New(nc)
	}
	if err != nil {
		if nc != nil {
			nc.Close()
		}
		<-h.tails
		h.unreadable(w, err)
		return nil, nil, nil
	}
	return nc, js, func() { nc.Close(); <-h.tails }
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

// tailQuery reads ?stream=, ?filter= and ?from=, or what a browser that comes
// back says that it had last.
func (h *Hub) tailQuery(r *http.Request, from string) (stream string, cfg jetstream.ConsumerConfig, err error) {
	q := r.URL.Query()
	cfg = jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: tailInactive,
		Description: "Fieldpost: GET /v1/tail",
	}
	route, err := h.cfg.unpacked(q.Get("stream"), q.Get("filter"))
	if err != nil {
		return "", cfg, err
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
	if s := q.Get("from"); s != "" {
		from = s
	}
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		from = strconv.FormatUint(last+1, 10)
	}
	if err := startAt(&cfg, from); err != nil {
		return "", cfg, err
	}
	return route.Stream, cfg, nil
}

// startAt makes a consumer begin where the client asks for.
func startAt(cfg *jetstream.ConsumerConfig, from string) error {
	switch from {
	case "new":
		cfg.DeliverPolicy = jetstream.DeliverNewPolicy
		return nil
	case "first":
		cfg.DeliverPolicy = jetstream.DeliverAllPolicy
		return nil
	}
	if seq, err := strconv.ParseUint(from, 10, 64); err == nil && seq > 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, seq
	} else if t, err := time.Parse(time.RFC3339, from); err == nil {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &t
	} else {
		return fmt.Errorf("from %q is not new, first, a stream sequence or an RFC 3339 time", from)
	}
	return nil
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
		select {
		case out <- lineOf(m, meta):
		case <-ctx.Done():
			return nil
		}
	}
}
