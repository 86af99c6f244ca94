package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
)

// progress is what the marker of a restore holds: which of the streams are
// complete. All others of the same backup are the restore's own, and are begun
// anew.
type progress struct {
	Backup string    `json:"backup"` // its id
	Taken  time.Time `json:"taken"`
	Done   []string  `json:"done"`
}

const progressKey = "progress"

// errOvertaken ends a restore while another runs on the same target.
var errOvertaken = errors.New("backup: another restore is at work on this target; let only one run")

// marker keeps hubs away until it is removed.
type marker struct {
	js  jetstream.JetStream
	val progress
	rev uint64 // of val; who has another one has been overtaken
}

// load reports whether a restore was begun before.
func (k *marker) load(ctx context.Context) (found bool, err error) {
	var e jetstream.KeyValueEntry
	err = patiently(ctx, func(ctx context.Context) error {
		kv, err := k.js.KeyValue(ctx, store.RestoreBucket)
		if err == nil {
			e, err = kv.Get(ctx, progressKey)
		}
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound), errors.Is(err, jetstream.ErrKeyNotFound):
		return false, nil // in the second case it ended before it had begun
	case err != nil:
		return false, fmt.Errorf("backup: marker: %w", err)
	}
	if err := json.Unmarshal(e.Value(), &k.val); err != nil {
		return false, fmt.Errorf("backup: the bucket %s is not readable: %w; if no restore is under way, remove it: nats kv del %[1]s", store.RestoreBucket, err)
	}
	k.rev = e.Revision()
	return true, nil
}

func (k *marker) create(ctx context.Context, s *store.Store) error {
	err := patiently(ctx, func(ctx context.Context) error {
		_, err := k.js.CreateStream(ctx, s.Marker())
		return err
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return fmt.Errorf("backup: marker: %w", store.Explain(err))
	}
	return k.store(ctx)
}

// store writes the progress, if nobody else has.
func (k *marker) store(ctx context.Context) error {
	b, err := json.Marshal(k.val)
	if err == nil {
		err = patiently(ctx, func(ctx context.Context) error {
			kv, err := k.js.KeyValue(ctx, store.RestoreBucket)
			if err == nil && k.rev == 0 {
				k.rev, err = kv.Create(ctx, progressKey, b)
			} else if err == nil {
				var rev uint64
				if rev, err = kv.Update(ctx, progressKey, b, k.rev); err == nil {
					k.rev = rev
				}
			}
			return err
		})
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return errOvertaken
	}
	if err != nil {
		return fmt.Errorf("backup: marker: %w", err)
	}
	return nil
}

// drop forgets that a stream is complete.
func (k *marker) drop(stream string) {
	k.val.Done = slices.DeleteFunc(k.val.Done, func(s string) bool { return s == stream })
}

func (k *marker) has(stream string) bool { return slices.Contains(k.val.Done, stream) }

func (k *marker) add(ctx context.Context, stream string) error {
	k.val.Done = append(k.val.Done, stream)
	return k.store(ctx)
}

func (k *marker) remove(ctx context.Context) error {
	err := patiently(ctx, func(ctx context.Context) error { return k.js.DeleteStream(ctx, "KV_"+store.RestoreBucket) })
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("backup: marker: %w", err)
	}
	return nil
}
