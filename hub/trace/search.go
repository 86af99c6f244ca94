package trace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/hub/store"
)

// Limits bound what one answer looks through. The zero value is the default.
type Limits struct {
	Messages int           // by their headers; 0: 200,000
	Blocks   int           // of the ledger, whole; 0: 2,000
	Time     time.Duration // 0: 5 s
}

func (l Limits) withDefaults() Limits {
	if l.Messages == 0 {
		l.Messages = 200_000
	}
	if l.Blocks == 0 {
		l.Blocks = 2000
	}
	if l.Time == 0 {
		l.Time = 5 * time.Second
	}
	return l
}

const (
	firstWindow = 16 << 10 // sequences that are looked through first; each next time four times as many
	fetchMax    = 500      // headers that are on their way at the same time
	fetchWait   = 5 * time.Second
	goneAfter   = 30 * time.Second // the server removes a consumer that nobody pulls from
)

// search looks through streams within the limits of one answer.
type search struct {
	store    *store.Store
	js       jetstream.JetStream
	left     int // messages
	blocks   int
	until    time.Time
	searched []admin.Searched
}

func (t *Tracer) search() search {
	l := t.cfg.Limits
	return search{store: t.cfg.Store, js: t.cfg.JetStream, left: l.Messages, blocks: l.Blocks, until: time.Now().Add(l.Time)}
}

// incomplete reports whether something was not looked through to its end.
func (s *search) incomplete() bool {
	for _, x := range s.searched {
		if !x.Complete {
			return true
		}
	}
	return false
}

// found is a message that was looked for, without its body.
type found struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
}

// newest looks through what a filter takes of a stream, the newest window first,
// and returns what take takes in the first window where there is any.
func (s *search) newest(ctx context.Context, stream, filter string, take func(*found) bool) ([]found, error) {
	return s.windows(ctx, stream, filter, &s.left, take)
}

func (s *search) windows(ctx context.Context, stream, filter string, left *int, take func(*found) bool) (out []found, err error) {
	info, err := s.store.Info(ctx, stream)
	if err != nil {
		return nil, err
	}
	x := admin.Searched{Stream: stream, Filter: filter, First: info.Last + 1, Last: info.Last}
	defer func() { s.searched = append(s.searched, x) }()
	span := uint64(firstWindow)
	for hi := info.Last; hi >= info.First && hi > 0; {
		w := window{search: s, stream: stream, filter: filter, lo: max(info.First, hi-min(span, hi)+1), hi: hi, left: left, take: take}
		whole, err := w.read(ctx, x.Messages)
		x.Messages += w.looked
		switch {
		case errors.Is(err, errTooMany) && span > 1:
			span /= 2
			continue
		case errors.Is(err, errTooMany):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("trace: look through %s: %w", stream, err)
		case whole:
			x.First = w.lo
		}
		if len(w.out) > 0 {
			x.Complete = true
			return w.out, nil
		}
		if !whole {
			return nil, nil
		}
		hi = w.lo - 1
		span *= 4
	}
	x.Complete = true
	return nil, nil
}

// errTooMany means that a window holds more than may be looked at.
var errTooMany = errors.New("trace: too many messages")

// window is a part of a stream that is read in one go.
type window struct {
	*search
	stream, filter string
	lo, hi         uint64
	left           *int
	take           func(*found) bool

	looked int
	out    []found
}

// read reports whether the window was read to its end in time. So many messages
// were looked at behind it before.
func (w *window) read(ctx context.Context, behind int) (whole bool, err error) {
	if time.Now().After(w.until) {
		return false, nil
	}
	cfg := jetstream.ConsumerConfig{
		FilterSubject: w.filter, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.lo,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: goneAfter,
		Description: "Fieldpost: looking for one message",
	}
	c, err := w.js.CreateConsumer(ctx, w.stream, cfg)
	if err != nil {
		return false, err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchWait)
		defer cancel()
		w.js.DeleteConsumer(last, w.stream, c.CachedInfo().Name) // else the server does, after goneAfter
	}()
	pending := c.CachedInfo().NumPending
	if here := pending - min(pending, uint64(behind)); here > uint64(max(*w.left, 0)) {
		return false, errTooMany // from its beginning, the newest would not be reached
	}
	for next := uint64(1); pending > 0; {
		if time.Now().After(w.until) {
			return false, nil
		}
		n, over, err := w.some(ctx, c, int(min(pending, fetchMax)), next)
		if err != nil || over {
			return err == nil, err
		}
		next, pending = next+uint64(n), pending-uint64(n)
	}
	return true, nil
}

// some looks at the next n messages; over says that the window's end has come.
func (w *window) some(ctx context.Context, c jetstream.Consumer, n int, next uint64) (got int, over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	batch, err := c.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return 0, false, err
	}
	for m := range batch.Messages() { // to its end, so that nothing is left of it
		meta, e := m.Metadata()
		if e == nil && meta.Sequence.Consumer != next+uint64(got) {
			e = fmt.Errorf("messages before %d got lost on the way", meta.Sequence.Stream)
		}
		if e != nil {
			err = e
			continue
		}
		got++
		if over = over || meta.Sequence.Stream > w.hi; over {
			continue
		}
		w.looked++
		*w.left--
		f := found{subject: m.Subject(), seq: meta.Sequence.Stream, time: meta.Timestamp, header: m.Headers()}
		if w.take(&f) {
			w.out = append(w.out, f)
		}
	}
	if err == nil {
		err = batch.Error()
	}
	if err == nil && got == 0 {
		err = context.DeadlineExceeded
	}
	return got, over, err
}
