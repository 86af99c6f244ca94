package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func tailCommand() *cobra.Command {
	var q admin.TailQuery
	c := &cobra.Command{
		Use:   "tail [FILTER]",
		Short: "show messages as they reach a stream",
		Example: `  fieldpost-hub tail 'edge.press-7.>'
  fieldpost-hub tail 'edge.*.sensors.>' --from first --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Filter = args[0]
				if err := cli.CheckFilter(q.Filter); err != nil {
					return err
				}
			}
			if err := checkFrom(q.From); err != nil {
				return err
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				err := a.Tail(ctx, q, func(m admin.Message) error {
					return cli.Print(c, m, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", cli.Visible(m.Subject), payload(m.Payload)) })
				})
				var p *admin.Problem
				switch {
				case errors.As(err, &p) && p.Status == 400: // a filter outside the stream, a stream without a route
					return cli.Usagef("%s", p.Detail)
				case errors.Is(err, io.EOF):
					return cli.Exit(cli.Temporary, errors.New("the hub ended the tail; it is probably stopping"))
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&q.From, "from", "", "where to begin: new, first, a sequence, or a `time` (RFC 3339)")
	c.Flags().StringVar(&q.Stream, "stream", "", "the `stream` (default: the one whose prefix the filter begins with, else that of the route that takes what others leave)")
	addressFlag(c)
	return c
}

func checkFrom(from string) error {
	if from == "" || from == "new" || from == "first" {
		return nil
	}
	if seq, err := strconv.ParseUint(from, 10, 64); err == nil && seq > 0 {
		return nil
	}
	if _, err := time.Parse(time.RFC3339, from); err == nil {
		return nil
	}
	return cli.Usagef("--from: %q is not new, first, a sequence (1 or more), or a time such as 2026-05-01T06:00:00Z", from)
}

func payload(b []byte) string {
	if utf8.Valid(b) {
		return cli.Visible(string(b))
	}
	return fmt.Sprintf("(%d bytes) %.64x", len(b), b)
}
