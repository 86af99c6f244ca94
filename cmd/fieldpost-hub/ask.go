package main

import (
	"context"
	"errors"
	"net"
	"os"

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
		return cli.Exit(cli.Temporary, err)
	}
	return err
}

// isDown reports whether nobody answered.
func isDown(err error) bool {
	var n net.Error
	return errors.As(err, &n)
}
