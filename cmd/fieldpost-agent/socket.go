package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// socketFlag adds --socket.
func socketFlag(c *cobra.Command) {
	c.Flags().String("socket", "", "the agent's `socket` (default $FIELDPOST_SOCKET, else that of -c, else the first agent found)")
}

// findSocket returns the socket that was named, or the first one on which an
// agent answers.
func findSocket(c *cobra.Command) (string, error) {
	candidates, err := sockets(c)
	if err != nil {
		return "", err
	}
	var failed error // of a place where something is
	for _, s := range candidates {
		conn, err := net.DialTimeout("unix", s, 5*time.Second)
		switch {
		case err == nil:
			return s, conn.Close()
		case errors.Is(err, fs.ErrPermission):
			return "", noAgent(s, err) // an agent of this machine, but not for us: do not take another one silently
		case !errors.Is(err, fs.ErrNotExist):
			failed = noAgent(s, err)
		}
	}
	if failed == nil {
		failed = noAgent(strings.Join(candidates, " or "), fs.ErrNotExist)
	}
	return "", failed
}

// sockets are the places to look at: what --socket or a variable names, the
// socket of a configuration that was named, else where agents usually listen.
func sockets(c *cobra.Command) ([]string, error) {
	if s, err := c.Flags().GetString("socket"); err == nil && s != "" {
		return []string{s}, nil
	}
	source := cli.Source(c)
	if source.File != "" && os.Getenv("FIELDPOST_SOCKET") == "" {
		file, origins, err := conf.LoadAgent(source)
		if err != nil {
			return nil, cli.Exit(cli.BadConfig, err)
		}
		if at := origins["socket.path"]; at != "default" && at != "user" {
			return []string{file.Socket.Path}, nil
		}
	}
	return conf.Sockets(source.Environ), nil
}

// noAgent says why nobody answers and what to do.
func noAgent(where string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: permission denied; join the group of the socket (ls -l shows it), run as its owner, "+
			"or name another with --socket or FIELDPOST_SOCKET", where)
	}
	reason := fmt.Sprintf("no agent answers at %s (%v)", where, innermost(err))
	if errors.Is(err, fs.ErrNotExist) {
		reason = "no agent runs at " + where
	}
	return cli.Exit(cli.Temporary, errors.New(reason+"; start one with `fieldpost-agent run`, or name its socket with --socket or FIELDPOST_SOCKET"))
}

func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// api asks one agent over HTTP.
type api struct {
	socket string
	http   http.Client
}

func newAPI(c *cobra.Command) (*api, error) {
	socket, err := findSocket(c)
	if err != nil {
		return nil, err
	}
	a := &api{socket: socket}
	a.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	return a, nil
}

// problem is an error as the agent words it.
type problem struct {
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

// temporary are the codes that a retry may cure.
var temporary = map[string]bool{
	"timeout": true, "quota": true, "starting": true, "stopping": true,
	"disk_fault": true, "spool_full": true, "disk_full": true,
}

// refusal is the error for a problem with this code.
func refusal(code, title, detail string) error {
	err := fmt.Errorf("%s: %s (%s)", title, detail, code)
	if title == "" {
		err = fmt.Errorf("%s (%s)", detail, code)
	}
	if temporary[code] {
		return cli.Exit(cli.Temporary, err)
	}
	return err
}

// open sends a request and returns the body of a good answer.
func (a *api) open(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	resp, err := a.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// request sends a request and returns a good answer.
func (a *api) request(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, send)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	resp, err := a.http.Do(req)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, noAgent(a.socket, err)
	case resp.StatusCode < 300:
		return resp, nil
	}
	defer resp.Body.Close()
	var p problem
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p); err != nil || p.Code == "" {
		return nil, fmt.Errorf("the agent at %s answers %s; is it one?", a.socket, resp.Status)
	}
	return nil, refusal(p.Code, p.Title, p.Detail)
}

// call sends a request and reads the answer into out, unless that is nil.
func (a *api) call(ctx context.Context, method, path string, body, out any) error {
	answer, err := a.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("the answer of the agent at %s cannot be read: %w", a.socket, err)
	}
	return nil
}
