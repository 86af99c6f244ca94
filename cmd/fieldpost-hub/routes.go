package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func routesCommand() *cobra.Command {
	c := &cobra.Command{Use: "routes", Short: "which messages go to which stream"}
	list := &cobra.Command{
		Use:   "list",
		Short: "list the routes, how far they are, and streams without one",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				r, err := within(ctx, patience, a.Routes)
				if err != nil {
					return err
				}
				return cli.Print(c, r, func(w io.Writer) { writeRoutes(w, r) })
			})
		},
	}
	addressFlag(list)
	var from string
	backfill := &cobra.Command{
		Use:   "backfill STREAM",
		Short: "unpack into a stream what was received before its route was there",
		Long: `backfill unpacks blocks that are older than the route into the route's stream: the messages that the
route takes and the stream does not have, each once. Streams that have them already keep them. It goes
on in the hub, over restarts, until it is complete; "routes list" shows how far it is.`,
		Example: `  fieldpost-hub routes backfill LOGS
  fieldpost-hub routes backfill LOGS --from 2026-01-02T15:04:05Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			since, err := parseSince(from)
			if err != nil {
				return err
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				b, err := within(ctx, patience, func(ctx context.Context) (admin.Backfilling, error) { return a.Backfill(ctx, args[0], since) })
				if err != nil {
					return err
				}
				return cli.Print(c, b, func(w io.Writer) {
					fmt.Fprintf(w, "blocks %d to %d are unpacked into %s what it does not have; `fieldpost-hub routes list` shows how far it is\n", b.First, b.Last, b.Stream)
					if b.Note != "" {
						fmt.Fprintln(w, "note:", b.Note)
					}
				})
			})
		},
	}
	backfill.Flags().StringVar(&from, "from", "", "where to begin: a block of the ledger, or a `time` (RFC 3339); default: the oldest block that is there")
	addressFlag(backfill)
	c.AddCommand(list, backfill)
	return c
}

func parseSince(from string) (admin.Since, error) {
	if from == "" {
		return admin.Since{}, nil
	}
	if n, err := strconv.ParseUint(from, 10, 64); err == nil && n > 0 {
		return admin.Since{Block: n}, nil
	}
	t, err := time.Parse(time.RFC3339, from)
	if err != nil || t.IsZero() {
		return admin.Since{}, cli.Usagef("--from %q is neither a block of the ledger nor an RFC 3339 time such as 2026-01-02T15:04:05Z", from)
	}
	return admin.Since{Time: t}, nil
}

func writeRoutes(w io.Writer, r admin.Routes) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MATCH\tSTREAM\tSUBJECTS\tMESSAGES\tBEHIND\tMAX AGE\tSTATE")
	for _, s := range r.Routes {
		age := cli.Span(time.Duration(s.MaxAge) * time.Second)
		if s.Packed {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t%s\tpacked in BLOCKS\n", s.Match, age)
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s.<device>.%s\t%s\t%s blocks\t%s\t%s\n", s.Match, s.Route.Stream, s.Prefix, s.Match, cli.Count(s.State.Messages), cli.Count(s.Lag), age, routeState(s))
	}
	for _, o := range r.Orphans {
		state := "orphaned: no route stores here; the stream stays"
		if o.Lag > 0 {
			state = fmt.Sprintf("orphaned, and still to get what was received for it from %s blocks", cli.Count(o.Lag))
		}
		fmt.Fprintf(t, "-\t%s\t-\t%s\t-\t-\t%s\n", o.Name, cli.Count(o.Messages), state)
	}
	t.Flush()
	if n := r.Unrouted; n.Messages > 0 {
		fmt.Fprintf(w, "\nmessages without a route: %s, the newest with subject %s\n", cli.Count(n.Messages), cli.Visible(n.Subject))
	}
}

func routeState(s admin.RouteState) string {
	switch b := s.Backfill; {
	case s.Error != "":
		return "HELD UP: " + s.Error
	case b != nil:
		return fmt.Sprintf("back-fill of blocks %d to %d, at %d", b.First, b.Last, b.Next)
	case len(s.Backfilled) > 0:
		return fmt.Sprintf("ok, back-filled from block %d on", s.Backfilled[len(s.Backfilled)-1].First)
	}
	return "ok"
}
