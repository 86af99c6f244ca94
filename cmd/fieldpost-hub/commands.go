package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func commandsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "commands",
		Short: "commands to devices: what became of them",
		Long: `A command is pending until its device has it, delivered until a program there has done it, and
then acked, failed, expired or cancelled for good.`,
	}
	c.AddCommand(commandsListCommand(),
		oneCommand("show ID", "show one command, with its payload until it is settled, and its result", (*admin.Client).Command),
		oneCommand("cancel ID", "cancel a command; the device is asked to give up what it has already", (*admin.Client).CancelCommand))
	return c
}

func commandsListCommand() *cobra.Command {
	var q admin.CommandQuery
	c := &cobra.Command{
		Use:   "list [DEVICE]",
		Short: "list commands, in the order of their last change; with --group also how many are in which state",
		Example: `  fieldpost-hub commands list press-7
  fieldpost-hub commands list --state failed --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				q.Device = args[0]
				if err := wire.CheckDevice(q.Device); err != nil {
					return cli.Usagef("%w", err)
				}
			}
			if s := wire.CommandState(q.State); s != "" && s != wire.CommandPending && s != wire.CommandDelivered && !s.Settled() {
				return cli.Usagef("--state: %q is not one of pending, delivered, acked, failed, expired, cancelled", q.State)
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error { return listCommands(ctx, c, a, q) })
		},
	}
	c.Flags().StringVar(&q.State, "state", "", "only those in this state")
	c.Flags().StringVar(&q.Group, "group", "", "only those of the group with this `id`")
	addressFlag(c)
	return c
}

// listCommands prints every page; with --json a command a line.
func listCommands(ctx context.Context, c *cobra.Command, a *admin.Client, q admin.CommandQuery) error {
	if q.Group != "" && !cli.JSON(c) {
		g, err := within(ctx, changePatience, func(ctx context.Context) (admin.CommandGroup, error) { return a.CommandGroup(ctx, q.Group) })
		if err != nil {
			return err
		}
		writeGroup(c.OutOrStdout(), g)
	}
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !cli.JSON(c) {
		fmt.Fprintln(t, "ID\tDEVICE\tSTATE\tAGE\tTRIES\tSUBJECT\tREASON")
	}
	now := time.Now()
	for {
		page, err := within(ctx, patience, func(ctx context.Context) (admin.Commands, error) { return a.Commands(ctx, q) })
		if err != nil {
			return err
		}
		for _, m := range page.Commands {
			if !cli.JSON(c) {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", m.ID, m.Device, stateOf(m), cli.Span(now.Sub(m.Sent)), m.Deliveries, cli.Visible(m.Subject), brief(m.Reason))
			} else if err := cli.Print(c, m, nil); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if page.Next == "" {
			return nil
		}
		q.After = page.Next
	}
}

func stateOf(m admin.Command) string {
	if m.Cancelling {
		return string(m.State) + ", cancelling"
	}
	return string(m.State)
}

// oneCommand is a verb about one command that prints it.
func oneCommand(use, text string, call func(*admin.Client, context.Context, string) (admin.Command, error)) *cobra.Command {
	c := &cobra.Command{
		Use:   use,
		Short: text,
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				m, err := within(ctx, patience, func(ctx context.Context) (admin.Command, error) { return call(a, ctx, args[0]) })
				if err != nil {
					return err
				}
				return cli.Print(c, m, func(w io.Writer) { writeCommand(w, m, time.Now()) })
			})
		},
	}
	addressFlag(c)
	return c
}

func writeCommand(w io.Writer, m admin.Command, now time.Time) {
	fmt.Fprintf(w, "command    %s to %s, %s\n", m.ID, m.Device, cli.Visible(m.Subject))
	if m.Group != "" {
		fmt.Fprintf(w, "group      %s\n", m.Group)
	}
	fmt.Fprintf(w, "state      %s\n", stateOf(m))
	fmt.Fprintf(w, "sent       %s\n", cli.Ago(now, m.Sent))
	if !m.State.Settled() {
		fmt.Fprintf(w, "expires    in %s\n", cli.Span(m.Expires.Sub(now)))
	}
	if !m.Delivered.IsZero() {
		fmt.Fprintf(w, "delivered  %s\n", cli.Ago(now, m.Delivered))
	}
	if !m.Settled.IsZero() {
		fmt.Fprintf(w, "settled    %s, handed to programs %d times\n", cli.Ago(now, m.Settled), m.Deliveries)
	}
	if m.Reason != "" {
		fmt.Fprintf(w, "reason     %s\n", cli.Visible(m.Reason))
	}
	if len(m.Payload) > 0 {
		fmt.Fprintf(w, "payload    %s\n", payload(m.Payload))
	}
	if len(m.Result) > 0 {
		fmt.Fprintf(w, "result\n%s\n", result(m.Result))
	}
}
