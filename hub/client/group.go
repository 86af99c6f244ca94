package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// Names that are the same in every hub.
const (
	defaultStream = "EDGE"
	blocksStream  = "BLOCKS"
	retryStream   = "RETRY"
)

const (
	// maxAckPending bounds what all processes of a group have taken and not
	// settled, what waits for its next try included.
	maxAckPending = 10_000
	minAckWait    = 100 * time.Millisecond
	maxFilters    = 1000
)

// From says where a new group, or a replay, begins. The zero value is the first
// message that the stream still holds.
type From struct {
	New  bool      // only what is stored from now on
	Time time.Time // what was stored at this time or later
	Seq  uint64    // this sequence of the stream or later
}

// policy is From as JetStream says it.
func (f From) policy() (p jetstream.DeliverPolicy, seq uint64, at *time.Time, err error) {
	n := 0
	for _, set := range []bool{f.New, !f.Time.IsZero(), f.Seq > 0} {
		if set {
			n++
		}
	}
	switch {
	case n > 1:
		return p, 0, nil, errors.New("hub/client: From: choose one of New, Time and Seq")
	case f.New:
		return jetstream.DeliverNewPolicy, 0, nil, nil
	case f.Seq > 0:
		return jetstream.DeliverByStartSequencePolicy, f.Seq, nil, nil
	case !f.Time.IsZero():
		t := f.Time.UTC()
		return jetstream.DeliverByStartTimePolicy, 0, &t, nil
	}
	return jetstream.DeliverAllPolicy, 0, nil, nil
}

// checkGroup reports why a group cannot have this name: it names a durable
// consumer, and a token of the subject on which retries come.
func checkGroup(name string) error {
	if wire.CheckDevice(name) != nil {
		return fmt.Errorf("hub/client: Group %q is not 1 to %d of A-Z a-z 0-9 _ -", name, wire.MaxDevice)
	}
	return nil
}

// checkWithin reports why a filter takes nothing of a stream: most often it was
// meant for the publisher's subjects.
func checkWithin(filter, stream string, prefixes []string) error {
	if filter == "" || len(prefixes) == 0 {
		return nil
	}
	for _, p := range prefixes {
		want, rest := strings.Split(strings.TrimSuffix(p, "."), "."), filter
		for ok := true; ok; {
			var f string
			if len(want) == 0 || rest == ">" {
				return nil
			}
			f, rest, ok = strings.Cut(rest, ".")
			ok = ok && (f == "*" || f == want[0])
			want = want[1:]
		}
	}
	return fmt.Errorf("hub/client: Filter %q takes nothing of stream %s: its subjects begin with %s, such as %[3]s<device>.>", filter, stream, strings.Join(prefixes, " or "))
}

// group is a durable consumer as it should be.
type group struct {
	stream     string
	name       string
	filters    []string // none: everything
	from       From
	ackWait    time.Duration
	maxDeliver int // -1: no limit
}

func (g *group) config() (jetstream.ConsumerConfig, error) {
	policy, seq, at, err := g.from.policy()
	return jetstream.ConsumerConfig{
		Durable: g.name, Description: "Fieldpost: a group of back ends",
		DeliverPolicy: policy, OptStartSeq: seq, OptStartTime: at,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: g.ackWait, MaxDeliver: g.maxDeliver,
		MaxAckPending: maxAckPending, FilterSubjects: g.filters,
	}, err
}

// open returns the group's consumer: a new one, or the one that is there with
// its settings brought up to date. From is for a new one only: a group that
// exists goes on where it is.
func (c *Client) open(ctx context.Context, g *group) (s jetstream.Stream, cons jetstream.Consumer, err error) {
	err = c.ask(ctx, func(ctx context.Context) error {
		s, cons, err = c.openOnce(ctx, g)
		return err
	})
	return s, cons, err
}

func (c *Client) openOnce(ctx context.Context, g *group) (jetstream.Stream, jetstream.Consumer, error) {
	want, err := g.config()
	if err != nil {
		return nil, nil, err
	}
	stream, err := c.stream(ctx, g.stream)
	if err != nil {
		return nil, nil, err
	}
	for _, f := range g.filters {
		if err := checkWithin(f, g.stream, prefixesOf(stream.CachedInfo().Config.Subjects)); err != nil {
			return nil, nil, err
		}
	}
	for try := 0; ; try++ {
		cons, err := stream.Consumer(ctx, g.name)
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound):
			cons, err = stream.CreateConsumer(ctx, want)
		case err == nil:
			cons, err = c.adjust(ctx, stream, cons, want)
		}
		// Another process of the group may have been faster.
		raced := errors.Is(err, jetstream.ErrConsumerExists) || errors.Is(err, jetstream.ErrConsumerDoesNotExist)
		if raced && try < 3 {
			continue
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			err = fmt.Errorf("hub/client: group %s of stream %s: %w", g.name, g.stream, err)
		}
		return stream, cons, err
	}
}

// stream looks a stream up.
func (c *Client) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := c.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("hub/client: stream %s: %w; `fieldpost-hub status` lists those that there are", name, err)
	case err != nil:
		return nil, fmt.Errorf("hub/client: stream %s: %w", name, err)
	}
	return s, nil
}

// adjust changes in place what can be, and says what cannot.
func (c *Client) adjust(ctx context.Context, stream jetstream.Stream, cons jetstream.Consumer, want jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	cfg := cons.CachedInfo().Config
	if setting, is := unchangeable(&cfg); setting != "" {
		return nil, fmt.Errorf("%w: consumer %s of stream %s has %s %s, which cannot be changed in place; choose another Group, "+
			"or remove the consumer (then the group begins anew at From): nats consumer rm %[3]s %[2]s",
			ErrConflict, want.Durable, stream.CachedInfo().Config.Name, setting, is)
	}
	var changed []any
	if !slices.Equal(filtersOf(&cfg), filtersOf(&want)) {
		changed = append(changed, "filter", strings.Join(want.FilterSubjects, " "))
		cfg.FilterSubject, cfg.FilterSubjects = "", want.FilterSubjects
	}
	if cfg.AckWait != want.AckWait {
		changed = append(changed, "ack_wait", want.AckWait)
		cfg.AckWait = want.AckWait
	}
	if cfg.MaxDeliver != want.MaxDeliver {
		changed = append(changed, "max_deliver", want.MaxDeliver)
		cfg.MaxDeliver = want.MaxDeliver
	}
	if cfg.MaxAckPending != want.MaxAckPending {
		changed = append(changed, "max_ack_pending", want.MaxAckPending)
		cfg.MaxAckPending = want.MaxAckPending
	}
	if len(changed) == 0 {
		return cons, nil
	}
	cons, err := stream.UpdateConsumer(ctx, cfg)
	if err == nil {
		c.cfg.Log.Info("the group's settings are changed", append([]any{"group", want.Durable}, changed...)...)
	}
	return cons, err
}

// unchangeable names a setting of a consumer that a group cannot live with.
func unchangeable(cfg *jetstream.ConsumerConfig) (setting, is string) {
	switch {
	case cfg.AckPolicy != jetstream.AckExplicitPolicy:
		return "the ack policy", cfg.AckPolicy.String()
	case cfg.DeliverSubject != "":
		return "the deliver subject", cfg.DeliverSubject
	case cfg.HeadersOnly:
		return "headers_only", "true"
	case cfg.ReplayPolicy != jetstream.ReplayInstantPolicy:
		return "the replay policy", cfg.ReplayPolicy.String()
	case len(cfg.BackOff) > 0:
		return "a backoff of its own,", fmt.Sprint(cfg.BackOff)
	case len(cfg.PriorityGroups) > 0:
		return "the priority groups", strings.Join(cfg.PriorityGroups, " ")
	}
	return "", ""
}

func filtersOf(cfg *jetstream.ConsumerConfig) []string {
	out := slices.Clone(cfg.FilterSubjects)
	if cfg.FilterSubject != "" {
		out = append(out, cfg.FilterSubject)
	}
	slices.Sort(out)
	return out
}
