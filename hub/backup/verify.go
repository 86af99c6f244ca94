package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// settleWait is how long a cluster may take until a stream that was restored has
// its copies and its consumers.
const settleWait = 5 * time.Minute

// verify waits until a stream is what the manifest says.
func verify(ctx context.Context, js jetstream.JetStream, p planned, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooLong)
	defer cancel()
	for {
		err := patiently(ctx, func(ctx context.Context) error { return look(ctx, js, p) })
		if err == nil || errors.As(err, new(*mismatch)) {
			return err
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTooLong) {
				return cause
			}
			return fmt.Errorf("after %s: %w", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

var errTooLong = errors.New("backup: too long")

// mismatch will not get better.
type mismatch struct{ text string }

func (e *mismatch) Error() string { return e.text }

// incomplete may get better while a cluster copies; of a stream that was complete
// before, a power cut has taken something.
type incomplete struct{ text string }

func (e *incomplete) Error() string { return e.text }

// look compares once.
func look(ctx context.Context, js jetstream.JetStream, p planned) error {
	s, err := js.Stream(ctx, p.Name)
	if err != nil {
		return err
	}
	info := s.CachedInfo()
	have := info.State
	first := have.FirstSeq
	if have.Msgs == 0 {
		first = have.LastSeq + 1
	}
	if p.Name == store.Advisories && have.LastSeq > p.Last { // of a back end that is at work already
		have.LastSeq, have.Msgs, first = p.Last, p.Messages, p.First
	}
	if have.LastSeq > p.Last {
		return &mismatch{fmt.Sprintf("it ends with message %d, and in the backup with %d: somebody writes to it; stop that, and run this again", have.LastSeq, p.Last)}
	}
	if first != p.First || have.LastSeq != p.Last || have.Msgs != p.Messages {
		return &incomplete{fmt.Sprintf("it holds %d messages from %d to %d, and in the backup %d from %d to %d", have.Msgs, first, have.LastSeq, p.Messages, p.First, p.Last)}
	}
	for _, want := range p.Consumers {
		c, err := s.Consumer(ctx, want.Name)
		switch {
		case errors.Is(err, jetstream.ErrNotPullConsumer):
			continue // a client's own affair
		case err != nil:
			return fmt.Errorf("consumer %s: %w", want.Name, err)
		}
		// A back end that is there already may have got on.
		if at := c.CachedInfo(); at.AckFloor.Stream < want.Acked || at.Delivered.Stream < want.Consumed {
			return fmt.Errorf("consumer %s has acked up to %d and was given up to %d, and in the backup %d and %d",
				want.Name, at.AckFloor.Stream, at.Delivered.Stream, want.Acked, want.Consumed)
		}
	}
	return nil
}

// copies waits until every server that is to hold a stream, and can be reached,
// has all of it, and more than half of them do. The cluster's own word for it,
// current, is not enough: a follower that has not yet begun to fetch what was
// restored is current too. A consumer without replicas is led by any of them, and
// counts what that one has.
func copies(ctx context.Context, js jetstream.JetStream, p planned, replicas int) error {
	if replicas < 2 || p.Messages == 0 || p.Name == store.Advisories { // whose consumers would take messages away
		return nil
	}
	whole := map[string]bool{}
	for most, since := uint64(0), time.Now(); ; {
		var at string
		var n uint64
		err := patiently(ctx, func(ctx context.Context) (err error) {
			at, n, err = count(ctx, js, p.Name)
			return err
		})
		if err != nil {
			return err
		}
		if n >= p.Messages {
			whole[at] = true
		}
		if n > most {
			most, since = n, time.Now()
		}
		missing, err := without(ctx, js, p.Name, whole)
		if err != nil {
			return err
		}
		if len(missing) == 0 && len(whole) > replicas/2 {
			return nil
		}
		if time.Since(since) > settleWait {
			return fmt.Errorf("%d of %d servers have it; %v do not get on", len(whole), replicas, missing)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// count asks one server, whichever it is, how many messages of a stream it has.
func count(ctx context.Context, js jetstream.JetStream, stream string) (server string, n uint64, err error) {
	cons, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, Replicas: 1, MemoryStorage: true, InactiveThreshold: time.Minute,
	})
	if err != nil {
		return "", 0, err
	}
	info := cons.CachedInfo()
	if info.Cluster != nil {
		server = info.Cluster.Leader
	}
	return server, info.NumPending, js.DeleteConsumer(ctx, stream, info.Name)
}

// without lists the servers of a stream that can be reached and are not in whole.
func without(ctx context.Context, js jetstream.JetStream, stream string, whole map[string]bool) (missing []string, err error) {
	err = patiently(ctx, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		missing = nil
		c := s.CachedInfo().Cluster
		if c == nil || c.Leader == "" {
			missing = []string{"the leader"}
			return nil
		}
		if !whole[c.Leader] {
			missing = append(missing, c.Leader)
		}
		for _, r := range c.Replicas {
			if !r.Offline && !whole[r.Name] {
				missing = append(missing, r.Name)
			}
		}
		return nil
	})
	return missing, err
}
