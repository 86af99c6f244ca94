package trace

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxConsumers bounds an answer; a stream has 1,000 at most.
const maxConsumers = 100

// consumers says what the durable consumers of a stream have had of a message,
// whose last part is at last.
func (a *asked) consumers(ctx context.Context, stream string, f found, last uint64) error {
	st, err := a.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("trace: stream %s: %w", stream, err)
	}
	list := st.ListConsumers(ctx)
	shown, more := 0, 0
	for c := range list.Info() {
		if c.Config.Durable == "" || !takes(&c.Config, f.subject) {
			continue
		}
		if shown == maxConsumers {
			more++
			continue
		}
		shown++
		state, text := standing(c, last, f.time)
		a.step(admin.TraceStep{Hop: "consumer", State: state, Stream: stream, Seq: f.seq, Consumer: c.Name, Text: text})
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("trace: consumers of %s: %w", stream, err)
	}
	switch {
	case more > 0:
		a.step(admin.TraceStep{Hop: "consumer", State: "unknown", Stream: stream, Text: fmt.Sprintf("%d more consumers take it, which are not shown", more)})
	case shown == 0:
		a.step(admin.TraceStep{Hop: "consumer", State: "none", Stream: stream, Text: fmt.Sprintf("no durable consumer of %s takes this subject", stream)})
	}
	return nil
}

// takes reports whether a consumer's filters, as they are now, take a subject.
func takes(c *jetstream.ConsumerConfig, subject string) bool {
	if c.FilterSubject == "" && len(c.FilterSubjects) == 0 {
		return true
	}
	for _, f := range append(c.FilterSubjects, c.FilterSubject) {
		if f != "" && wire.MatchFilter(f, subject) {
			return true
		}
	}
	return false
}

// standing says what a consumer has had of the message at seq, which was stored
// then. The server keeps how far it has delivered and up to where everything is
// settled; of what lies between, it does not say which.
func standing(c *jetstream.ConsumerInfo, seq uint64, stored time.Time) (state, text string) {
	floor, delivered := c.AckFloor.Stream, c.Delivered.Stream
	switch c.Config.DeliverPolicy {
	case jetstream.DeliverByStartSequencePolicy:
		if seq < c.Config.OptStartSeq {
			return "before", fmt.Sprintf("begins with sequence %d, behind it", c.Config.OptStartSeq)
		}
	case jetstream.DeliverByStartTimePolicy:
		if t := c.Config.OptStartTime; t != nil && stored.Before(*t) {
			return "before", fmt.Sprintf("begins with what was stored at %s, after it", t.UTC().Format(time.RFC3339))
		}
	case jetstream.DeliverNewPolicy:
		if stored.Before(c.Created) {
			return "before", "was made after it was stored, and takes only what is newer"
		}
	case jetstream.DeliverLastPolicy, jetstream.DeliverLastPerSubjectPolicy:
		if stored.Before(c.Created) && seq <= delivered {
			return "unknown", fmt.Sprintf("was made after it was stored and began with the last message (delivered up to at least %d): whether it ever got this one is not known", delivered)
		}
	}
	switch {
	case seq > delivered:
		return "pending", fmt.Sprintf("has not got it yet: delivered up to %d, %d messages wait for it", delivered, c.NumPending)
	case c.Config.AckPolicy == jetstream.AckNonePolicy:
		return "delivered", fmt.Sprintf("was sent it (delivered up to at least %d); it acknowledges nothing, so whether it arrived is not known", delivered)
	case seq <= floor:
		return "settled", fmt.Sprintf("has settled it: everything up to at least %d is acknowledged, terminated or given up", floor)
	}
	return "delivered", fmt.Sprintf("was sent it (up to at least %d); settled is everything up to %d, and of what lies between, %d messages are not: whether this is one of them is not known",
		delivered, floor, c.NumAckPending)
}
