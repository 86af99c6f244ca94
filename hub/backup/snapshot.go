package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	snapshotChunk  = 128 << 10
	snapshotWindow = 4 << 20
	// chunkWait is how long the server may be silent. It gives up itself when it
	// gets no ack for 5 s.
	chunkWait   = 60 * time.Second
	answerWait  = 10 * time.Second // for an answer
	answerTries = 6
)

// apiError is JetStream's refusal.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrCode) }

// patiently calls f until it is answered: a cluster that is choosing a leader
// forgets requests.
func patiently(ctx context.Context, f func(context.Context) error) (err error) {
	for range answerTries {
		try, cancel := context.WithTimeout(ctx, answerWait)
		err = f(try)
		late := try.Err() != nil
		cancel()
		if err == nil || ctx.Err() != nil || !late && !errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("JetStream does not answer: %w", err)
}

// api asks JetStream and decodes the answer.
func api(ctx context.Context, nc *nats.Conn, subject string, req, answer any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	return patiently(ctx, func(ctx context.Context) error {
		m, err := nc.RequestWithContext(ctx, subject, body)
		if err != nil {
			return err
		}
		return answered(m.Data, answer)
	})
}

func answered(data []byte, answer any) error {
	var r struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("answer %.80q is not readable: %w", data, err)
	}
	if r.Error != nil {
		return r.Error
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(data, answer)
}

// snapshot writes what JetStream gives out of a stream, its consumers included,
// to w, and returns the stream's configuration.
func snapshot(ctx context.Context, nc *nats.Conn, stream string, w io.Writer) (config json.RawMessage, err error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection ends soon
	var answer struct {
		Config json.RawMessage `json:"config"`
	}
	err = api(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+stream, map[string]any{
		"deliver_subject": inbox, "chunk_size": snapshotChunk, "window_size": snapshotWindow,
	}, &answer)
	if err != nil {
		return nil, err
	}
	for {
		m, err := next(ctx, sub)
		if err != nil {
			return nil, err
		}
		if len(m.Data) == 0 {
			return answer.Config, over(m)
		}
		if _, err := w.Write(m.Data); err != nil {
			return nil, err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return nil, err
			}
		}
	}
}

// over says how a snapshot has ended. One without a status was too small for it.
func over(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "", "204":
		return nil
	case "408":
		return fmt.Errorf("the server has given up: %s; the folder may be on a disk that is too slow", m.Header.Get("Description"))
	default:
		return fmt.Errorf("the server has given up: %s %s", status, m.Header.Get("Description"))
	}
}

func next(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	limited, cancel := context.WithTimeout(ctx, chunkWait)
	defer cancel()
	m, err := sub.NextMsgWithContext(limited)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("nothing came for %s", chunkWait)
	}
	return m, err
}
