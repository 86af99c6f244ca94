package unpack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys in the hub's bucket.
const (
	keyTables = "unpack.tables"
	gapsName  = "gaps"
)

func keyCheckpoint(name string) string { return "unpack.at." + name }
func keyLease(name string) string      { return "unpack.lease." + name }

// errConflict means that another instance has written the entry.
var errConflict = errors.New("unpack: another instance has written")

// saved is an entry of the hub's bucket and its revision, for compare-and-swap.
type saved[T any] struct {
	kv  jetstream.KeyValue
	key string
	rev uint64 // 0: there is none
	val T
}

// load reads the entry from the leader; found is false if there is none.
func (s *saved[T]) load(ctx context.Context) (found bool, err error) {
	var zero T
	s.rev, s.val = 0, zero
	e, err := s.kv.Get(ctx, s.key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("unpack: read %s: %w", s.key, err)
	}
	if err := json.Unmarshal(e.Value(), &s.val); err != nil {
		return false, fmt.Errorf("unpack: %s in the hub's bucket is not readable: %w", s.key, err)
	}
	s.rev = e.Revision()
	return true, nil
}

// store writes v unless another instance has written since; then errConflict. A
// write that has begun is not given up when ctx ends: whether it took effect, and
// with which revision, would not be known.
func (s *saved[T]) store(ctx context.Context, v T) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("unpack: write %s: %w", s.key, err)
	}
	rev, err := swap(context.WithoutCancel(ctx), s.kv, s.key, data, s.rev)
	switch {
	case errors.Is(err, jetstream.ErrKeyExists):
		return fmt.Errorf("%w %s", errConflict, s.key)
	case err != nil:
		return fmt.Errorf("unpack: write %s: %w", s.key, err)
	}
	s.rev, s.val = rev, v
	return nil
}

// swap writes an entry whose revision is rev, 0 for none; else ErrKeyExists.
func swap(ctx context.Context, kv jetstream.KeyValue, key string, data []byte, rev uint64) (uint64, error) {
	if rev == 0 {
		return kv.Create(ctx, key, data) // also over one that was deleted
	}
	return kv.Update(ctx, key, data, rev)
}
