package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func spoolPurgeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "purge",
		Short: "give up messages that wait: they are never delivered",
		Long: `purge removes what is chosen of everything that waits now; without --lane, --filter or
--older-than, all of it. The hub is told which sequences will not come, and counts them as
purged. It asks first; where nobody can answer it needs --yes.`,
		Example: `  fieldpost-agent spool purge --lane bulk --older-than 48h
  fieldpost-agent spool purge --filter 'debug.>' --yes`,
		Args: cobra.NoArgs,
		RunE: purge,
	}
	laneFlag(c)
	c.Flags().String("filter", "", "only subjects that this `filter` takes, such as logs.>")
	c.Flags().Duration("older-than", 0, "only what was accepted longer ago than this `time`, such as 48h")
	c.Flags().Bool("yes", false, "do not ask")
	socketFlag(c)
	return c
}

func purge(c *cobra.Command, _ []string) error {
	q, err := laneQuery(c)
	if err != nil {
		return err
	}
	filter, err1 := c.Flags().GetString("filter")
	older, err2 := c.Flags().GetDuration("older-than")
	yes, err3 := c.Flags().GetBool("yes")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	body, what := map[string]any{}, "everything that waits"
	if lane := q.Get("lane"); lane != "" {
		body["lane"] = lane
		what = "what waits in lane " + lane
	}
	if filter != "" {
		if err := cli.CheckFilter(filter); err != nil {
			return err
		}
		body["filter"] = filter
		what += ", of subjects " + filter
	}
	switch {
	case older < 0 || older == 0 && c.Flags().Changed("older-than"):
		return cli.Usagef("--older-than: %v is not a time above 0", older)
	case older > 0:
		body["older_than"] = older.String()
		what += ", older than " + cli.Span(older)
	}
	if len(body) == 0 {
		body["all"] = true
	}
	if !yes && !cli.Terminal(c.InOrStdin()) {
		return cli.Usagef("this would purge %s, and nobody is here to be asked; --yes does it", what)
	}
	return withSpool(c, true, func(ctx context.Context, a *api) error {
		if !yes && !a.agrees(ctx, c, q, what) {
			return errors.New("nothing was purged")
		}
		var out struct {
			Purged uint64 `json:"purged"`
		}
		if err := a.call(ctx, "POST", "/v1/spool/purge", body, &out); err != nil {
			return err
		}
		return cli.Print(c, out, func(w io.Writer) { fmt.Fprintf(w, "%s messages purged\n", cli.Count(out.Purged)) })
	})
}

// agrees asks a person.
func (a *api) agrees(ctx context.Context, c *cobra.Command, q url.Values, what string) bool {
	var waiting uint64
	err := a.lines(ctx, "/v1/spool/segments", q, func(line json.RawMessage) error {
		var s segment
		err := json.Unmarshal(line, &s)
		waiting += s.Waiting
		return err
	})
	if err == nil {
		what += fmt.Sprintf(" (of %s messages)", cli.Count(waiting))
	}
	fmt.Fprintf(c.ErrOrStderr(), "purge %s? It is never delivered. Type yes: ", what)
	answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n') // no answer is no
	return strings.EqualFold(strings.TrimSpace(answer), "yes")
}

// damage is a line of GET /v1/spool/quarantine.
type damage struct {
	Report   string            `json:"report"`
	Segment  string            `json:"segment"`
	Time     time.Time         `json:"time"`
	Cause    string            `json:"cause"`
	Salvaged uint64            `json:"salvaged_messages"`
	Lost     map[string]string `json:"lost"`
	Messages uint64            `json:"lost_messages"`
	Kept     string            `json:"kept"`
}

func spoolQuarantineCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "quarantine",
		Short: "what damage has cost: reports of segments that were put aside",
	}
	list := &cobra.Command{
		Use:   "list",
		Short: "list the reports",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withSpool(c, false, func(ctx context.Context, a *api) error { return listReports(ctx, c, a) })
		},
	}
	show := &cobra.Command{
		Use:   "show REPORT",
		Short: "show one report",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withSpool(c, false, func(ctx context.Context, a *api) error {
				var raw json.RawMessage
				if err := a.call(ctx, "GET", "/v1/spool/quarantine?report="+url.QueryEscape(args[0]), nil, &raw); err != nil {
					return err
				}
				var d damage
				if err := json.Unmarshal(raw, &d); err != nil {
					return fmt.Errorf("the report cannot be read: %w", err)
				}
				return cli.Print(c, raw, d.write)
			})
		},
	}
	rm := &cobra.Command{
		Use:   "rm REPORT",
		Short: "delete a report and the damaged files that were kept with it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withSpool(c, true, func(ctx context.Context, a *api) error {
				var out map[string]string
				if err := a.call(ctx, "POST", "/v1/spool/quarantine/remove?report="+url.QueryEscape(args[0]), nil, &out); err != nil {
					return err
				}
				return cli.Print(c, out, func(w io.Writer) { fmt.Fprintf(w, "%s removed\n", out["removed"]) })
			})
		},
	}
	for _, sub := range []*cobra.Command{list, show, rm} {
		socketFlag(sub)
		c.AddCommand(sub)
	}
	return c
}

func listReports(ctx context.Context, c *cobra.Command, a *api) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	now, n := time.Now(), 0
	err := a.lines(ctx, "/v1/spool/quarantine", nil, func(line json.RawMessage) error {
		if cli.JSON(c) {
			return cli.Print(c, line, nil)
		}
		var d damage
		if err := json.Unmarshal(line, &d); err != nil {
			return fmt.Errorf("a report cannot be read: %w", err)
		}
		if n++; n == 1 {
			fmt.Fprintln(t, "REPORT\tWHEN\tLOST\tSALVAGED\tCAUSE")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", d.Report, cli.Ago(now, d.Time), cli.Count(d.Messages), cli.Count(d.Salvaged), cli.Visible(d.Cause))
		return nil
	})
	t.Flush()
	if err == nil && n == 0 && !cli.JSON(c) {
		fmt.Fprintln(c.OutOrStdout(), "nothing was ever put aside, or its reports were removed")
	}
	return err
}

func (d *damage) write(w io.Writer) {
	fmt.Fprintf(w, "segment   %s, put aside %s\n", d.Segment, d.Time.Format(time.RFC3339))
	fmt.Fprintf(w, "cause     %s\n", cli.Visible(d.Cause))
	fmt.Fprintf(w, "salvaged  %s messages, delivered as any other\n", cli.Count(d.Salvaged))
	fmt.Fprintf(w, "lost      %s messages; the hub is told which\n", cli.Count(d.Messages))
	for _, flow := range slices.Sorted(maps.Keys(d.Lost)) {
		fmt.Fprintf(w, "          %s %s\n", flow, d.Lost[flow])
	}
	if d.Kept != "" {
		fmt.Fprintf(w, "files     %s\n", d.Kept)
	}
}
