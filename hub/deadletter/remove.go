package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/fieldpost/fieldpost/hub/store"
)

// Outcome is what became of some letters.
type Outcome struct {
	Done    int // retried or purged
	Gone    int // were not there any more
	Refused []Refusal
}

// Refusal is a letter that stays where it is.
type Refusal struct {
	Seq uint64
	Why error
}

// Retry offers letters to their consumers again, on retry.<consumer>, and
// removes them. After an error Outcome holds what was done until then. A letter
// whose retry was stored before it could be removed is not stored again as long
// as RETRY keeps it.
func (l *Letters) Retry(ctx context.Context, seqs []uint64) (out Outcome, err error) {
	dead, err := l.cfg.Store.Info(ctx, store.Dead)
	if err != nil {
		return out, err
	}
	var some []*store.Stored
	bytes := 0
	flush := func() error {
		if len(some) == 0 {
			return nil
		}
		items := make([]*item, len(some))
		for i, m := range some {
			id := retryID(dead.Created, m.Seq)
			items[i] = &item{key: id, by: "retry", msg: retry(m, id)}
		}
		if err := l.toRetry.put(ctx, items, func(*item) {}); err != nil {
			return err
		}
		err := l.remove(ctx, some, &out)
		some, bytes = some[:0], 0
		return err
	}
	for _, seq := range seqs {
		if err := l.toRetry.at("read"); err != nil {
			return out, err
		}
		m, err := l.Get(ctx, seq)
		switch {
		case errors.Is(err, store.ErrNotFound):
			out.Gone++
			continue
		case err != nil:
			return out, err
		}
		if err := l.retryable(&m); err != nil {
			out.Refused = append(out.Refused, Refusal{seq, err})
			continue
		}
		some, bytes = append(some, &m), bytes+len(m.Data)
		if len(some) == batchItems || bytes >= batchBytes {
			if err := flush(); err != nil {
				return out, err
			}
		}
	}
	return out, flush()
}

func (l *Letters) retryable(m *store.Stored) error {
	if err := RefuseRetry(m.Subject, m.Header); err != nil {
		return err
	}
	again := retry(m, retryID(m.Time, m.Seq))
	if n := size(&again); n > l.cfg.Store.MaxPayload() {
		return fmt.Errorf("with the headers of a retry it is %d bytes, and the server takes %d", n, l.cfg.Store.MaxPayload())
	}
	return nil
}

// Purge removes letters for good.
func (l *Letters) Purge(ctx context.Context, seqs []uint64) (out Outcome, err error) {
	var some []*store.Stored
	for i, seq := range seqs {
		m, err := l.Get(ctx, seq)
		switch {
		case errors.Is(err, store.ErrNotFound):
			out.Gone++
		case err != nil:
			return out, err
		default:
			m.Data = nil
			some = append(some, &m)
		}
		if len(some) == batchItems || i == len(seqs)-1 {
			if err := l.remove(ctx, some, &out); err != nil {
				return out, err
			}
			some = some[:0]
		}
	}
	return out, nil
}

// remove takes letters out of DEAD. The index learns it first: an advisory
// whose ack was lost must not find its letter missing.
func (l *Letters) remove(ctx context.Context, some []*store.Stored, out *Outcome) error {
	if err := l.toDead.at("settle"); err != nil {
		return err
	}
	var marks []store.Msg
	for _, m := range some {
		if id := letterID(m); id != "" {
			mark, err := indexMsg(id, entry{Done: true})
			if err != nil {
				return err
			}
			marks = append(marks, mark)
		}
	}
	if len(marks) > 0 {
		if _, err := l.cfg.Store.PublishBatch(ctx, marks); err != nil {
			return fmt.Errorf("deadletter: index: %w", err)
		}
	}
	for _, m := range some {
		if err := l.toDead.at("remove"); err != nil {
			return err
		}
		was, err := l.cfg.Store.Delete(ctx, store.Dead, m.Seq)
		switch {
		case err != nil:
			return err
		case was:
			out.Done++
		default:
			out.Gone++
		}
	}
	return nil
}
