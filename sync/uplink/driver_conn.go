package uplink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fieldpost/fieldpost/sync/link"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	// dialTimeout bounds one round through all servers of a hub.
	dialTimeout = time.Minute
	// byeTimeout is how long a graceful end waits for the last frames to leave.
	byeTimeout = time.Second
	// writtenStep is after how many bytes the sender is told that they were written.
	writtenStep = 16 << 10
)

// arrival is an event of a connection.
type arrival struct {
	conn  *connection
	event Event
	link  link.Conn // with Linked
	bytes int       // received
}

// connection is one connection, from the dial on. It has a goroutine that dials
// and then writes, and one for each open request.
type connection struct {
	ctx      context.Context
	cancel   context.CancelFunc
	arrivals chan<- arrival
	device   string
	link     link.Conn // owned by Run, once Linked has arrived

	mu    sync.Mutex
	queue []message     // guarded by mu: at most the window and some small ones
	done  bool          // guarded by mu: nothing more is queued
	wake  chan struct{} // capacity 1
	ended chan struct{} // closed when the writer has ended
}

type message struct {
	subject string
	data    []byte
	body    int // bytes of a frame's body
}

// dial starts a connection.
func (r *run) dial() *connection {
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{
		ctx: ctx, cancel: cancel, arrivals: r.arrivals, device: r.cfg.Device,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	r.wg.Go(func() {
		defer close(c.ended)
		defer cancel()
		c.tell(arrival{event: Unlinked{c.run(r.cfg.Dialer)}})
	})
	return c
}

// run dials, then writes what is queued until the connection ends.
func (c *connection) run(d link.Dialer) error {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	conn, err := d.Dial(ctx)
	cancel()
	if err != nil {
		return err
	}
	defer conn.Close()
	// One subscription for the sessions of this connection, made before the first
	// is asked for: in a cluster, interest takes its time to reach the hub.
	if _, err := conn.Subscribe(wire.InboxPrefix(c.device)+".*", c.reply); err != nil {
		return err
	}
	c.tell(arrival{link: conn, event: Linked{conn.MaxPayload()}})
	for {
		batch, done := c.take()
		written := 0
		for _, m := range batch {
			if err := conn.Publish(c.ctx, m.subject, m.data); err != nil {
				return err
			}
			if written += m.body; written >= writtenStep {
				c.tell(arrival{event: Written{written}})
				written = 0
			}
		}
		if written > 0 {
			c.tell(arrival{event: Written{written}})
		}
		if done && len(batch) == 0 {
			return link.ErrClosed
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-c.wake:
		case <-conn.Closed():
			return conn.Err()
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
}

func (c *connection) tell(a arrival) {
	a.conn = c
	select {
	case c.arrivals <- a:
	case <-c.ctx.Done():
	}
}

func (c *connection) send(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.queue = append(c.queue, m)
		wake(c.wake)
	}
}

func (c *connection) take() (batch []message, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch, c.queue = c.queue, nil
	return batch, c.done
}

// finish sends what is queued, but waits no longer than a moment.
func (c *connection) finish() {
	c.mu.Lock()
	c.done = true
	c.mu.Unlock()
	wake(c.wake)
	late := time.NewTimer(byeTimeout)
	defer late.Stop()
	select {
	case <-c.ended:
	case <-late.C:
	}
}

// hangup ends the connection; its goroutines end soon, and tell nothing more.
func (c *connection) hangup() { c.cancel() }

// reply takes a message of the hub; it is called in order, and waits while Run
// is busy.
func (c *connection) reply(subject string, data []byte) {
	tag, instance := wire.ParseAnswerSubject(c.device, subject)
	if tag == "" && instance == "" {
		return
	}
	a := arrival{bytes: len(data)}
	ack, end, err := wire.ParseReply(data)
	switch {
	case err != nil:
		a.event = Ended{tag, instance, &wire.SessionError{Code: wire.CodeCorrupt, Detail: "an answer of the hub: " + err.Error()}}
	case end != nil:
		a.event = Ended{tag, instance, end}
	default:
		a.event = Acked{tag, ack}
	}
	c.tell(a)
}

// open requests a session. What is still queued belongs to the one before, and
// would only tell the hub what it is going to state anew.
func (r *run) open(o wire.Open) {
	c := r.conn
	c.take()
	data, err := json.Marshal(o)
	if err != nil {
		r.todo = append(r.todo, OpenFailed{fmt.Errorf("uplink: open: %w", err)})
		return
	}
	r.cfg.Hooks.Sent(len(data))
	conn := c.link
	r.wg.Go(func() { c.request(conn, data) })
}

func (c *connection) request(conn link.Conn, data []byte) {
	ctx, cancel := context.WithTimeout(c.ctx, openTimeout)
	defer cancel()
	answer, err := conn.Request(ctx, wire.OpenSubject(c.device), data)
	a := arrival{bytes: len(answer)}
	switch {
	case errors.Is(err, link.ErrNoHub):
		a.event = OpenFailed{err}
	case err != nil:
		return // the sender's own timeout, or the connection's end, says it all
	default:
		if reply, err := wire.ParseOpenReply(answer); err != nil {
			a.event = OpenFailed{err}
		} else {
			a.event = OpenReplied{reply}
		}
	}
	c.tell(a)
}
