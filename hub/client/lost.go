package client

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// metaRead, in the consumer's metadata, is a sequence of the ledger that the
	// group was handed. JetStream itself moves a group past what is purged and
	// keeps no word of it.
	metaRead  = "fieldpost_read"
	noteEvery = time.Minute
	noteWait  = 5 * time.Second // for the last note, at the end
)

// losses finds what left the ledger before the group was handed it.
type losses struct {
	stream jetstream.Stream
	cons   jetstream.Consumer
	every  bool // the group reads every message, so that a hole is a purge
	tell   func(Lost)
	read   atomic.Uint64 // highest sequence that was delivered here

	// Of what was delivered last; owned by the puller's goroutine.
	nth  uint64 // delivery to the group
	last uint64 // highest sequence that the group was handed, as far as is known; 0: it is not
}

// start looks for what went while nobody read.
func (l *losses) start(ctx context.Context) error {
	at, err := l.cons.Info(ctx)
	if err != nil {
		return fmt.Errorf("hub/client: group %s: %w", l.cons.CachedInfo().Name, err)
	}
	now, err := l.stream.Info(ctx)
	if err != nil {
		return fmt.Errorf("hub/client: stream %s: %w", blocksStream, err)
	}
	if read := noted(at); read > 0 && now.State.FirstSeq > read+1 {
		l.tell(Lost{First: read + 1, Last: now.State.FirstSeq - 1})
		l.read.Store(now.State.FirstSeq - 1) // told once
	}
	return nil
}

func noted(i *jetstream.ConsumerInfo) uint64 {
	n, err := strconv.ParseUint(i.Config.Metadata[metaRead], 10, 64)
	if err != nil {
		return 0 // never noted
	}
	return n
}

// saw looks for a hole between two messages of which one was delivered right
// after the other. What other processes of the group were handed in between is
// not known here.
func (l *losses) saw(meta *jetstream.MsgMetadata) {
	seq, next := meta.Sequence.Stream, l.nth > 0 && meta.Sequence.Consumer == l.nth+1
	l.nth = meta.Sequence.Consumer
	l.read.Store(max(l.read.Load(), seq))
	if !next {
		l.last = 0
	}
	if meta.NumDelivered > 1 {
		return
	}
	if l.every && l.last > 0 && seq > l.last+1 {
		l.tell(Lost{First: l.last + 1, Last: seq - 1})
	}
	l.last = seq
}

// run notes now and then, and at the end, how far the group has come.
func (l *losses) run(ctx context.Context) error {
	tick := time.NewTicker(noteEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := l.note(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		case <-ctx.Done():
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
		defer cancel()
		return l.note(last)
	}
}

func (l *losses) note(ctx context.Context) error {
	read := l.read.Load()
	if read == 0 {
		return nil
	}
	at, err := l.cons.Info(ctx) // others of the group note, too
	if err != nil || noted(at) >= read {
		return err
	}
	cfg := at.Config
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[metaRead] = strconv.FormatUint(read, 10)
	_, err = l.stream.UpdateConsumer(ctx, cfg)
	return err
}
