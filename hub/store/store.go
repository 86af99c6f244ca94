package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Store is one hub instance's access to JetStream. Its methods are safe for
// concurrent use.
type Store struct {
	cfg      Config
	embedded *embedded // nil with Config.URLs
	servers  []string  // of Config.URLs, in the order in which this instance tries them
	// A read waits while a batch of its stream commits, and holds up whatever
	// follows on its connection: writing has its own.
	write *nats.Conn
	read  *nats.Conn
	js    jetstream.JetStream

	answers *answers
	news    *news

	mu      sync.Mutex
	closed  bool                          // guarded by mu
	buckets map[string]jetstream.KeyValue // guarded by mu
	conns   []*nats.Conn                  // of Connect, closed ones among them; guarded by mu
}

// Open starts the embedded server, or connects to the cluster. It does not
// create streams (EnsureStreams).
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, buckets: map[string]jetstream.KeyValue{}, news: newNews()}
	for _, i := range mrand.Perm(len(cfg.URLs)) {
		s.servers = append(s.servers, cfg.URLs[i])
	}
	if len(cfg.URLs) == 0 {
		if s.embedded, err = startServer(ctx, cfg); err != nil {
			return nil, err
		}
	}
	if err := s.connect(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) connect() (err error) {
	if s.write, err = s.Connect("fieldpost-hub store"); err != nil {
		return err
	}
	if s.read, err = s.Connect("fieldpost-hub read"); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.read, jetstream.WithDefaultTimeout(s.cfg.Timeout)); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if s.answers, err = newAnswers(s.write); err != nil {
		return err
	}
	return s.news.listen(s.read)
}

// Connect opens one more connection to the same JetStream; the caller closes
// it. It reconnects for ever and keeps nothing back for the time after.
func (s *Store) Connect(name string, opts ...nats.Option) (*nats.Conn, error) {
	all := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(250 * time.Millisecond), nats.PingInterval(10 * time.Second), nats.MaxPingsOutstanding(2),
		nats.Timeout(s.cfg.Timeout),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			s.cfg.Log.Warn("nats connection", "connection", name, "subject", subject, "error", err)
		}),
	}
	url := ""
	if s.embedded != nil {
		login, err := s.embedded.login()
		if err != nil {
			return nil, fmt.Errorf("store: embedded server: %w", err)
		}
		all = append(all, nats.InProcessServer(s.embedded.srv), login)
	} else {
		url = join(s.servers)
		all = append(all, s.logLink(name)...)
		all = append(all, nats.DontRandomize()) // all connections are at one server: they share what becomes of it
		if s.cfg.Creds != "" {
			all = append(all, nats.UserCredentials(s.cfg.Creds))
		}
	}
	nc, err := nats.Connect(url, append(all, opts...)...)
	if err != nil {
		if s.embedded == nil {
			return nil, fmt.Errorf("store: cannot reach %s: %w", s.ClientURL(), err)
		}
		return nil, fmt.Errorf("store: embedded server: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(slices.DeleteFunc(s.conns, (*nats.Conn).IsClosed), nc)
	return nc, nil
}

// Leave gives up the server that JetStream is reached by, for another one of the
// cluster: a server that is cut off from its peers takes clients as before, and
// never answers them. It reports whether there are others.
func (s *Store) Leave() (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bad := s.read.ConnectedUrl()
	for _, nc := range s.conns {
		if bad != "" && nc.ConnectedUrl() == bad && len(nc.Servers()) > 1 && nc.ForceReconnect() == nil {
			left = true
		}
	}
	return left
}

func (s *Store) logLink(name string) []nats.Option {
	return []nats.Option{
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.cfg.Log.Warn("connection to the cluster lost", "connection", name, "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			s.cfg.Log.Info("connection to the cluster is back", "connection", name, "server", nc.ConnectedUrl())
		}),
	}
}

func join(urls []string) (out string) {
	for i, u := range urls {
		if i > 0 {
			out += ","
		}
		out += u
	}
	return out
}

// ClientURL is where clients connect to.
func (s *Store) ClientURL() string {
	if s.embedded != nil {
		return s.embedded.srv.ClientURL()
	}
	return join(s.cfg.URLs)
}

// Server is the embedded server, nil with Config.URLs.
func (s *Store) Server() *server.Server {
	if s.embedded == nil {
		return nil
	}
	return s.embedded.srv
}

// JetStream is for what this package does not wrap.
func (s *Store) JetStream() jetstream.JetStream { return s.js }

// MaxPayload is the largest message, headers included, in bytes.
func (s *Store) MaxPayload() int { return int(s.write.MaxPayload()) }

// Err is nil while the streams can be reached.
func (s *Store) Err() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return errors.New("store: closed")
	case !s.write.IsConnected():
		if err := s.write.LastError(); err != nil {
			return fmt.Errorf("store: no connection to %s: %w", s.ClientURL(), err)
		}
		return fmt.Errorf("store: no connection to %s", s.ClientURL())
	}
	return nil
}

// Close ends the connections, then the embedded server. Batches without an
// answer get ErrUnknownOutcome.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	for _, nc := range []*nats.Conn{s.write, s.read} {
		if nc != nil {
			nc.Close()
		}
	}
	if s.answers != nil {
		s.answers.close()
	}
	if s.embedded != nil {
		s.embedded.close()
	}
	return nil
}

// HubID is the random name of this hub's data: created once, then the same for
// every instance, for ever.
func (s *Store) HubID(ctx context.Context) (string, error) {
	kv, err := s.KV(ctx, HubBucket)
	if err != nil {
		return "", err
	}
	id := fmt.Sprintf("%x", random(8))
	_, err = kv.Create(ctx, "hub_id", []byte(id))
	if err == nil {
		return id, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return "", fmt.Errorf("store: create hub_id: %w", err)
	}
	e, err := kv.Get(ctx, "hub_id")
	if err != nil {
		return "", fmt.Errorf("store: read hub_id: %w", err)
	}
	return string(e.Value()), nil
}

// KV returns a bucket that EnsureStreams created. Reads of HubBucket come from
// the leader.
func (s *Store) KV(ctx context.Context, bucket string) (jetstream.KeyValue, error) {
	s.mu.Lock()
	kv := s.buckets[bucket]
	s.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := s.js.KeyValue(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("store: bucket %s: %w", bucket, err)
	}
	s.mu.Lock()
	s.buckets[bucket] = kv
	s.mu.Unlock()
	return kv, nil
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand, Go 1.24)
	return b
}
