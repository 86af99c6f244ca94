package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fieldpost/fieldpost/hub/admin"
)

const (
	apiTimeout   = 10 * time.Second // for one answer of JetStream
	dialTimeout  = 10 * time.Second // for one server, its greeting included
	askPause     = 250 * time.Millisecond
	flushTimeout = 5 * time.Second // for what is still to be said at an end
)

// DefaultURL is where a hub on this machine listens.
const DefaultURL = "nats://127.0.0.1:4222"

// Errors that callers branch on.
var (
	// ErrClosed means that the Client was closed.
	ErrClosed = errors.New("hub/client: closed")
	// ErrTerminate, wrapped or not, is what a handler returns for a message that
	// no retry will help: it is not delivered again.
	ErrTerminate = errors.New("hub/client: terminate this message")
	// ErrGroupRemoved means that somebody removed the group, or its stream, while
	// it was read.
	ErrGroupRemoved = errors.New("hub/client: the group was removed")
	// ErrConflict means that the group exists with a setting that cannot be
	// changed in place.
	ErrConflict = errors.New("hub/client: the group exists with other settings")
)

// Config says which hub, and as whom. The zero value is a hub on this machine.
type Config struct {
	URLs  []string // of one hub or cluster; empty: DefaultURL
	Creds string   // credentials file; may be empty
	CA    string   // PEM file with the authorities to trust; empty: the system's
	Name  string   // of this program, as the server shows it; empty: "fieldpost back end"
	HTTP  string   // of the hub's HTTP API, for Devices and Send; empty: 127.0.0.1:8420
	Log   *slog.Logger
}

// Client is a connection to a hub. Its methods are safe for concurrent use.
type Client struct {
	cfg   Config
	nc    *nats.Conn
	js    jetstream.JetStream
	admin *admin.Client

	life context.Context // ends with Close
	end  context.CancelCauseFunc

	mu     sync.Mutex
	closed bool           // guarded by mu
	work   sync.WaitGroup // calls that run; begun under mu
}

// Connect connects to the first of the URLs that answers. From then on the
// connection comes back by itself for as long as the Client lives.
func Connect(ctx context.Context, cfg Config) (*Client, error) {
	if len(cfg.URLs) == 0 {
		cfg.URLs = []string{DefaultURL}
	}
	if cfg.Name == "" {
		cfg.Name = "fieldpost back end"
	}
	if cfg.HTTP == "" {
		cfg.HTTP = "127.0.0.1:8420"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg}
	c.life, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	if c.admin, err = admin.New(cfg.HTTP); err != nil {
		return nil, fmt.Errorf("hub/client: Config.HTTP: %w", err)
	}
	dial := &dialer{}
	opts, err := c.options(dial)
	if err != nil {
		return nil, err
	}
	dial.first.Store(&ctx)
	defer dial.first.Store(nil)
	urls := strings.Join(cfg.URLs, ",")
	if c.nc, err = nats.Connect(urls, opts...); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("hub/client: cannot reach %s: %w; is the hub running, and is this its nats.listen?", urls, err)
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(apiTimeout)); err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("hub/client: %w", err)
	}
	return c, nil
}

// options of the NATS connection. Nothing is kept back for the time after an
// outage: what was not said is found out anew.
func (c *Client) options(dial *dialer) ([]nats.Option, error) {
	log := c.cfg.Log
	out := []nats.Option{
		nats.Name(c.cfg.Name), nats.Timeout(dialTimeout), nats.SetCustomDialer(dial),
		nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.PingInterval(20 * time.Second), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection to the hub lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connection to the hub is back", "server", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			log.Warn("the hub's NATS server refuses something", "error", err)
		}),
	}
	if c.cfg.Creds != "" {
		out = append(out, nats.UserCredentials(c.cfg.Creds))
	}
	if c.cfg.CA != "" {
		pem, err := os.ReadFile(c.cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("hub/client: Config.CA: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("hub/client: Config.CA: %s holds no certificate in PEM", c.cfg.CA)
		}
		out = append(out, nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	}
	return out, nil
}

// dialer gives up the first connection when Connect's context ends.
type dialer struct {
	first atomic.Pointer[context.Context] // nil once Connect has returned
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, dial := context.Background(), net.Dialer{Timeout: dialTimeout}
	if first := d.first.Load(); first != nil {
		ctx = *first
	}
	return dial.DialContext(ctx, network, address)
}

// Close ends every call that runs and returns when their handlers have returned
// and the connection is closed. A handler that calls it waits for itself.
func (c *Client) Close() error {
	c.mu.Lock()
	again := c.closed
	c.closed = true
	c.mu.Unlock()
	c.end(ErrClosed)
	c.work.Wait()
	c.admin.Close()
	if again {
		return nil
	}
	err := c.flush()
	c.nc.Close()
	if err != nil {
		return fmt.Errorf("hub/client: close: what was given back last may not have arrived: %w", err)
	}
	return nil
}

// flush returns when the server has heard what was said. A connection that is
// down has nothing to say.
func (c *Client) flush() error {
	if !c.nc.IsConnected() {
		return nil
	}
	return c.nc.FlushTimeout(flushTimeout)
}

// begin makes Close wait for a call until done, and ends the call's context with
// the Client.
func (c *Client) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, ErrClosed
	}
	c.work.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.work.Done()
	}, nil
}

// ended turns the end of a call's context into what the call returns: the
// caller's own wish is no error.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return nil
}

// openTries is how often in a row JetStream may leave a question unanswered that
// a call begins with, while the connection is up.
const openTries = 4

// ask asks JetStream until it answers: while the connection is down, for as long
// as the call lives.
func (c *Client) ask(ctx context.Context, question func(context.Context) error) error {
	for unanswered := 0; ; {
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		err := question(try)
		cancel()
		if err == nil || ctx.Err() != nil || answered(err) {
			return err
		}
		if c.nc.IsConnected() {
			if unanswered++; unanswered == openTries {
				return fmt.Errorf("%w; is JetStream up, and may this user call its API ($JS.API.>)?", err)
			}
			c.cfg.Log.Info("JetStream does not answer; asking again", "error", err)
		}
		sleep(ctx, askPause)
	}
}

// answered reports whether an error is what a server has said for good.
func answered(err error) bool {
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		return api.APIError().Code != 503
	}
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) &&
		!errors.Is(err, nats.ErrReconnectBufExceeded) && !errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, nats.ErrConnectionReconnecting)
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
