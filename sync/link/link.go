// Package link is the transport between an agent and its hub.
package link

import "context"

// Conn is one connection to a hub. All methods are safe for concurrent use.
type Conn interface {
	// Publish hands data to the transport; it blocks while the socket does not
	// take it, until ctx ends.
	Publish(ctx context.Context, subject string, data []byte) error
	// Request publishes and waits for one reply.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Subscribe calls fn, from one goroutine and in order, for each message.
	Subscribe(subject string, fn func(data []byte)) (unsubscribe func(), err error)
	// Closed is closed when the connection is gone; Err then says why.
	Closed() <-chan struct{}
	Err() error
	// Server is the address in use, for people.
	Server() string
	// Close returns when no callback runs any more.
	Close()
}

// Dialer opens connections. Names and routes are resolved anew by every call.
type Dialer interface {
	Dial(ctx context.Context) (Conn, error)
}
