package client

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
)

// reader splits what the agent sends into frames.
type reader struct {
	from io.Reader
	buf  []byte // read[r:] is not taken yet
	r    int
}

// next returns one frame; the body is valid until the next call.
func (in *reader) next() (frame.Type, []byte, error) {
	for {
		typ, body, rest, need, err := frame.Next(in.buf[in.r:], maxAnswer)
		if err != nil {
			return 0, nil, err
		}
		if need == 0 {
			in.r = len(in.buf) - len(rest)
			return typ, body, nil
		}
		if err := in.fill(need); err != nil {
			return 0, nil, err
		}
	}
}

func (in *reader) fill(need int) error {
	in.buf = in.buf[:copy(in.buf, in.buf[in.r:])]
	in.r = 0
	if size := max(need, 16<<10); cap(in.buf) < size {
		in.buf = append(make([]byte, 0, size), in.buf...)
	}
	n, err := in.from.Read(in.buf[len(in.buf):cap(in.buf)])
	in.buf = in.buf[:len(in.buf)+n]
	if n > 0 {
		return nil
	}
	if err == io.EOF && len(in.buf) > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// read takes answers until the connection ends.
func (c *Client) read(in *reader) {
	defer close(c.ended)
	for {
		typ, body, err := in.next()
		if err == nil {
			err = c.answered(typ, body)
		}
		var told *Error
		switch {
		case err == nil:
			continue
		case errors.As(err, &told):
			c.end(told)
		case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
			c.end(errorf(CodeUnknown, "the agent closed the connection"))
		default:
			c.end(errorf(CodeUnknown, "the connection to the agent broke: %v", err))
		}
		c.conn.Close()
		return
	}
}

// answered settles what one frame answers. An *Error is the end that the agent
// has announced.
func (c *Client) answered(typ frame.Type, body []byte) error {
	switch typ {
	case frame.TypeReceipt:
		r, err := frame.ParseReceipt(body)
		if err != nil {
			return err
		}
		return c.accepted(&r)
	case frame.TypeError:
		e, err := frame.ParseError(body)
		if err != nil {
			return err
		}
		return c.refused(&e)
	}
	return fmt.Errorf("frame type %d is not known to this client", typ)
}

func (c *Client) accepted(r *frame.Receipt) error {
	if int(r.Lane) >= len(lanes) {
		return fmt.Errorf("lane %d is not known to this client", r.Lane)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.First+r.Count > c.window.next {
		return fmt.Errorf("a receipt for number %d, which was not sent", r.First+r.Count-1)
	}
	out := Receipt{Lane: lanes[r.Lane], Duplicate: r.Duplicate, Hub: r.Hub}
	if !r.Memory {
		if c.epochID == "" || r.Epoch != c.epoch {
			c.epoch, c.epochID = r.Epoch, hex.EncodeToString(r.Epoch[:])
		}
		out.Epoch = c.epochID
	}
	for i := range r.Count {
		if !r.Memory {
			out.Seq = r.Seq + i
		}
		if p := c.window.take(r.First + i); p != nil {
			p.settle(out, nil)
		}
	}
	c.changed.Broadcast()
	return nil
}

func (c *Client) refused(e *frame.Error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.First > c.window.next || e.First+e.Count > c.window.next {
		return fmt.Errorf("an error for number %d, which was not sent", e.First)
	}
	why := &Error{Code: e.Code, Detail: e.Detail, Retry: time.Duration(e.Retry) * time.Second}
	if e.Count == 0 {
		if c.err == nil {
			c.err = why // before anybody who waited can publish again
		}
		c.refuse(e.First, why)
		return why
	}
	for i := range e.Count {
		if p := c.window.take(e.First + i); p != nil {
			p.settle(Receipt{}, why)
		}
	}
	c.changed.Broadcast()
	return nil
}
