package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
)

// TailQuery chooses what to follow.
type TailQuery struct {
	Filter string // on the stream's subjects, such as edge.*.sensors.>; empty: everything
	From   string // empty or new: from now on; first; a stream sequence; an RFC 3339 time
	Stream string // empty: the first route's
}

// Tail calls fn for each message until ctx ends (nil), fn fails (its error) or
// the hub ends the stream (io.EOF).
func (c *Client) Tail(ctx context.Context, q TailQuery, fn func(Message) error) error {
	v := url.Values{}
	for key, value := range map[string]string{"filter": q.Filter, "from": q.From, "stream": q.Stream} {
		if value != "" {
			v.Set(key, value)
		}
	}
	body, err := c.open(ctx, "/v1/tail", v)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	for {
		var m Message
		switch err := dec.Decode(&m); {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return io.EOF
		case err != nil:
			return fmt.Errorf("hub at %s: tail: %w", c.base, err)
		}
		if err := fn(m); err != nil {
			return err
		}
	}
}
