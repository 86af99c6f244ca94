package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func hubCommand() *cobra.Command {
	c := &cobra.Command{Use: "hub", Short: "what the agent remembers of its hub"}
	reset := &cobra.Command{
		Use:   "reset",
		Short: "forget which hub this agent belongs to, and accept the next one",
		Long: `An agent belongs to the first hub that it met; another one is refused with wrong_hub,
so that a mistake in hub.urls cannot give its messages to a stranger. After a hub was
replaced on purpose, hub reset lets the agent accept the new one. What the new hub
lacks is sent again as far as the agent still holds it.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			if err := a.call(ctx, "POST", "/v1/hub/reset", nil, nil); err != nil {
				return err
			}
			return cli.Print(c, map[string]bool{"reset": true}, func(w io.Writer) {
				fmt.Fprintln(w, "the agent accepts the next hub that answers at hub.urls")
			})
		},
	}
	socketFlag(reset)
	c.AddCommand(reset)
	return c
}
