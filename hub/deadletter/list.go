package deadletter

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Query chooses letters. The zero value is all of them.
type Query struct {
	Filter   string // on the original subject; * is one token, > the rest
	Consumer string
	Reason   string
	After    uint64 // sequence in DEAD, exclusive
	UpTo     uint64 // inclusive; 0: no end
}

// Listed is a letter without its body.
type Listed struct {
	Seq     uint64
	Time    time.Time // stored
	Subject string
	Header  nats.Header
	Size    int // of the body, bytes
}

// One page looks at so much of DEAD at most, so that a query which takes
// little ends too.
const (
	pageLook  = 20_000
	pageBytes = 64 << 20
)

// List returns up to limit letters, the oldest first, and where to go on: 0 if
// there was no more.
func (l *Letters) List(ctx context.Context, q Query, limit int) (out []Listed, next uint64, err error) {
	r, err := l.cfg.Store.Reader(store.Dead, q.After+1)
	if err != nil {
		return nil, 0, err
	}
	defer r.Close()
	for looked, bytes := 0, 0; ; looked++ {
		if len(out) == limit || looked == pageLook || bytes > pageBytes {
			return out, next, nil
		}
		m, err := r.Next(ctx)
		if errors.Is(err, store.ErrNotFound) || err == nil && q.UpTo > 0 && m.Seq > q.UpTo {
			return out, 0, nil
		}
		if err != nil {
			return nil, 0, err
		}
		next = m.Seq
		bytes += len(m.Data)
		if q.takes(m.Subject, m.Header) {
			out = append(out, Listed{Seq: m.Seq, Time: m.Time, Subject: m.Subject, Header: m.Header, Size: len(m.Data)})
		}
	}
}

// Get reads one letter, or store.ErrNotFound.
func (l *Letters) Get(ctx context.Context, seq uint64) (store.Stored, error) {
	return l.cfg.Store.Get(ctx, store.Dead, seq)
}

func (q *Query) takes(subject string, h nats.Header) bool {
	_, original := SplitSubject(subject)
	return (q.Consumer == "" || h.Get(HdrConsumer) == q.Consumer) &&
		(q.Reason == "" || h.Get(HdrReason) == q.Reason) &&
		(q.Filter == "" || matches(q.Filter, original))
}

// matches reports whether a filter takes a subject.
func matches(filter, subject string) bool {
	for {
		f, fRest, fMore := strings.Cut(filter, ".")
		s, sRest, sMore := strings.Cut(subject, ".")
		switch {
		case f == ">" && !fMore:
			return s != ""
		case f != "*" && f != s || fMore != sMore:
			return false
		case !fMore:
			return true
		}
		filter, subject = fRest, sRest
	}
}
