package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func desiredCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "desired",
		Short: "show what the hub wants of this device, and what has become of it",
		Example: `  fieldpost-agent desired
  fieldpost-agent desired --watch --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			watch, err := c.Flags().GetBool("watch")
			if err != nil {
				return err
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			if watch {
				return watchDesired(ctx, c)
			}
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			var d client.Desired
			if err := a.call(ctx, "GET", "/v1/desired", nil, &d); err != nil {
				return err
			}
			return printDesired(c, d)
		},
	}
	c.Flags().Bool("watch", false, "show it again after every change, until interrupted")
	socketFlag(c)
	return c
}

func watchDesired(ctx context.Context, c *cobra.Command) error {
	socket, err := findSocket(c)
	if err != nil {
		return err
	}
	agent, err := client.Dial(ctx, socket)
	if err != nil {
		return noAgent(socket, err)
	}
	defer agent.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = agent.WatchDesired(ctx, func(d client.Desired) {
		if err := printDesired(c, d); err != nil {
			cancel(err) // nobody reads it any more
		}
	})
	if cause := context.Cause(ctx); err == nil && cause != ctx.Err() {
		return cause
	}
	return err
}

func printDesired(c *cobra.Command, d client.Desired) error {
	return cli.Print(c, d, func(w io.Writer) {
		if d.Version == "" {
			fmt.Fprintln(w, "the hub has said nothing of desired settings yet")
			return
		}
		fmt.Fprintf(w, "%s\n", desiredLine(d.Version, d.State, d.Reason))
		if d.InEffect != d.Version {
			fmt.Fprintf(w, "in effect is %s\n", cmp.Or(d.InEffect, "the configuration alone"))
		}
		if !d.Confirmed.IsZero() {
			fmt.Fprintf(w, "a program said at %s that it has applied it\n", d.Confirmed.Format("2006-01-02T15:04:05Z"))
		}
		var text bytes.Buffer
		if err := json.Indent(&text, d.Document, "", "  "); err == nil {
			fmt.Fprintf(w, "%s\n", &text)
		}
	})
}

// desiredLine is a version with what has become of it.
func desiredLine(version, state, reason string) string {
	if state == "trial" {
		state = "on trial until the hub is heard with it"
	}
	line := fmt.Sprintf("version %s is %s", cli.Visible(version), state)
	if reason != "" {
		line += ": " + cli.Visible(reason)
	}
	return line
}
