package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Desired is what the hub wants of this device.
type Desired struct {
	Version   string          `json:"version"`            // given last; empty: none yet
	State     string          `json:"state"`              // trial, applied or refused; empty with Version
	Reason    string          `json:"reason"`             // why it is refused
	InEffect  string          `json:"in_effect"`          // the version of Document: another one while Version is refused by the agent
	Document  json.RawMessage `json:"document"`           // a JSON object; its member "agent" is the agent's
	Confirmed time.Time       `json:"confirmed,omitzero"` // when a program said that it has applied Version; zero: none has
}

// Desired returns what the hub wants of this device now. It uses a connection
// of its own. An error from the agent is an *Error.
func (c *Client) Desired(ctx context.Context) (Desired, error) {
	h := desiredHTTP(c.path)
	defer h.CloseIdleConnections()
	d, _, err := askDesired(ctx, h, "", 0)
	return d, err
}

// desiredWait is how long one request of WatchDesired waits.
const desiredWait = 5 * time.Minute

// WatchDesired calls fn with what the hub wants of this device, at once and after
// every change, until ctx ends or the client is closed; then it returns nil. Of
// several changes in a row fn may see the last only. While the agent does not answer
// it is asked again and again. fn is called from one goroutine.
func (c *Client) WatchDesired(ctx context.Context, fn func(Desired)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.closing:
			cancel()
		case <-ctx.Done():
		}
	}()
	h := desiredHTTP(c.path)
	defer h.CloseIdleConnections()
	tag := ""
	for wait := retryBase; ; {
		d, now, err := askDesired(ctx, h, tag, desiredWait)
		switch {
		case ctx.Err() != nil:
			return nil
		case final(err):
			return err
		case err != nil:
			if !pause(ctx, &wait) {
				return nil
			}
			continue
		case now != tag:
			tag = now
			fn(d)
		}
		wait = retryBase
	}
}

// RefuseDesired says that a program cannot do what a version wants of it. The hub
// is told that the version is refused; what it wants of the agent stays in effect.
// Code "outdated": it is not the last version, or the agent has refused it.
func (c *Client) RefuseDesired(ctx context.Context, version, reason string) error {
	return c.sayDesired(ctx, version, "refuse", reason)
}

// ApplyDesired says that a program has done what a version wants of it. That is
// shown on the device. Code "outdated" as RefuseDesired.
func (c *Client) ApplyDesired(ctx context.Context, version string) error {
	return c.sayDesired(ctx, version, "apply", "")
}

func (c *Client) sayDesired(ctx context.Context, version, verb, reason string) error {
	h := desiredHTTP(c.path)
	defer h.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent/v1/desired/"+url.PathEscape(version)+"/"+verb, strings.NewReader(reason))
	if err != nil {
		return errorf("bad_request", "%v", err)
	}
	resp, err := h.Do(req)
	if err != nil {
		return fmt.Errorf("fieldpost: %w", err)
	}
	defer resp.Body.Close()
	return desiredProblem(resp)
}

func desiredHTTP(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// maxDesired is more than the agent answers: a document of 64 KiB, and the rest.
const maxDesired = 1 << 20

// askDesired returns what there is, and its tag. With wait, not before the tag is
// another one or so much time has passed.
func askDesired(ctx context.Context, h *http.Client, tag string, wait time.Duration) (d Desired, now string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/v1/desired?wait="+wait.String(), nil)
	if err != nil {
		return d, "", errorf("bad_request", "%v", err)
	}
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := h.Do(req)
	if err != nil {
		return d, "", fmt.Errorf("fieldpost: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotModified {
		return d, tag, nil
	}
	if err := desiredProblem(resp); err != nil {
		return d, "", err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDesired)).Decode(&d); err != nil {
		return d, "", errorf(CodeProtocol, "the agent's answer cannot be read: %v", err)
	}
	return d, resp.Header.Get("ETag"), nil
}

// desiredProblem is nil for a good answer.
func desiredProblem(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	var p struct{ Code, Detail string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Code == "" {
		return errorf(CodeProtocol, "the agent answers %s; is it one?", resp.Status)
	}
	return errorf(p.Code, "%s", p.Detail)
}
