package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// connectTimeout bounds one attempt at one server: name, TCP, TLS and login,
// which over a satellite take ten round trips.
const connectTimeout = 10 * time.Second

// Config configures a NATS dialer. URLs and Device are required.
type Config struct {
	URLs   []string // nats://, tls://, ws:// or wss://; all are one hub
	Device string   // names the connection and its inbox
	Creds  string   // file; "": none. Read anew by every Dial.
	CA     string   // PEM file; "": the system's. Set, it also demands TLS.

	// PingInterval is how often an idle connection is probed; two unanswered
	// probes end it. Asked at every Dial; nil: 20 s.
	PingInterval func() time.Duration
}

// NATS dials the NATS servers of a hub.
type NATS struct {
	cfg     Config
	dial    dialFunc // opens sockets; tests replace it
	servers servers
}

// dialFunc is net.Dialer.DialContext: it resolves the name anew, and of a host
// with IPv6 and IPv4 addresses the one that answers wins.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// NewNATS checks cfg and returns a dialer.
func NewNATS(cfg Config) (*NATS, error) {
	if err := wire.CheckDevice(cfg.Device); err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	if len(cfg.URLs) == 0 {
		return nil, errors.New("link: no url of a hub; set hub.urls")
	}
	for _, s := range cfg.URLs {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return nil, fmt.Errorf("link: hub url %q is not like nats://host:4222 (or tls, ws, wss)", s)
		}
	}
	if cfg.PingInterval == nil {
		cfg.PingInterval = func() time.Duration { return 20 * time.Second }
	}
	d := &NATS{cfg: cfg, dial: (&net.Dialer{}).DialContext}
	for _, u := range cfg.URLs {
		d.servers.configured = append(d.servers.configured, target{url: u})
	}
	return d, nil
}

// Dial tries the servers one beside the other, each next one a moment after the
// one before: a dead one costs that moment. The first that lets us in is taken.
// The error tells of every attempt.
func (d *NATS) Dial(ctx context.Context) (Conn, error) {
	ts := d.servers.order(time.Now())
	w, failed := race(ctx, len(ts), stagger,
		func(ctx context.Context, i int) (*natsConn, error) { return d.connect(ctx, ts[i]) },
		(*natsConn).Close)
	now := time.Now()
	var errs attempts
	for _, f := range failed {
		d.servers.tried(ts[f.index], false, now)
		errs = append(errs, f.err)
	}
	if w.index < 0 {
		if errs == nil {
			errs = attempts{context.Cause(ctx)}
		}
		return nil, errs
	}
	for _, t := range ts[:w.index] { // overtaken, if not failed
		d.servers.tried(t, false, now)
	}
	d.servers.tried(ts[w.index], true, now)
	d.remember(w.won.nc)
	return w.won, nil
}

// remember keeps the servers that the cluster has told of, for later dials.
func (d *NATS) remember(nc *nats.Conn) {
	name := ""
	if cs, err := nc.TLSConnectionState(); err == nil {
		name = cs.ServerName // discovered servers are bare addresses
	}
	d.servers.told(nc.DiscoveredServers(), name, time.Now())
}

func (d *NATS) connect(ctx context.Context, t target) (*natsConn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dial := &dialing{ctx: ctx, open: d.dial}
	c := &natsConn{closed: make(chan struct{}), server: redacted(t.url)}
	ready := make(chan struct{}) // callbacks wait until c is complete
	opts := []nats.Option{
		nats.Name("fieldpost-agent " + d.cfg.Device),
		nats.CustomInboxPrefix(wire.InboxPrefix(d.cfg.Device)),
		nats.NoReconnect(),
		nats.ReconnectBufSize(-1),
		nats.Timeout(connectTimeout),
		nats.PingInterval(d.cfg.PingInterval()),
		nats.MaxPingsOutstanding(2),
		nats.SkipHostLookup(), // the dialer resolves, and can be cancelled
		nats.SetCustomDialer(dial),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { <-ready; c.asyncError(sub, err) }),
		nats.DiscoveredServersHandler(func(nc *nats.Conn) { d.remember(nc) }),
		nats.ClosedHandler(func(*nats.Conn) { <-ready; c.ended() }),
	}
	secure, err := d.secrets(t)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(t.url, append(opts, secure...)...)
	if err != nil {
		close(ready)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("link: connect to %s: no answer: %w", redacted(t.url), context.Cause(ctx))
		}
		return nil, fmt.Errorf("link: connect to %s: %w", redacted(t.url), classify(dial.cause(err)))
	}
	c.nc, c.sock = nc, dial.sock
	close(ready)
	if !dial.keep() {
		c.Close()
		return nil, fmt.Errorf("link: connect to %s: %w", redacted(t.url), context.Cause(ctx))
	}
	return c, nil
}

// secrets are the options that need files.
func (d *NATS) secrets(t target) (opts []nats.Option, err error) {
	if d.cfg.Creds != "" {
		if _, err := os.ReadFile(d.cfg.Creds); err != nil {
			return nil, fmt.Errorf("%w: %w; put the file there or set hub.creds", ErrCredentials, err)
		}
		opts = append(opts, nats.UserCredentials(d.cfg.Creds))
	}
	var pool *x509.CertPool
	if d.cfg.CA != "" {
		pem, err := os.ReadFile(d.cfg.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: %w; put the file there or set hub.ca", ErrTLS, err)
		}
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: %s holds no PEM certificate", ErrTLS, d.cfg.CA)
		}
	}
	if pool != nil || t.tlsName != "" {
		opts = append(opts, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: t.tlsName}))
	}
	return opts, nil
}

// dialing opens the sockets of one attempt; NATS calls Dial, more than once if
// a server that refuses us names others.
type dialing struct {
	ctx  context.Context
	open dialFunc
	sock *socket
	stop func() bool // detaches sock from ctx
	err  error       // why there is no socket
}

// Dial opens a socket that ends with the attempt unless it is kept.
func (d *dialing) Dial(network, address string) (net.Conn, error) {
	c, err := openSocket(d.ctx, d.open, network, address)
	if d.err = err; err != nil {
		return nil, err
	}
	sock := newSocket(c)
	d.sock, d.stop = sock, context.AfterFunc(d.ctx, func() { sock.Close() })
	return sock, nil
}

// keep reports whether the socket outlives the attempt.
func (d *dialing) keep() bool { return d.stop() }

// cause is what NATS hides: it says "no servers" when a dial was refused.
func (d *dialing) cause(err error) error {
	if d.err != nil {
		return d.err
	}
	return err
}

// attempts is why no server could be reached.
type attempts []error

func (a attempts) Error() string {
	texts := make([]string, len(a))
	for i, err := range a {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (a attempts) Unwrap() []error { return a }
