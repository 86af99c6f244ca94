package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Send sends a command to one device and returns it when it is durable. With
// wait it returns the command when it is settled, or as it is after that long.
// The same ID again is the same command.
func (c *Client) Send(ctx context.Context, device string, n NewCommand, wait time.Duration) (Command, error) {
	path := "/v1/devices/" + url.PathEscape(device) + "/commands"
	if wait > 0 {
		path += "?wait=" + url.QueryEscape(wait.String())
	}
	var out Command
	return out, c.post(ctx, path, n, &out)
}

// SendGroup sends a command to every device that has n.Labels.
func (c *Client) SendGroup(ctx context.Context, n NewCommand) (CommandGroup, error) {
	var out CommandGroup
	return out, c.post(ctx, "/v1/commands", n, &out)
}

// CommandQuery chooses a page of commands. The zero value is the first page of all.
type CommandQuery struct {
	Device, State, Group string
	After                string // what Next of a page was
	Limit                int    // 0: the hub's default
}

// Commands asks for one page of commands.
func (c *Client) Commands(ctx context.Context, q CommandQuery) (Commands, error) {
	v := url.Values{}
	for key, value := range map[string]string{"device": q.Device, "state": q.State, "group": q.Group, "after": q.After} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var out Commands
	return out, c.get(ctx, "/v1/commands", v, &out)
}

// Command asks for one command, with its payload as long as it is not settled.
func (c *Client) Command(ctx context.Context, id string) (Command, error) {
	var out Command
	return out, c.get(ctx, "/v1/commands/"+url.PathEscape(id), nil, &out)
}

// CancelCommand cancels a command that its device does not have, and asks the
// device to give it up else: then the answer is cancelling.
func (c *Client) CancelCommand(ctx context.Context, id string) (Command, error) {
	path := "/v1/commands/" + url.PathEscape(id)
	var out Command
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.base+path, nil)
	if err != nil {
		return out, err
	}
	body, err := c.do(c.http, req)
	if err != nil {
		return out, err
	}
	return out, c.read(path, body, &out)
}

// CommandGroup asks what became of a command to many.
func (c *Client) CommandGroup(ctx context.Context, id string) (CommandGroup, error) {
	var out CommandGroup
	return out, c.get(ctx, "/v1/commands/groups/"+url.PathEscape(id), nil, &out)
}

// post sends JSON; the answer may take a while.
func (c *Client) post(ctx context.Context, path string, v, out any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	patient := c.http.Transport.(*http.Transport).Clone()
	patient.ResponseHeaderTimeout = 0
	defer patient.CloseIdleConnections()
	body, err := c.do(&http.Client{Transport: patient}, req)
	if err != nil {
		return err
	}
	return c.read(path, body, out)
}
