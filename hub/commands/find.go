package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/store"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	// readWhole is of how many of a device's commands the payloads are read where
	// only ids matter: most have no more, and it needs no consumer.
	readWhole   = 4
	headersFor  = 5 * time.Second // to read the others' headers
	headersGone = 30 * time.Second
	headersMax  = 1000 // at a time
)

// find looks for a command among those in COMMANDS of its device, of which
// there are as many as max_pending says.
func (c *Commands) find(ctx context.Context, device, id string) (*command, error) {
	var found *command
	err := c.among(ctx, device, func(have string) bool { return have == id }, func(cmd *command) bool {
		found = cmd
		return false
	})
	if err == nil && found == nil {
		err = store.ErrNotFound
	}
	return found, err
}

// among calls fn with every command of the device in COMMANDS whose id is wanted,
// until it returns false. What it costs does not depend on payloads.
func (c *Commands) among(ctx context.Context, device string, wanted func(id string) bool, fn func(*command) bool) error {
	info, err := c.stream(ctx, false)
	if err != nil {
		return err
	}
	next := uint64(1)
	for range readWhole {
		m, err := c.cfg.Store.Next(ctx, store.Commands, wire.CommandSubject(device), next)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		next = m.Seq + 1
		if cmd, err := parse(m, info.Incarnation); err == nil && wanted(cmd.ID) && !fn(cmd) {
			return nil
		}
	}
	seqs, err := c.headers(ctx, device, next, wanted)
	if err != nil {
		return fmt.Errorf("commands: read the headers of %s: %w", device, err)
	}
	for _, seq := range seqs {
		m, err := c.cfg.Store.Get(ctx, store.Commands, seq)
		if errors.Is(err, store.ErrNotFound) {
			continue // settled and removed meanwhile
		}
		if err != nil {
			return err
		}
		if cmd, err := parse(m, info.Incarnation); err == nil && wanted(cmd.ID) && !fn(cmd) {
			return nil
		}
	}
	return nil
}

// headers lists the sequences from first on of the device's commands whose ids
// are wanted.
func (c *Commands) headers(ctx context.Context, device string, first uint64, wanted func(id string) bool) (seqs []uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, headersFor)
	defer cancel()
	js := c.cfg.Store.JetStream()
	consumer, err := js.CreateConsumer(ctx, store.Commands, jetstream.ConsumerConfig{
		FilterSubject: wire.CommandSubject(device), DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: first,
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: headersGone,
		Description: "Fieldpost: looking for a command",
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), headersFor)
		defer cancel()
		js.DeleteConsumer(last, store.Commands, consumer.CachedInfo().Name) // else the server does, after headersGone
	}()
	for {
		batch, err := consumer.FetchNoWait(headersMax)
		if err != nil {
			return nil, err
		}
		n := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return nil, err
			}
			n++
			if wanted(m.Headers().Get(HdrID)) {
				seqs = append(seqs, meta.Sequence.Stream)
			}
		}
		if err := batch.Error(); err != nil || n == 0 {
			return seqs, err
		}
	}
}
