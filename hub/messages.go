package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

const (
	groupFetch   = 32              // messages asked for at once
	groupFetchIn = 2 * time.Second // a request for them lives so long
	groupRetry   = 250 * time.Millisecond
	groupGrace   = 50 * time.Millisecond
	groupAckWait = 30 * time.Second
	groupPending = 1000
	maxGroups    = 1000 // consumers of a stream, beyond which none is made over HTTP
)

var groupName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// messages reads a route's stream over HTTP: without a group everything from
// ?from= on, with one the messages that no other client of the group has.
func (h *Hub) messages(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("group") == "" {
		h.follow(w, r, "first")
		return
	}
	if !own(w, r) { // what is handed out counts as delivered
		return
	}
	stream, cfg, err := h.groupQuery(r)
	form, ok := asked(w, r, err)
	if !ok {
		return
	}
	nc, js, end := h.reader(w)
	if nc == nil {
		return
	}
	defer end()
	making, made := context.WithTimeout(r.Context(), 10*time.Second)
	consumer, err := h.groupConsumer(making, js, stream, cfg, r)
	var retries jetstream.Consumer
	if err == nil {
		retries, err = retryConsumer(making, js, cfg)
	}
	made()
	var differs *groupDiffers
	switch {
	case errors.Is(err, errManyGroups):
		problem(w, http.StatusTooManyRequests, "quota", err.Error())
		return
	case errors.As(err, &differs):
		problem(w, http.StatusConflict, "group_differs", err.Error())
		return
	case err != nil:
		h.unreadable(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	lines := make(chan admin.Message) // what is in it would count as delivered
	failed := make(chan error, 2)
	for _, c := range []jetstream.Consumer{consumer, retries} {
		go func() {
			defer cancel() // one that is removed ends the answer
			failed <- pumpGroup(ctx, c, form.limit, lines)
		}()
	}
	complete := sendLines(ctx, w, lines, form)
	cancel()
	for range cap(failed) {
		if err := <-failed; err != nil && r.Context().Err() == nil {
			h.cfg.Log.Debug("a group's client was cut off", "stream", stream, "group", cfg.Durable, "err", err)
		}
	}
	if !complete && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // an answer that ends early must not look complete
	}
}

// errManyGroups means that a stream has as many consumers as the hub lets clients
// over HTTP make. They are kept for ever.
var errManyGroups = errors.New("too many consumers")

// groupPlace reports whether there is room for one more group.
func (h *Hub) groupPlace(ctx context.Context, js jetstream.JetStream, stream string) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	if n := s.CachedInfo().State.Consumers; n >= h.groups {
		return fmt.Errorf("%w: stream %s has %d, and no group is made over HTTP beyond %d; remove some with `nats consumer rm`, or use a group that exists", errManyGroups, stream, n, h.groups)
	}
	return nil
}

// groupQuery reads what a group's consumer should be.
func (h *Hub) groupQuery(r *http.Request) (stream string, cfg jetstream.ConsumerConfig, err error) {
	if r.Header.Get("Last-Event-ID") != "" { // the group knows where it is
		r = r.Clone(r.Context())
		r.Header.Del("Last-Event-ID")
	}
	stream, cfg, err = h.tailQuery(r, "first")
	if err != nil {
		return "", cfg, err
	}
	q := r.URL.Query()
	cfg.Durable = q.Get("group")
	cfg.Description, cfg.AckPolicy, cfg.MemoryStorage = "Fieldpost: GET /v1/messages", jetstream.AckExplicitPolicy, false
	cfg.Replicas, cfg.InactiveThreshold = 0, 0 // as the stream; never given up
	cfg.AckWait, cfg.MaxAckPending, cfg.MaxDeliver = groupAckWait, groupPending, -1
	if !groupName.MatchString(cfg.Durable) {
		return "", cfg, fmt.Errorf("group %q is not 1 to 64 of A-Z a-z 0-9 _ -", cfg.Durable)
	}
	if s := q.Get("ack_wait"); s != "" {
		if cfg.AckWait, err = time.ParseDuration(s); err != nil || cfg.AckWait < time.Second {
			return "", cfg, fmt.Errorf("ack_wait %q is not a duration of a second or more, such as 30s", s)
		}
	}
	for key, p := range map[string]*int{"max_deliver": &cfg.MaxDeliver, "max_in_flight": &cfg.MaxAckPending} {
		if s := q.Get(key); s != "" {
			if *p, err = strconv.Atoi(s); err != nil || *p < 1 {
				return "", cfg, fmt.Errorf("%s %q is not a number from 1 on", key, s)
			}
		}
	}
	return stream, cfg, nil
}

// groupDiffers says that the group exists and is not what the client asks for.
type groupDiffers struct{ group, key, is, want string }

func (e *groupDiffers) Error() string {
	return fmt.Sprintf("group %s has %s %s, not %s: leave %[2]s out to use it as it is, choose another group, or remove the consumer and with it how far it is", e.group, e.key, e.is, e.want)
}

// groupConsumer makes the group, or finds it. What the client asks for has to be
// what it is.
func (h *Hub) groupConsumer(ctx context.Context, js jetstream.JetStream, stream string, want jetstream.ConsumerConfig, r *http.Request) (jetstream.Consumer, error) {
	consumer, err := js.Consumer(ctx, stream, want.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if err = h.groupPlace(ctx, js, stream); err == nil {
			consumer, err = js.CreateConsumer(ctx, stream, want)
		}
		if errors.Is(err, jetstream.ErrConsumerExists) { // another client was faster
			consumer, err = js.Consumer(ctx, stream, want.Durable)
		}
	}
	if err != nil {
		return nil, err
	}
	is := consumer.CachedInfo().Config
	filters := is.FilterSubjects
	if is.FilterSubject != "" {
		filters = []string{is.FilterSubject}
	}
	q := r.URL.Query()
	for _, c := range []struct {
		key      string
		is, want any
		same     bool
	}{
		{"filter", filters, want.FilterSubjects, slices.Equal(filters, want.FilterSubjects)},
		{"ack_wait", is.AckWait, want.AckWait, is.AckWait == want.AckWait},
		{"max_deliver", is.MaxDeliver, want.MaxDeliver, is.MaxDeliver == want.MaxDeliver},
		{"max_in_flight", is.MaxAckPending, want.MaxAckPending, is.MaxAckPending == want.MaxAckPending},
	} {
		if q.Get(c.key) != "" && !c.same {
			return nil, &groupDiffers{want.Durable, c.key, fmt.Sprint(c.is), fmt.Sprint(c.want)}
		}
	}
	if is.AckPolicy != jetstream.AckExplicitPolicy || is.DeliverSubject != "" {
		return nil, &groupDiffers{want.Durable, "consumer", "one without explicit acks or one that pushes", "a pull consumer with explicit acks"}
	}
	return consumer, nil
}

// retryConsumer is the group's place among the dead letters that are offered once
// more.
func retryConsumer(ctx context.Context, js jetstream.JetStream, group jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := js.Consumer(ctx, store.Retry, group.Durable)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return c, err
	}
	group.FilterSubjects = []string{"retry." + group.Durable}
	group.DeliverPolicy, group.OptStartSeq, group.OptStartTime = jetstream.DeliverAllPolicy, 0, nil
	return js.CreateOrUpdateConsumer(ctx, store.Retry, group)
}

// pumpGroup hands messages over one by one, no more than limit. What it has
// fetched and cannot hand over goes back at once; where that uses up deliveries it
// fetches one at a time.
func pumpGroup(ctx context.Context, consumer jetstream.Consumer, limit int, out chan<- admin.Message) error {
	most := groupFetch
	if consumer.CachedInfo().Config.MaxDeliver > 0 {
		most = 1
	}
	for sent := 0; ctx.Err() == nil; {
		n := most
		if limit > 0 {
			n = min(n, limit-sent)
		}
		if n == 0 {
			<-ctx.Done() // the client has all that it asked for
			return nil
		}
		k, err := fetch(ctx, consumer, n, out)
		sent += k
		if err == nil {
			continue
		}
		if groupGone(err) {
			return err
		}
		// A leader that changes: the next may answer. Who asks for messages of a
		// consumer that was removed meanwhile gets no answer.
		if _, err := consumer.Info(ctx); groupGone(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(groupRetry):
		}
	}
	return nil
}

// groupGone reports whether an error is for good.
func groupGone(err error) bool {
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrConsumerDeleted) ||
		errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, nats.ErrConnectionClosed)
}

// fetch asks for n messages and passes them on; sent counts what was taken. It
// outlives ctx for a moment, so that what is on its way here is given back.
func fetch(ctx context.Context, consumer jetstream.Consumer, n int, out chan<- admin.Message) (sent int, err error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), groupFetchIn)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(groupGrace, cancel) })()
	batch, err := consumer.Fetch(n, jetstream.FetchContext(own))
	if err != nil {
		return 0, err
	}
	return handOver(ctx, batch, out)
}

// handOver passes a batch on; sent counts what was taken. The rest is given back
// once the batch is over, or it would come again in it.
func handOver(ctx context.Context, batch jetstream.MessageBatch, out chan<- admin.Message) (sent int, err error) {
	var back []jetstream.Msg
	defer func() {
		for _, m := range back {
			err = errors.Join(err, m.Nak())
		}
	}()
	for m := range batch.Messages() {
		meta, e := m.Metadata()
		if e != nil {
			return sent, e
		}
		line := lineOf(m, meta)
		if meta.Stream == store.Retry {
			line.Original()
		}
		line.Ack, line.Deliveries = ackToken(m.Reply()), meta.NumDelivered
		if ctx.Err() != nil {
			back = append(back, m)
			continue
		}
		select {
		case out <- line:
			sent++
		case <-ctx.Done():
			back = append(back, m)
		}
	}
	return sent, batch.Error()
}
