package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "status",
		Short:   "show streams, routes and devices in numbers",
		Example: `  fieldpost-hub status --json | jq .streams`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				s, err := within(ctx, patience, a.Status)
				if err != nil {
					return err
				}
				return cli.Print(c, s, func(w io.Writer) { writeStatus(w, s, time.Now()) })
			})
		},
	}
	addressFlag(c)
	return c
}

func writeStatus(w io.Writer, s admin.Status, now time.Time) {
	fmt.Fprintf(w, "hub      %s  (version %s, instance %s, running for %s)\n", s.HubID, s.Version, s.Instance, cli.Span(now.Sub(s.Started)))
	if s.Ready {
		fmt.Fprintln(w, "state    ready")
	} else {
		fmt.Fprintf(w, "state    NOT READY: %s\n", strings.Join(s.Reasons, "; "))
	}
	fmt.Fprintf(w, "nats     %s\n", s.NATS)
	fmt.Fprintf(w, "devices  %d online of %d\n", s.Devices.Online, s.Devices.Total)
	for _, r := range s.Routes {
		if r.Packed {
			fmt.Fprintf(w, "route    %s stays packed in BLOCKS\n", r.Match)
			continue
		}
		fmt.Fprintf(w, "route    %s to %s as %s.<device>.<subject>, %s blocks behind\n", r.Match, r.Stream, r.Prefix, cli.Count(r.Lag))
	}
	for _, h := range s.Webhooks {
		state := "gets on"
		if h.Error != "" {
			state = "WAITS: " + cli.Visible(h.Error)
		}
		fmt.Fprintf(w, "webhook  %s: %s to %s %s\n", h.Name, h.Stream, cli.Visible(h.URL), state)
	}
	for _, note := range s.Notes {
		fmt.Fprintf(w, "note     %s\n", cli.Visible(note))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nSTREAM\tMESSAGES\tBYTES\tOF")
	for _, st := range s.Streams {
		limit := "no limit"
		if st.MaxBytes > 0 {
			limit = cli.Bytes(st.MaxBytes)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", st.Name, cli.Count(st.Messages), cli.Bytes(int64(st.Bytes)), limit)
	}
	t.Flush()
}
