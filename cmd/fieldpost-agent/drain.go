package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func drainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drain",
		Short: "wait until the hub has everything",
		Example: `  fieldpost-agent drain                # before a device is taken away
  fieldpost-agent drain --timeout 10m  # exit code 75 if it takes longer
  fieldpost-agent drain --json         # a line of JSON every second`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			timeout, err := c.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			return a.drain(ctx, c)
		},
	}
	c.Flags().Duration("timeout", 0, "give up after this `time` (default: never)")
	socketFlag(c)
	return c
}

// drain polls until nothing waits, messages that come meanwhile included. ctx
// ending is an error: something is left.
func (a *api) drain(ctx context.Context, c *cobra.Command) error {
	began := time.Now()
	p := newProgress(c)
	defer p.end()
	for {
		s, _, err := a.status(ctx)
		left, _ := s.waiting()
		switch {
		case ctx.Err() != nil:
			return unfinished(ctx, p.left)
		case err != nil:
			return err
		case left == 0:
			p.end()
			took := time.Since(began)
			result := map[string]any{"drained": true, "seconds": took.Seconds()}
			return cli.Print(c, result, func(w io.Writer) { fmt.Fprintf(w, "drained: the hub has everything (%s)\n", cli.Span(took)) })
		}
		if err := p.show(time.Now(), &s); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return unfinished(ctx, left)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// unfinished is temporary: what is left is delivered later.
func unfinished(ctx context.Context, left uint64) error {
	why := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = "not drained in time"
	}
	return cli.Exit(cli.Temporary, fmt.Errorf("%s; %s messages are still on this device, safe in the spool: see fieldpost-agent status", why, cli.Count(left)))
}
