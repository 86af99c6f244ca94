package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswer bounds an answer that is read whole: a page of devices is the largest.
const maxAnswer = 64 << 20

// Client calls one hub. It is safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// New returns a client of the hub at addr: host:port, or a URL.
func New(addr string) (*Client, error) {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("hub address %q is not like 127.0.0.1:8420 or https://hub.example:8420", addr)
	}
	transport := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		ResponseHeaderTimeout: 15 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
	}
	return &Client{base: strings.TrimRight(u.String(), "/"), http: &http.Client{Transport: transport}}, nil
}

// Close releases idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the hub's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	return out, c.get(ctx, "/v1/status", nil, &out)
}

// DeviceQuery chooses a page of devices. The zero value is the first page of all.
type DeviceQuery struct {
	Limit  int    // 0: the hub's default
	After  string // exclusive
	Filter string // part of the name; state=online, state=offline, state=cloned; or label=value
}

// Devices asks for one page of the registry.
func (c *Client) Devices(ctx context.Context, q DeviceQuery) (Devices, error) {
	v := url.Values{}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After != "" {
		v.Set("after", q.After)
	}
	if q.Filter != "" {
		v.Set("filter", q.Filter)
	}
	var out Devices
	return out, c.get(ctx, "/v1/devices", v, &out)
}

// Device asks for one device; the error is a *Problem with code not_found if
// the hub never heard of it.
func (c *Client) Device(ctx context.Context, device string) (Device, error) {
	var out Device
	return out, c.get(ctx, "/v1/devices/"+url.PathEscape(device), nil, &out)
}

// Forget removes a device that is offline from the registry.
func (c *Client) Forget(ctx context.Context, device string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.base+"/v1/devices/"+url.PathEscape(device), nil)
	if err != nil {
		return err
	}
	body, err := c.do(c.http, req)
	if err != nil {
		return err
	}
	return body.Close()
}

func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	body, err := c.open(ctx, path, query)
	if err != nil {
		return err
	}
	return c.read(path, body, out)
}

func (c *Client) read(path string, body io.ReadCloser, out any) error {
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%s%s: the answer is not what a Fieldpost hub sends: %w", c.base, path, err)
	}
	return nil
}

// open asks for a page.
func (c *Client) open(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	u := c.base + path
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, err
	}
	return c.do(c.http, req)
}

// do returns the body of a success, else the problem.
func (c *Client) do(with *http.Client, req *http.Request) (io.ReadCloser, error) {
	ctx := req.Context()
	resp, err := with.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) && ctx.Err() == nil {
			err = ue.Err
		}
		return nil, fmt.Errorf("hub at %s does not answer: %w", c.base, err)
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return resp.Body, nil
	}
	defer resp.Body.Close()
	p := &Problem{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(p); err != nil || p.Title == "" {
		p = &Problem{Title: resp.Status, Detail: "the answer is not from a Fieldpost hub; check the address", Code: "unknown"}
	}
	p.Status = resp.StatusCode
	return nil, p
}
