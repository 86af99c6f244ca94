package main

import (
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func auditCommand() *cobra.Command {
	since, last, action := "", 0, ""
	c := &cobra.Command{
		Use:   "audit",
		Short: "who sent or cancelled commands, purged, retried, forgot, back-filled or imported",
		Long: `audit lists the changes that somebody has made, the oldest first: each once when it was
begun, and once when it ended; with --last only the newest. The stream AUDIT lets its oldest entries go when it is full.`,
		Example: `  fieldpost-hub audit --since 24h
  fieldpost-hub audit --last 20 --action dead_purge
  fieldpost-hub audit --since 2026-01-02T15:04:05Z --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			from, err := sinceTime(since, time.Now())
			if err != nil {
				return err
			}
			if last < 0 || last > 0 && since != "" {
				return cli.Usagef("--last is a number of entries, and not for --since")
			}
			q := admin.AuditQuery{Since: from, Action: action}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				if last > 0 {
					return lastAudit(ctx, c, a, q, last)
				}
				return listAudit(ctx, c, a, q)
			})
		},
	}
	c.Flags().StringVar(&since, "since", "", "only what is younger than a duration such as 24h, or stored at a `time` (RFC 3339) or later")
	c.Flags().IntVarP(&last, "last", "n", 0, "only the newest `entries`; 0: all")
	c.Flags().StringVar(&action, "action", "", "only this `action`, as the list writes it: command_send, command_cancel, dead_purge, device_forget …")
	addressFlag(c)
	return c
}

func sinceTime(s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, cli.Usagef("--since %q is neither a duration such as 24h nor an RFC 3339 time such as 2026-01-02T15:04:05Z", s)
	}
	return t, nil
}

// listAudit prints every page; with --json an entry a line.
func listAudit(ctx context.Context, c *cobra.Command, a *admin.Client, q admin.AuditQuery) error {
	for heading := true; ; heading = false {
		page, err := within(ctx, patience, func(ctx context.Context) (admin.Audit, error) { return a.Audit(ctx, q) })
		if err != nil {
			return err
		}
		if err := printAudit(c, page.Entries, heading); err != nil {
			return err
		}
		if page.Next == 0 {
			return nil
		}
		q.After = page.Next
	}
}

// lastAudit prints the newest entries, the oldest of them first.
func lastAudit(ctx context.Context, c *cobra.Command, a *admin.Client, q admin.AuditQuery, last int) error {
	var entries []admin.AuditEntry
	for q.Newest = true; ; {
		q.Limit = min(last-len(entries), 1000)
		page, err := within(ctx, patience, func(ctx context.Context) (admin.Audit, error) { return a.Audit(ctx, q) })
		if err != nil {
			return err
		}
		entries = append(entries, page.Entries...)
		if page.Next == 0 || len(entries) >= last {
			break
		}
		q.Before = page.Next
	}
	slices.Reverse(entries)
	return printAudit(c, entries, true)
}

func printAudit(c *cobra.Command, entries []admin.AuditEntry, heading bool) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	if heading && !cli.JSON(c) {
		fmt.Fprintln(t, "SEQ\tTIME\tACTOR\tACTION\tOBJECT\tOUTCOME")
	}
	for _, e := range entries {
		if cli.JSON(c) {
			if err := cli.Print(c, e, nil); err != nil {
				return err
			}
			continue
		}
		what := e.Outcome
		if e.Of > 0 {
			what += fmt.Sprintf(" (begun: %d)", e.Of)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Seq, e.Time.Format(time.RFC3339), cli.Visible(e.Actor), cli.Visible(e.Action), cli.Visible(e.Object), cli.Visible(what))
	}
	return t.Flush()
}
