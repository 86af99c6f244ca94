package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/hub/store"
)

// entry is what the index says of one message to be written.
type entry struct {
	By   string `json:"by,omitempty"` // who writes it, and nobody else
	At   uint64 `json:"at"`           // the target's last sequence before that
	Done bool   `json:"done,omitempty"`
}

// item is a message that its target is to hold once.
type item struct {
	key string // in the index
	by  string
	msg store.Msg // with the header hdrID
	// shrink makes msg smaller if it can; nil if it cannot.
	shrink func(*store.Msg) bool

	claimed bool
	at      uint64
	scan    bool // it may be there already
}

// once writes messages into a stream that only hubs write.
type once struct {
	store  *store.Store
	target string
	fault  func(point string) error
	name   string // of the fault points
}

const (
	onceTries  = 8       // without anything moving
	batchItems = 64      // messages of one atomic batch
	batchBytes = 4 << 20 // of their bodies, but for a message that is alone
)

func indexSubject(key string) string { return "$KV." + store.DeadBucket + "." + key }

// put writes what is not there and calls stored for each message that it wrote.
// Nil means that every one is there, or was and has been removed since, or is
// somebody else's to write. After an error some may be there: put them again.
func (o *once) put(ctx context.Context, items []*item, stored func(*item)) error {
	alone := false // one by one, to learn which of them cannot be stored
	for try := 0; len(items) > 0; try++ {
		left := len(items)
		last, err := o.claim(ctx, &items)
		if err == nil {
			err = o.find(ctx, &items, &last)
		}
		if err == nil && len(items) > 0 {
			err = o.write(ctx, &items, last, alone, stored)
		}
		if len(items) < left {
			try = 0
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, store.ErrTooLarge) && alone && (items[0].shrink == nil || !items[0].shrink(&items[0].msg)):
			return err
		case errors.Is(err, store.ErrTooLarge):
			alone = true
		case try >= onceTries || !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome):
			return err
		case try > 1:
			alone = true // a batch fails by its id where a single message is answered
		}
		for _, it := range items {
			it.scan = true
		}
	}
	return nil
}

// claim writes an entry for each item that has none, and drops the items that
// are not ours to write. It returns the target's last sequence before that.
func (o *once) claim(ctx context.Context, items *[]*item) (last uint64, err error) {
	if err := o.at("claim"); err != nil {
		return 0, err
	}
	info, err := o.store.Info(ctx, o.target)
	if err != nil {
		return 0, err
	}
	for try := 0; ; try++ {
		fresh := slices.DeleteFunc(slices.Clone(*items), func(it *item) bool { return it.claimed })
		if len(fresh) == 0 {
			return info.Last, nil
		}
		batch := make([]store.Msg, len(fresh))
		for i, it := range fresh {
			if batch[i], err = indexMsg(it.key, entry{By: it.by, At: info.Last}); err != nil {
				return 0, err
			}
			batch[i].Header = nats.Header{store.GuardSubject: {"0"}}
		}
		if _, err = o.store.PublishBatch(ctx, batch); err == nil {
			for _, it := range fresh {
				it.claimed, it.at = true, info.Last
			}
			return info.Last, o.at("claimed")
		}
		if try >= onceTries || !errors.Is(err, store.ErrGuard) && !errors.Is(err, store.ErrUnknownOutcome) {
			return 0, fmt.Errorf("deadletter: index: %w", err)
		}
		if err := o.claims(ctx, fresh, items); err != nil {
			return 0, err
		}
	}
}

// claims reads the entries of items that may have one.
func (o *once) claims(ctx context.Context, fresh []*item, items *[]*item) error {
	for _, it := range fresh {
		e, err := o.entry(ctx, it.key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case e.Done || e.By != it.by:
			drop(items, it)
		default:
			it.claimed, it.at, it.scan = true, e.At, true
		}
	}
	return nil
}

// find drops the items that are in the target, or were: whoever removes a
// letter says so in the index first. last must not be read after the search.
func (o *once) find(ctx context.Context, items *[]*item, last *uint64) error {
	maybe := slices.DeleteFunc(slices.Clone(*items), func(it *item) bool { return !it.scan })
	if len(maybe) == 0 {
		return nil
	}
	info, err := o.store.Info(ctx, o.target)
	if err != nil {
		return err
	}
	*last = info.Last
	for _, it := range maybe {
		there, err := o.there(ctx, it)
		if err != nil {
			return err
		}
		if !there {
			e, err := o.entry(ctx, it.key)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			there = e.Done
		}
		if there {
			drop(items, it)
		}
	}
	return nil
}

// there looks for an item behind the place where the target ended when it was
// claimed.
func (o *once) there(ctx context.Context, it *item) (bool, error) {
	for seq := it.at + 1; ; {
		m, err := o.store.Next(ctx, o.target, it.msg.Subject, seq)
		if errors.Is(err, store.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if m.Header.Get(hdrID) == it.msg.Header.Get(hdrID) {
			return true, nil
		}
		seq = m.Seq + 1
	}
}

// write stores as many items as one batch takes, behind last; one if alone.
func (o *once) write(ctx context.Context, items *[]*item, last uint64, alone bool, stored func(*item)) error {
	n, bytes := 0, 0
	for n < len(*items) && n < batchItems && (n == 0 || !alone && bytes+len((*items)[n].msg.Data) <= batchBytes) {
		bytes += len((*items)[n].msg.Data)
		n++
	}
	some := slices.Clone((*items)[:n])
	batch := make([]store.Msg, n)
	for i, it := range some {
		batch[i] = it.msg
	}
	batch[0].Header = maps.Clone(batch[0].Header)
	batch[0].Header[store.GuardStream] = []string{strconv.FormatUint(last, 10)}
	if err := o.at("publish"); err != nil {
		return err
	}
	if _, err := o.store.PublishBatch(ctx, batch); err != nil {
		return fmt.Errorf("deadletter: into %s: %w", o.target, err)
	}
	*items = (*items)[n:]
	for _, it := range some {
		stored(it)
	}
	return o.at("published")
}

// entry reads the index at its leader.
func (o *once) entry(ctx context.Context, key string) (e entry, err error) {
	m, err := o.store.Last(ctx, store.DeadIndex, indexSubject(key))
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(m.Data, &e); err != nil {
		return e, fmt.Errorf("deadletter: the entry %s of bucket %s is not readable: %w; remove it", key, store.DeadBucket, err)
	}
	return e, nil
}

func indexMsg(key string, e entry) (store.Msg, error) {
	data, err := json.Marshal(e)
	return store.Msg{Subject: indexSubject(key), Data: data}, err
}

func (o *once) at(step string) error {
	if err := o.fault(o.name + ":" + step); err != nil {
		return fmt.Errorf("deadletter: %s:%s: %w", o.name, step, err)
	}
	return nil
}

func drop(items *[]*item, it *item) {
	*items = slices.DeleteFunc(*items, func(o *item) bool { return o == it })
}
