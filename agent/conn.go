package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fieldpost/fieldpost/agent/frame"
)

// maxConns bounds the connections of all local programs; each costs some 20 KB.
const maxConns = 512

// server accepts connections and hands each to HTTP or to the framed protocol.
type server struct {
	a    *Agent
	ln   net.Listener
	http *http.Server
	pass *passListener // connections that speak HTTP
	open atomic.Int64  // connections

	work sync.WaitGroup // everything that start has started

	framed sync.WaitGroup // connections that speak the framed protocol

	mu     sync.Mutex
	conns  map[net.Conn]protocol // not (yet) net/http's; guarded by mu
	closed bool                  // guarded by mu
}

type protocol bool

const (
	unknown protocol = false
	framed  protocol = true
)

func newServer(a *Agent, ln net.Listener) *server {
	s := &server{a: a, ln: ln, conns: map[net.Conn]protocol{}, pass: newPassListener(ln.Addr())}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(a.serveHTTP),
		ReadHeaderTimeout: a.cfg.HeaderTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelWarn),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, st http.ConnState) {
			if st == http.StateIdle {
				c.(*httpConn).answered()
			}
		},
	}
	return s
}

// start returns at once; shutdown waits for everything.
func (s *server) start() {
	s.work.Go(func() { s.http.Serve(s.pass) }) // ends with pass
	s.work.Go(s.accept)
}

func (s *server) accept() {
	var delay time.Duration
	for {
		c, err := s.ln.Accept()
		if err == nil {
			delay = 0
			s.admit(c)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of descriptors or memory: connections will end and free some.
		if delay == 0 {
			s.a.log.Warn("cannot accept connections for now", "error", err)
		}
		delay = min(max(2*delay, 5*time.Millisecond), time.Second)
		time.Sleep(delay)
	}
}

func (s *server) admit(c net.Conn) {
	if s.open.Add(1) > maxConns {
		s.open.Add(-1)
		c.SetWriteDeadline(time.Now().Add(time.Second))
		c.Write(newProblem(codeQuota, "more than %d connections are open; close some", maxConns).raw())
		c.Close()
		return
	}
	c = &countedConn{Conn: c, open: &s.open}
	if !s.track(c) {
		c.Close()
		return
	}
	s.work.Go(func() { s.sniff(c) })
}

// track reports whether the connection may be served; shutdown closes what is tracked.
func (s *server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = unknown
	return true
}

// serveFramed returns when the connection has ended.
func (s *server) serveFramed(c net.Conn) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns[c] = framed
		s.framed.Add(1)
	}
	s.mu.Unlock()
	if !closed {
		newFrameConn(s.a, c).serve()
		s.framed.Done()
	}
	s.untrack(c)
	c.Close()
}

func (s *server) untrack(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// sniff reads as much as tells the two protocols apart.
func (s *server) sniff(c net.Conn) {
	c.SetReadDeadline(time.Now().Add(s.a.cfg.HeaderTimeout))
	var head [len(frame.Preface)]byte
	n := 0
	for n < len(head) && string(head[:n]) == frame.Preface[:n] {
		m, err := c.Read(head[n:])
		n += m
		if err != nil && m == 0 {
			s.untrack(c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				c.SetWriteDeadline(time.Now().Add(time.Second))
				c.Write(headerTimeout(s.a.cfg.HeaderTimeout).raw())
			} else if n > 0 {
				c.Write(newProblem(codeBadRequest, "the request ends after %d bytes", n).raw())
			}
			c.Close()
			return
		}
	}
	c.SetReadDeadline(time.Time{})
	if string(head[:n]) == frame.Preface {
		s.serveFramed(c)
		return
	}
	s.untrack(c)
	if !s.pass.hand(&httpConn{Conn: c, head: bytes.Clone(head[:n]), headers: s.a.cfg.HeaderTimeout, begun: true}) {
		c.Close()
	}
}

// shutdown returns when nothing of the server runs any more. Until ctx ends,
// answers are finished.
func (s *server) shutdown(ctx context.Context) {
	s.ln.Close()
	if s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.pass.Close()
	s.close(unknown)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.framed.Wait()
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		s.close(framed)
	}
	s.work.Wait()
	<-answered
}

// close ends the connections that speak p; no others are taken from now on.
func (s *server) close(p protocol) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c, speaks := range s.conns {
		if speaks == p {
			c.Close()
		}
	}
}

func headerTimeout(d time.Duration) *problem {
	return newProblem(codeTimeout, "no complete request head within %v; send it at once", d)
}

// countedConn gives its place back when it is closed.
type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection so that its answer is still read.
func (c *countedConn) CloseWrite() error {
	if u, ok := c.Conn.(*net.UnixConn); ok {
		return u.CloseWrite()
	}
	return nil
}

type connKey struct{}

// httpConn is a connection of net/http that answers in the form of this API
// where net/http would answer in plain text, or close without a word.
type httpConn struct {
	net.Conn
	head    []byte // read by sniff; owned by the reader
	headers time.Duration

	serving atomic.Bool // from the call of a handler until its answer is out
	begun   bool        // bytes of a request were read, no handler called yet; owned by the reader
}

// Read answers a request whose head came too slowly.
func (c *httpConn) Read(p []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if c.serving.Load() {
		return n, err
	}
	c.begun = c.begun || n > 0
	if errors.Is(err, os.ErrDeadlineExceeded) && c.begun {
		c.SetWriteDeadline(time.Now().Add(time.Second))
		c.Conn.Write(headerTimeout(c.headers).raw())
	}
	return n, err
}

// Write puts a problem in the place of an error that net/http found by itself.
func (c *httpConn) Write(p []byte) (int, error) {
	if c.serving.Load() || !bytes.HasPrefix(p, []byte("HTTP/1.")) {
		return c.Conn.Write(p)
	}
	line, _, _ := strings.Cut(string(p), "\r\n")
	_, text, _ := strings.Cut(line, " ")
	_, body, _ := strings.Cut(string(p), "\r\n\r\n")
	if text == "" || text[0] < '4' {
		return c.Conn.Write(p)
	}
	if strings.TrimSpace(body) != "" {
		text = strings.TrimSpace(body)
	}
	prob := newProblem(codeBadRequest, "this is not a request of HTTP/1.1: %s", text)
	if strings.HasPrefix(text, "431") {
		prob = newProblem(codeTooLarge, "the request's headers are larger than 16KiB together; put data into the body")
	}
	if _, err := c.Conn.Write(prob.raw()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// answered is called between two requests.
func (c *httpConn) answered() {
	c.begun = false
	c.serving.Store(false)
}

func (c *httpConn) CloseWrite() error { return c.Conn.(*countedConn).CloseWrite() }

// passListener is the listener of net/http: it gives out what it is handed.
type passListener struct {
	addr net.Addr
	ch   chan net.Conn
	done chan struct{}
	once sync.Once
}

func newPassListener(addr net.Addr) *passListener {
	return &passListener{addr: addr, ch: make(chan net.Conn), done: make(chan struct{})}
}

// hand reports whether the connection is net/http's now.
func (l *passListener) hand(c net.Conn) bool {
	select {
	case l.ch <- c:
		return true
	case <-l.done:
		return false
	}
}

func (l *passListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *passListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *passListener) Addr() net.Addr { return l.addr }

var _ io.Closer = (*passListener)(nil)
