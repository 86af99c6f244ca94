package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	retryBase = 100 * time.Millisecond
	retryCap  = 5 * time.Second
	// farewell is how long an answer is tried to be given after the end.
	farewell = 5 * time.Second
	// maxCommandLine is a payload of 256 KiB, every byte of it escaped, and the rest.
	maxCommandLine = 2 << 20
	// maxSettled is more lines than there can be in a socket.
	maxSettled = 8192
)

// subscription asks the agent for commands over HTTP, on the same socket.
type subscription struct {
	http    *http.Client
	handler Handler
	n       int
	places  chan struct{} // one for each handler that may run

	mu      sync.Mutex
	running map[string]bool // ids of which a handler runs or waits to; guarded by mu
	settled map[string]bool // ids that the agent knows are settled; guarded by mu
	oldest  []string        // keys of settled, at most maxSettled; guarded by mu
	work    sync.WaitGroup
}

func newSubscription(path string, handler Handler, n int) *subscription {
	return &subscription{
		handler: handler, n: n, places: make(chan struct{}, n), running: map[string]bool{}, settled: map[string]bool{},
		http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}}},
	}
}

// run subscribes until ctx ends, or the agent refuses.
func (s *subscription) run(ctx context.Context, filter string) error {
	defer s.http.CloseIdleConnections()
	defer s.work.Wait()
	path := "/v1/commands?" + url.Values{"filter": {filter}, "max": {strconv.Itoa(s.n)}}.Encode()
	for wait := retryBase; ; {
		began := time.Now()
		err := s.stream(ctx, path)
		if ctx.Err() != nil {
			return nil
		}
		if final(err) {
			return err
		}
		if time.Since(began) > retryCap {
			wait = retryBase
		}
		if !pause(ctx, &wait) {
			return nil
		}
	}
}

// final reports whether asking again gets the same answer.
func final(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "starting", "stopping", "quota", "disk_fault", "disk_full", "timeout", "internal":
		return false
	}
	return true
}

// pause waits with full jitter, longer each time; false when ctx has ended.
func pause(ctx context.Context, wait *time.Duration) bool {
	timer := time.NewTimer(time.Duration(rand.Float64() * float64(*wait)))
	defer timer.Stop()
	*wait = min(2**wait, retryCap)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stream takes commands until the connection ends. When ctx does, it takes no more,
// and stays until the handlers have answered: else the agent would give what they
// have to others meanwhile.
func (s *subscription) stream(ctx context.Context, path string) error {
	open, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		for range s.n { // whoever has all places is the only one
			s.places <- struct{}{}
		}
		end()
	})()
	resp, err := s.ask(open, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer func() {
		if ctx.Err() != nil {
			<-open.Done()
		}
	}()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxCommandLine)
	for lines.Scan() {
		var in struct {
			ID         string    `json:"id"`
			Subject    string    `json:"subject"`
			Payload    *string   `json:"payload"`
			B64        []byte    `json:"payload_b64"`
			Deliveries int       `json:"deliveries"`
			Sent       time.Time `json:"sent"`
			Expires    time.Time `json:"expires"`
		}
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil || in.ID == "" {
			return errorf(CodeProtocol, "a line of the agent is no command: %.200q", lines.Bytes())
		}
		c := Command{ID: in.ID, Subject: in.Subject, Payload: in.B64, Deliveries: in.Deliveries, Sent: in.Sent, Expires: in.Expires}
		if in.Payload != nil {
			c.Payload = []byte(*in.Payload)
		}
		if !s.start(ctx, c) {
			return ctx.Err()
		}
	}
	return lines.Err()
}

// start has a handler carry out c, unless one does already: then its answer is
// the one that counts. Nor is it carried out again if it was handed over a second
// time before its ack, and is read only now. It waits while n others run; false when ctx has ended.
func (s *subscription) start(ctx context.Context, c Command) bool {
	s.mu.Lock()
	if s.running[c.ID] || s.settled[c.ID] {
		s.mu.Unlock()
		return true
	}
	s.running[c.ID] = true
	s.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return false // the agent sees that we are gone
	}
	s.work.Go(func() {
		defer func() { <-s.places }()
		result, err := s.handler(ctx, c)
		settled := s.answer(ctx, c.ID, result, err)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, c.ID)
		if !settled {
			return
		}
		s.settled[c.ID] = true
		if s.oldest = append(s.oldest, c.ID); len(s.oldest) > maxSettled {
			delete(s.settled, s.oldest[0])
			s.oldest = s.oldest[1:]
		}
	})
	return true
}

// answer tells the agent what became of a command until it has heard it; then
// settled tells whether that was its end.
func (s *subscription) answer(ctx context.Context, id string, result []byte, err error) (settled bool) {
	verb, body := "ack", result[:min(len(result), maxResult)]
	if err != nil {
		verb, body = "nak", []byte(err.Error())
		if errors.Is(err, ErrTerminate) {
			verb = "term"
		}
		body = body[:min(len(body), maxResult)]
	}
	patience, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(farewell, cancel)
		context.AfterFunc(patience, func() { timer.Stop() })
	})()
	for wait := retryBase; ; {
		resp, err := s.ask(patience, http.MethodPost, "/v1/commands/"+url.PathEscape(id)+"/"+verb, body)
		if err == nil {
			resp.Body.Close()
			return verb != "nak"
		}
		// Refused for good: it is settled otherwise, or not known any more. It will
		// not be delivered again, so there is nobody left to tell.
		if final(err) {
			return true
		}
		if !pause(patience, &wait) {
			return false
		}
	}
}

// ask sends a request and returns a good answer; what the agent refuses is an *Error.
func (s *subscription) ask(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return nil, errorf("bad_request", "%v", err)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fieldpost: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var p struct{ Code, Detail string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Code == "" {
		return nil, errorf(CodeProtocol, "the agent answers %s; is it one?", resp.Status)
	}
	return nil, errorf(p.Code, "%s", p.Detail)
}
