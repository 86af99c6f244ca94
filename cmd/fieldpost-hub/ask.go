package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

// addressFlag adds --http.
func addressFlag(c *cobra.Command) {
	c.Flags().String("http", "", "the hub's `address` (default $FIELDPOST_HTTP, else http.listen of the configuration)")
}

// ask calls fn with a client of the hub that was named, else of the one that the
// configuration describes.
func ask(c *cobra.Command, fn func(context.Context, *admin.Client) error) error {
	ctx, stop := cli.Signals(c.ErrOrStderr())
	defer stop()
	addr, err := c.Flags().GetString("http")
	if err != nil {
		return err
	}
	if addr == "" {
		addr = os.Getenv("FIELDPOST_HTTP")
	}
	if addr == "" {
		_, cfg, _, err := load(cli.Source(c))
		if err != nil {
			return cli.Exit(cli.BadConfig, err)
		}
		addr = cfg.HTTP.Listen
	}
	client, err := admin.New(addr)
	if err != nil {
		return cli.Usagef("--http: %w", err)
	}
	defer client.Close()
	err = fn(ctx, client)
	var p *admin.Problem
	switch {
	case err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return nil
	case errors.As(err, &p):
		if p.Status == 429 || p.Status >= 500 {
			return cli.Exit(cli.Temporary, err)
		}
		return err
	case isDown(err):
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("hub at %s: %w", addr, err)
		}
		return cli.Exit(cli.Temporary, fmt.Errorf("%w; start it with `fieldpost-hub run`, or name another with --http or FIELDPOST_HTTP", err))
	}
	return err
}

// patience is how long the hub may take for one answer.
const patience = 10 * time.Second

// within gives one call to the hub a time limit.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := call(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("no answer within %s: %w", limit, context.DeadlineExceeded)
	}
	return out, err
}

// isDown reports whether nobody answered.
func isDown(err error) bool {
	var n net.Error
	return errors.As(err, &n)
}
