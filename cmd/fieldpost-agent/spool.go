package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/cmd/internal/conf"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func spoolCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "spool",
		Short: "look into the backlog, carry it, purge it",
		Long: `What the hub has not acknowledged waits in the spool. These verbs ask the agent that runs;
if none runs they read the spool's folder (data_dir of -c, or the default one) themselves.
Only purge and quarantine rm change anything.`,
	}
	c.AddCommand(spoolListCommand(), spoolPeekCommand(), spoolVerifyCommand(), spoolExportCommand(), spoolPurgeCommand(), spoolQuarantineCommand())
	return c
}

func laneFlag(c *cobra.Command) {
	c.Flags().String("lane", "", "only this `lane`: urgent, normal or bulk")
}

// laneQuery is what --lane asks for, as query parameters.
func laneQuery(c *cobra.Command) (url.Values, error) {
	q := url.Values{}
	lane, err := c.Flags().GetString("lane")
	if err != nil || lane == "" {
		return q, err
	}
	if _, err := wire.ParseLane(lane); err != nil {
		return q, cli.Usagef("--lane: %w", err)
	}
	q.Set("lane", lane)
	return q, nil
}

// withSpool calls fn with the agent that runs, or with the folder if none does.
func withSpool(c *cobra.Command, write bool, fn func(ctx context.Context, a *api) error) (err error) {
	ctx, stop := cli.Signals(c.ErrOrStderr())
	defer stop()
	a, err := newAPI(c)
	if err != nil {
		var closeFolder func() error
		if a, closeFolder, err = folderInstead(c, write, err); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeFolder()) }()
	}
	return fn(ctx, a)
}

// folderInstead opens the folder of the configuration, unless an agent was asked
// for by its socket. noAgent is why there is none.
func folderInstead(c *cobra.Command, write bool, noAgent error) (*api, func() error, error) {
	var exit *cli.ExitError
	named, err := c.Flags().GetString("socket")
	source := cli.Source(c)
	switch {
	case err != nil:
		return nil, nil, err
	case !errors.As(noAgent, &exit) || exit.Code != cli.Temporary:
		return nil, nil, noAgent
	case named != "" || source.File == "" && os.Getenv("FIELDPOST_SOCKET") != "":
		return nil, nil, cli.Exit(cli.Temporary, fmt.Errorf("%w; without either, the folder of the configuration is read", noAgent))
	}
	file, cfg, origins, err := loadKeyed(source)
	if err != nil {
		return nil, nil, cli.Exit(cli.BadConfig, err)
	}
	cfg.Log = cli.Logger(c.ErrOrStderr(), file.Log)
	if write {
		if err := ownFolder(cfg.SpoolDir()); err != nil {
			return nil, nil, err
		}
	}
	f, err := agent.OpenFolder(cfg, write)
	switch {
	case errors.Is(err, agent.ErrFolderInUse):
		return nil, nil, cli.Exit(cli.Temporary, fmt.Errorf("%s is open in a process that does not answer (%w); wait until it does, or stop it", cfg.SpoolDir(), noAgent))
	case errors.Is(err, agent.ErrConfig):
		return nil, nil, cli.Exit(cli.BadConfig, conf.Place(err, origins))
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("there is no spool at %s; name the configuration of the agent with -c. Neither can it be asked: %v", cfg.SpoolDir(), noAgent)
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, fmt.Errorf("%w; run as the owner of the folder", err)
	case err != nil:
		return nil, nil, err
	}
	fmt.Fprintf(c.ErrOrStderr(), "no agent runs: reading %s\n", f.Dir())
	a, stop := inProcess(f, f.Dir())
	return a, func() error { stop(); return f.Close() }, nil
}

// inProcess asks a handler of this process as if it were an agent.
func inProcess(h http.Handler, name string) (a *api, stop func()) {
	ln := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { srv.Serve(ln); close(served) }() // ends with stop
	a = &api{socket: name}
	a.http.Transport = &http.Transport{DialContext: ln.dial}
	return a, func() {
		a.http.CloseIdleConnections()
		srv.Close()
		<-served
	}
}

// pipes is a listener inside the process.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// lines calls fn with each line of an answer. A problem that ends it is an error.
func (a *api) lines(ctx context.Context, path string, q url.Values, fn func(line json.RawMessage) error) error {
	body, err := a.open(ctx, "GET", path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var line json.RawMessage
		err := dec.Decode(&line)
		switch {
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return cli.Exit(cli.Temporary, fmt.Errorf("the answer of %s ended early: %w", a.socket, err))
		}
		var end struct {
			Code    string          `json:"code"`
			Problem json.RawMessage `json:"problem"`
		}
		if err := json.Unmarshal(line, &end); err == nil && end.Code != "" {
			var p problem
			if err := json.Unmarshal(end.Problem, &p); err != nil {
				return fmt.Errorf("a line of %s cannot be read: %w", a.socket, err)
			}
			return refusal(p.Code, p.Title, p.Detail)
		}
		if err := fn(line); err != nil {
			return err
		}
	}
}
