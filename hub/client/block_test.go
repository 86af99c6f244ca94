package client

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// slowSource answers a read when the test says so.
type slowSource struct {
	asked  chan uint64
	answer chan error
}

func (s *slowSource) get(_ context.Context, req getRequest) (*jetstream.RawStreamMsg, error) {
	s.asked <- req.Seq
	return nil, <-s.answer
}

// delivered is a message of the ledger that a consumer was handed.
type delivered struct {
	jetstream.Msg
	subject string
	data    []byte
}

func (m *delivered) Subject() string      { return m.subject }
func (m *delivered) Headers() nats.Header { return nil }
func (m *delivered) Data() []byte         { return m.data }

// TestBlocksAreHandledOnceTheyAreCommitted: a consumer is handed messages of an
// atomic batch while the server still stores it; a read waits until it has.
func TestBlocksAreHandledOnceTheyAreCommitted(t *testing.T) {
	s := &slowSource{asked: make(chan uint64), answer: make(chan error)}
	handled := make(chan uint64, 10)
	r := &reader{
		c: &Client{cfg: Config{Log: slog.New(slog.DiscardHandler)}}, get: s.get, fence: fence{get: s.get},
		handler: func(_ context.Context, b *Batch) error { handled <- b.StreamSeq; return nil },
	}
	subject, data := (&ledger{world: &world{t: t}, enc: newEncoder(), next: map[string]uint64{}}).encode("press-7", msg("a", "1"))
	results := make(chan error, 10)
	handle := func(seq uint64) {
		go func() {
			results <- r.handle(t.Context(), &held{seq: seq, msg: &delivered{subject: subject, data: data}})
		}()
	}
	r.fence.saw(1)
	r.fence.saw(2)
	handle(1)
	receive(t, "a read", s.asked)
	r.fence.saw(3) // too late for this read
	if len(handled) > 0 {
		t.Error("handled before the read is answered")
	}
	s.answer <- jetstream.ErrMsgNotFound
	if err := receive(t, "the end", results); err != nil || receive(t, "a block", handled) != 1 {
		t.Errorf("%v", err)
	}
	handle(2) // the same read holds for it
	if err := receive(t, "the end", results); err != nil || receive(t, "a block", handled) != 2 {
		t.Errorf("%v", err)
	}
	handle(3)
	receive(t, "another read", s.asked)
	s.answer <- errors.New("no answer")
	if err := receive(t, "the end", results); !errors.Is(err, errLater) || len(handled) > 0 {
		t.Errorf("handled though nobody knows: %v", err)
	}
	handle(3)
	receive(t, "another try", s.asked)
	s.answer <- jetstream.ErrMsgNotFound
	if err := receive(t, "the end", results); err != nil || receive(t, "a block", handled) != 3 {
		t.Errorf("%v", err)
	}
}
