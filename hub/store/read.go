package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Info is the state of a stream as its leader knows it.
type Info struct {
	First, Last uint64 // sequences; First is Last+1 when the stream is empty
	Messages    uint64
	Bytes       uint64
	MaxBytes    int64  // −1: unlimited
	Incarnation string // BLOCKS, COMMANDS and DesiredIndex: random, new whenever the stream is created
	Created     time.Time
}

// Info reads the state of a stream from its leader.
func (s *Store) Info(ctx context.Context, stream string) (Info, error) {
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return Info{}, fmt.Errorf("store: info of %s: %w", stream, err)
	}
	i := st.CachedInfo()
	out := Info{
		First: i.State.FirstSeq, Last: i.State.LastSeq, Messages: i.State.Msgs, Bytes: i.State.Bytes,
		MaxBytes: i.Config.MaxBytes, Incarnation: i.Config.Metadata[metaIncarnation], Created: i.Created,
	}
	if out.Messages == 0 {
		out.First = out.Last + 1
	}
	return out, nil
}

// Last reads the newest message of a literal subject from the stream's leader,
// or ErrNotFound.
func (s *Store) Last(ctx context.Context, stream, subject string) (Stored, error) {
	return s.get(ctx, stream, getRequest{LastBySubject: subject})
}

// Get reads one message by sequence from the stream's leader, or ErrNotFound.
func (s *Store) Get(ctx context.Context, stream string, seq uint64) (Stored, error) {
	return s.get(ctx, stream, getRequest{Seq: seq})
}

// FirstSince reads the oldest message stored at t or later, or ErrNotFound.
func (s *Store) FirstSince(ctx context.Context, stream string, t time.Time) (Stored, error) {
	return s.get(ctx, stream, getRequest{StartTime: &t})
}

// PurgeTo removes every message of the stream up to seq, seq included.
func (s *Store) PurgeTo(ctx context.Context, stream string, seq uint64) error {
	st, err := s.js.Stream(ctx, stream)
	if err == nil {
		err = st.Purge(ctx, jetstream.WithPurgeSequence(seq+1))
	}
	if err != nil {
		return fmt.Errorf("store: purge %s to %d: %w", stream, seq, err)
	}
	return nil
}

type getRequest struct {
	Seq           uint64     `json:"seq,omitempty"`
	LastBySubject string     `json:"last_by_subj,omitempty"`
	NextBySubject string     `json:"next_by_subj,omitempty"`
	StartTime     *time.Time `json:"start_time,omitempty"`
	Batch         int        `json:"batch,omitempty"`     // direct get only
	MaxBytes      int        `json:"max_bytes,omitempty"` // direct get only
}

type getResponse struct {
	Error *struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// get asks the leader: $JS.API.STREAM.MSG.GET is answered by no other replica.
func (s *Store) get(ctx context.Context, stream string, req getRequest) (Stored, error) {
	fail := func(err error) (Stored, error) {
		return Stored{}, fmt.Errorf("store: read from %s: %w", stream, err)
	}
	body, err := json.Marshal(req)
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	m, err := s.read.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return fail(err)
	}
	var r getResponse
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return fail(err)
	}
	switch {
	case r.Error != nil && r.Error.Code == 10037: // no message found
		return Stored{}, ErrNotFound
	case r.Error != nil:
		return fail(errors.New(r.Error.Description))
	case r.Message == nil:
		return fail(fmt.Errorf("answer %.80q holds no message", m.Data))
	}
	out := Stored{Subject: r.Message.Subject, Seq: r.Message.Seq, Data: r.Message.Data, Time: r.Message.Time}
	if len(r.Message.Header) > 0 {
		if out.Header, err = nats.DecodeHeadersMsg(r.Message.Header); err != nil {
			return fail(err)
		}
	}
	return out, nil
}
