package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
)

// Limits of what a Client holds.
const (
	maxPending = 64 << 10  // messages without an answer
	maxUnsent  = 256 << 10 // bytes not yet given to the socket; one message may exceed it
	maxAnswer  = 1 << 20   // bytes of one frame of the agent
)

// Client is a connection to the agent. All methods are safe for concurrent use.
type Client struct {
	path    string // of the socket
	conn    net.Conn
	hello   frame.Hello
	closing chan struct{} // closed by Close
	closed  sync.Once

	mu      sync.Mutex
	changed *sync.Cond    // there is room, or nothing pending, or an end
	window  window        // guarded by mu
	out     []byte        // frames not written yet; guarded by mu
	writing bool          // the writer has a buffer in hand; guarded by mu
	err     *Error        // why nothing more can be published; guarded by mu
	lost    bool          // err left messages without an answer of their own; guarded by mu
	epoch   [8]byte       // of the last receipt, and as text; guarded by mu
	epochID string        // guarded by mu
	wake    chan struct{} // has a value when out is not empty

	ended chan struct{} // closed when the connection is gone
	work  sync.WaitGroup
}

// Dial connects to the agent's socket, by default /run/fieldpost/agent.sock, and
// returns when the agent has answered.
func Dial(ctx context.Context, path string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("fieldpost: is the agent running? %w", err)
	}
	c := &Client{path: path, conn: conn, closing: make(chan struct{}), window: newWindow(), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.changed = sync.NewCond(&c.mu)
	in := &reader{from: conn}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = c.greet(in)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.work.Go(c.write)
	c.work.Go(func() { c.read(in) })
	return c, nil
}

// greet exchanges preface and hello.
func (c *Client) greet(in *reader) error {
	if _, err := io.WriteString(c.conn, frame.Preface); err != nil {
		return fmt.Errorf("fieldpost: greet the agent: %w", err)
	}
	typ, body, err := in.next()
	if err == nil && typ != frame.TypeHello {
		err = fmt.Errorf("frame type %d before the hello", typ)
	}
	if err == nil {
		c.hello, err = frame.ParseHello(body)
	}
	if err != nil {
		return errorf(CodeProtocol, "no agent answers there that speaks this protocol: %v", err)
	}
	return nil
}

// Device is the id of the agent's device.
func (c *Client) Device() string { return c.hello.Device }

// Publish hands m to the agent and waits for its answer. An error from the agent
// is an *Error. If ctx ends first the message may still be accepted.
func (c *Client) Publish(ctx context.Context, m Message) (Receipt, error) {
	return c.PublishAsync(m).Wait(ctx)
}

// PublishAsync hands m to the agent; the payload is copied. Messages are accepted
// in the order of the calls. It waits while very much is unanswered (65,536
// messages) or unsent, no longer than the connection lives.
func (c *Client) PublishAsync(m Message) *Pending {
	p := &Pending{c: c}
	pub, bad := c.encode(&m)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && (c.window.open >= maxPending || len(c.out) > maxUnsent) {
		c.changed.Wait()
	}
	if c.err != nil {
		bad = &Error{Code: CodeClosed, Detail: "not sent: " + c.err.Detail}
		if c.err.Code != CodeUnknown {
			bad = c.err
		}
	}
	if bad != nil {
		p.settle(Receipt{}, bad)
		return p
	}
	c.out = frame.AppendPublish(c.out, &pub)
	c.window.push(p)
	if !c.writing {
		c.signal()
	}
	return p
}

// encode refuses what the protocol has no place for; the agent does the rest.
func (c *Client) encode(m *Message) (pub frame.Publish, bad *Error) {
	pub = frame.Publish{Subject: m.Subject, ID: m.ID, Fields: frame.Fields{Payload: m.Payload, Memory: m.Ack == Memory}}
	if int64(len(m.Payload)) > c.hello.MaxPayload {
		return pub, errorf("too_large", "the payload is %d bytes; the agent's socket.max_payload is %d", len(m.Payload), c.hello.MaxPayload)
	}
	if m.Lane != "" {
		pub.HasLane = true
		for pub.Lane = 0; int(pub.Lane) < len(lanes) && lanes[pub.Lane] != m.Lane; pub.Lane++ {
		}
		if int(pub.Lane) == len(lanes) {
			return pub, errorf("bad_lane", "lane %q is not one of urgent, normal, bulk", m.Lane)
		}
	}
	if m.TTL < 0 {
		return pub, errorf("bad_ttl", "ttl %v is not more than 0", m.TTL)
	}
	pub.TTL = millis(m.TTL)
	if !m.Time.IsZero() {
		pub.HasTime, pub.Time = true, m.Time.UnixMilli()
	}
	size := len(m.Subject) + len(m.ID)
	for _, h := range m.Headers {
		pub.Headers = append(pub.Headers, frame.Pair(h))
		size += len(h.Key) + len(h.Value)
	}
	if size > maxHead {
		return pub, errorf("bad_header", "subject, id and headers are %d bytes; headers may have 4096", size)
	}
	if m.Ack == Hub {
		pub.Hub = millis(m.HubTimeout)
		if m.HubTimeout <= 0 {
			pub.Hub = millis(30 * time.Second)
		}
	}
	return pub, nil
}

// maxHead is less than what the agent allows a frame beside its payload.
const maxHead = 8 << 10

// millis rounds up.
func millis(d time.Duration) uint64 { return uint64((d + time.Millisecond - 1) / time.Millisecond) }

// Flush returns when every message handed over before has its answer. What the
// answers are is for Pending.Wait; an error means that not all of them came.
func (c *Client) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for upTo := c.window.next; c.window.first < upTo; {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.changed.Wait()
	}
	if c.lost {
		return c.err
	}
	return nil
}

// Closed is closed when the connection is gone; Err then says why.
func (c *Client) Closed() <-chan struct{} { return c.ended }

// Err is nil while messages can be published.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// Close ends the connection at once; call Flush before to have everything
// answered. Messages without an answer get CodeUnknown.
func (c *Client) Close() error {
	c.closed.Do(func() { close(c.closing) })
	c.end(errorf(CodeClosed, "the client was closed"))
	err := c.conn.Close()
	c.work.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// end settles everything that is unanswered. The first reason counts.
func (c *Client) end(why *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = why
	}
	unknown := &Error{Code: CodeUnknown, Detail: c.err.Detail + "; it may or may not be stored, retry with the same ID"}
	c.refuse(c.window.first, unknown)
	c.out = nil
	c.signal()
	c.changed.Broadcast()
}

// refuse settles everything unanswered from number n on; mu is held.
func (c *Client) refuse(n uint64, why *Error) {
	for ; n < c.window.next; n++ {
		if p := c.window.take(n); p != nil {
			c.lost = true
			p.settle(Receipt{}, why)
		}
	}
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write gives frames to the socket, all that have gathered at a time.
func (c *Client) write() {
	var spare []byte
	for range c.wake {
		for {
			c.mu.Lock()
			out, err := c.out, c.err
			c.writing = len(out) > 0 && err == nil
			if !c.writing {
				c.mu.Unlock()
				if err != nil {
					return
				}
				break
			}
			c.out = spare[:0]
			c.changed.Broadcast()
			c.mu.Unlock()
			if _, err := c.conn.Write(out); err != nil {
				return // the agent has closed; the reader finds out why
			}
			if spare = out; cap(spare) > 2*maxUnsent {
				spare = nil
			}
		}
	}
}
