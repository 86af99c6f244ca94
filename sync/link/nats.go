package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Limits of one subscription. Acks are small; a callback that falls this far
// behind is stuck, and the connection ends before anything is dropped.
const (
	maxPendingMsgs  = 16_384
	maxPendingBytes = 8 << 20
)

// natsConn is a connection to one NATS server; it never reconnects by itself.
type natsConn struct {
	nc     *nats.Conn
	sock   *socket
	server string
	closed chan struct{}
	gate   sync.RWMutex // held for reading by running callbacks

	mu     sync.Mutex
	err    error // the first cause; set before closed is
	silent bool  // Close was called: no callback starts any more
}

// Publish waits for room in the socket, then hands data to NATS.
func (c *natsConn) Publish(ctx context.Context, subject string, data []byte) error {
	if err := c.sock.waitRoom(ctx); err != nil {
		return c.failed("publish to "+subject, err)
	}
	if err := c.nc.Publish(subject, data); err != nil {
		return c.failed("publish to "+subject, err)
	}
	return nil
}

// Request publishes and waits for one reply.
func (c *natsConn) Request(ctx context.Context, subject string, data []byte) ([]byte, error) {
	if err := c.sock.waitRoom(ctx); err != nil {
		return nil, c.failed("request to "+subject, err)
	}
	m, err := c.nc.RequestWithContext(ctx, subject, data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: %s is a NATS server, but nothing answers on %s there; start fieldpost-hub, or check hub.urls and the account of the credentials", ErrNoHub, c.server, subject)
	case err != nil:
		return nil, c.failed("request to "+subject, err)
	}
	return m.Data, nil
}

// failed prefers the cause why the connection ended to what one call saw of it.
func (c *natsConn) failed(op string, err error) error {
	if cause := c.Err(); cause != nil {
		return cause
	}
	return fmt.Errorf("link: %s: %w", op, classify(err))
}

// Subscribe calls fn for each message until the connection is closed.
func (c *natsConn) Subscribe(subject string, fn func(subject string, data []byte)) (func(), error) {
	sub, err := c.nc.Subscribe(subject, func(m *nats.Msg) {
		c.gate.RLock()
		defer c.gate.RUnlock()
		c.mu.Lock()
		silent := c.silent
		c.mu.Unlock()
		if !silent {
			fn(m.Subject, m.Data)
		}
	})
	if err != nil {
		return nil, c.failed("subscribe to "+subject, err)
	}
	if err := sub.SetPendingLimits(maxPendingMsgs, maxPendingBytes); err != nil {
		return nil, c.failed("subscribe to "+subject, err)
	}
	return func() { sub.Unsubscribe() }, nil
}

func (c *natsConn) Closed() <-chan struct{} { return c.closed }

// Err is nil until the connection has ended.
func (c *natsConn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *natsConn) Server() string { return c.server }

func (c *natsConn) MaxPayload() int { return int(c.nc.MaxPayload()) }

func (c *natsConn) Progress() time.Time {
	if n := c.sock.progress.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// Close must not be called from a callback.
func (c *natsConn) Close() {
	c.mu.Lock()
	c.silent = true
	c.mu.Unlock()
	c.end(ErrClosed)
	c.gate.Lock() // waits for running callbacks; none starts any more
	defer c.gate.Unlock()
	<-c.closed
}

// end closes the connection because of err, unless it has ended already.
func (c *natsConn) end(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.nc.Close()
}

// asyncError is told by NATS what goes wrong apart from any call. Every such
// error may mean that a message was dropped, so none is survived.
func (c *natsConn) asyncError(sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) && sub != nil {
		err = fmt.Errorf("%w: %s: not taken as fast as they came", ErrSlowConsumer, sub.Subject)
	} else {
		err = fmt.Errorf("link: %s: %w", c.server, classify(err))
	}
	c.end(err)
}

// ended is told by NATS that the connection is gone.
func (c *natsConn) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		err := c.nc.LastError()
		if sock := c.sock.failure(); sock != nil {
			err = sock
		}
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the server closed the connection")
		}
		c.err = fmt.Errorf("link: %s: %w", c.server, classify(err))
	}
	close(c.closed)
}
