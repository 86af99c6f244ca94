package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func linkCommand() *cobra.Command {
	c := &cobra.Command{Use: "link", Short: "tell the agent which kind of link is up"}
	set := &cobra.Command{
		Use:     "set CLASS",
		Short:   "set the class of the link until the agent restarts: unmetered, metered, or that of a window in link.windows",
		Example: `  fieldpost-agent link set metered`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "" || strings.ContainsAny(args[0], " \t\n") {
				return cli.Usagef("class %q is no name; use unmetered, metered or the class of a window", args[0])
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			class := map[string]string{"class": args[0]}
			if err := a.call(ctx, "PUT", "/v1/link", class, nil); err != nil {
				return err
			}
			return cli.Print(c, class, func(w io.Writer) { fmt.Fprintf(w, "link is %s until the agent restarts\n", args[0]) })
		},
	}
	socketFlag(set)
	c.AddCommand(set)
	return c
}
