package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// maxEntry bounds the state of a stream or of a consumer: 64 MiB are a million
// messages that were delivered and not acked.
const maxEntry = 64 << 20

// contents is what a snapshot holds.
type contents struct {
	state struct {
		Msgs  uint64 `json:"messages"`
		Bytes uint64 `json:"bytes"`
		First uint64 `json:"first_seq"`
		Last  uint64 `json:"last_seq"`
	}
	rawState  json.RawMessage
	consumers []Consumer
	first     uint64 // of the messages; 0 if there is none
	last      uint64
	messages  uint64
	largest   int64
}

// scan reads a snapshot as nats-server 2.15 writes it, to its end: the stream's
// state, its consumers, its messages in order, and an entry that says that
// nothing is missing.
func scan(r io.Reader) (c contents, err error) {
	in := archive.NewReader(s2.NewReader(r))
	h, err := in.Next()
	if err != nil {
		return c, fmt.Errorf("no snapshot of nats-server 2.15 or later: %w", err)
	}
	if h.Name != "state.json" {
		return c, fmt.Errorf("the snapshot begins with %.40q", h.Name)
	}
	if err := decode(in, h, &c.rawState); err != nil {
		return c, err
	}
	if err := json.Unmarshal(c.rawState, &c.state); err != nil {
		return c, fmt.Errorf("state of the stream: %w", err)
	}
	for {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return c, errors.New("the snapshot has no end")
		case err != nil:
			return c, err
		case h.Sequence > 0:
			err = c.message(h)
		case h.Name == "":
			return c, c.end(in)
		case strings.HasPrefix(h.Name, "consumers/"):
			err = c.consumer(in, h)
		default:
			err = fmt.Errorf("the snapshot holds %.40q", h.Name)
		}
		if err != nil {
			return c, err
		}
	}
}

func (c *contents) message(h *archive.Header) error {
	if h.Sequence <= c.last {
		return fmt.Errorf("message %d follows %d", h.Sequence, c.last)
	}
	if c.messages == 0 {
		c.first = h.Sequence
	}
	c.last = h.Sequence
	c.messages++
	c.largest = max(c.largest, h.HeaderSize+h.PayloadSize)
	return nil
}

func (c *contents) consumer(in io.Reader, h *archive.Header) error {
	type pair struct {
		Stream uint64 `json:"stream_seq"`
	}
	var v struct {
		Config struct {
			Durable string `json:"durable_name"`
			Push    string `json:"deliver_subject"`
		} `json:"config"`
		State struct {
			Delivered pair                       `json:"delivered"`
			AckFloor  pair                       `json:"ack_floor"`
			Pending   map[string]json.RawMessage `json:"pending"`
		} `json:"state"`
	}
	if err := decode(in, h, &v); err != nil {
		return err
	}
	if v.Config.Durable == "" {
		return nil // of a reader that is gone
	}
	c.consumers = append(c.consumers, Consumer{
		Name: v.Config.Durable, Pushes: v.Config.Push != "",
		Acked: v.State.AckFloor.Stream, Pending: len(v.State.Pending), Consumed: v.State.Delivered.Stream,
	})
	return nil
}

// end checks that the snapshot is over, and what it claims of itself.
func (c *contents) end(in *archive.Reader) error {
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the snapshot goes on after its end: %v", err)
	}
	if c.last > c.state.Last {
		return fmt.Errorf("message %d is after the last, %d", c.last, c.state.Last)
	}
	slices.SortFunc(c.consumers, func(a, b Consumer) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func decode(in io.Reader, h *archive.Header, v any) error {
	if h.HeaderSize != 0 || h.PayloadSize > maxEntry {
		return fmt.Errorf("entry %.40q has %d bytes", h.Name, h.PayloadSize)
	}
	if err := json.NewDecoder(in).Decode(v); err != nil {
		return fmt.Errorf("entry %.40q: %w", h.Name, err)
	}
	return nil
}
