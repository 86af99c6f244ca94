package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				err := a.Tail(ctx, q, func(m admin.Message) error {
					return cli.Print(c, m, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", m.Subject, payload(m.Payload)) })
				})
				if errors.Is(err, io.EOF) {
					return cli.Exit(cli.Temporary, errors.New("the hub ended the tail; it is probably stopping"))
				}
				return err
			})
		},
	}
	c.Flags().StringVar(&q.From, "from", "", "where to begin: new, first, a sequence, or a `time` (RFC 3339)")
	c.Flags().StringVar(&q.Stream, "stream", "", "the stream (default: the first route's)")
	addressFlag(c)
	return c
}

func payload(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	return fmt.Sprintf("(%d bytes) %.64x", len(b), b)
}
