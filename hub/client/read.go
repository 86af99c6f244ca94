package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// getRequest asks for one message: the one with this sequence; with a filter, the
// first from there on; or the first that was stored at this time or later.
type getRequest struct {
	Seq   uint64     `json:"seq,omitempty"`
	Next  string     `json:"next_by_subj,omitempty"`
	Since *time.Time `json:"start_time,omitempty"`
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// source reads single messages of a stream.
type source func(ctx context.Context, req getRequest) (*jetstream.RawStreamMsg, error)

// source reads from the stream's leader. A direct read, which is what the library
// does, may be answered by a replica that lags, and "not found" then means nothing.
func (c *Client) source(stream string) source {
	return func(ctx context.Context, req getRequest) (m *jetstream.RawStreamMsg, err error) {
		err = c.ask(ctx, func(ctx context.Context) error {
			m, err = c.get(ctx, "$JS.API.STREAM.MSG.GET."+stream, req)
			return err
		})
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			err = fmt.Errorf("hub/client: read sequence %d of %s: %w", req.Seq, stream, err)
		}
		return m, err
	}
}

func (c *Client) get(ctx context.Context, subject string, req getRequest) (*jetstream.RawStreamMsg, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	answer, err := c.nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return nil, err
	}
	var r getResponse
	if err := json.Unmarshal(answer.Data, &r); err != nil {
		return nil, err
	}
	switch {
	case r.Error != nil && r.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case r.Error != nil:
		return nil, r.Error
	case r.Message == nil:
		return nil, fmt.Errorf("answer %.80q holds no message", answer.Data)
	}
	out := &jetstream.RawStreamMsg{Subject: r.Message.Subject, Sequence: r.Message.Seq, Data: r.Message.Data, Time: r.Message.Time}
	if len(r.Message.Header) > 0 {
		out.Header, err = nats.DecodeHeadersMsg(r.Message.Header)
	}
	return out, err
}
