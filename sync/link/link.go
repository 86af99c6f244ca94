package link

import (
	"context"
	"errors"
	"time"
)

// Errors that callers branch on. Each is wrapped with what happened, where, and
// what to do next.
var (
	ErrClosed       = errors.New("link: closed")             // Close was called
	ErrCredentials  = errors.New("link: credentials")        // refused, expired or unreadable
	ErrPermission   = errors.New("link: not permitted")      // the credentials do not allow a subject
	ErrTLS          = errors.New("link: tls")                // certificate or handshake
	ErrNoHub        = errors.New("link: no hub listens")     // the server is up, no hub answers there
	ErrSlowConsumer = errors.New("link: messages were lost") // received faster than they were taken
)

// Conn is one connection to a hub. All methods are safe for concurrent use.
type Conn interface {
	// Publish hands data to the transport, which may still hold it when Publish
	// returns; it blocks while the socket does not take it, until ctx ends.
	Publish(ctx context.Context, subject string, data []byte) error
	// Request publishes and waits for one reply.
	Request(ctx context.Context, subject string, data []byte) ([]byte, error)
	// Subscribe calls fn, from one goroutine and in order, for each message.
	// The subject may hold wildcards; fn is told the literal one.
	Subscribe(subject string, fn func(subject string, data []byte)) (unsubscribe func(), err error)
	// Closed is closed when the connection is gone; Err then says why.
	Closed() <-chan struct{}
	Err() error
	// Server is the address in use, for people.
	Server() string
	// MaxPayload is the largest message that the server takes, in bytes; 0: unknown.
	MaxPayload() int
	// Progress is when the peer last made room for bytes that had been waiting: a
	// link on which a large message creeps along is slow, not dead.
	Progress() time.Time
	// Close returns when no callback runs any more. What Publish took shortly
	// before is still sent if the peer takes it within a moment.
	Close()
}

// Dialer opens connections. Names and routes are resolved anew by every call.
type Dialer interface {
	Dial(ctx context.Context) (Conn, error)
}
