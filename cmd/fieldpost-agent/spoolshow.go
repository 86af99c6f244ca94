package main

import (
	"cmp"
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

// segment is a line of GET /v1/spool/segments.
type segment struct {
	Segment  string    `json:"segment"`
	State    string    `json:"state"`
	Lane     string    `json:"lane"`
	Epoch    string    `json:"epoch"`
	Ranges   string    `json:"ranges"`
	Messages uint64    `json:"messages"`
	Waiting  uint64    `json:"waiting"`
	Bytes    int64     `json:"bytes"`
	Oldest   time.Time `json:"oldest"`
	Problem  string    `json:"problem"`
}

func spoolListCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "list what is held, segment by segment, in sending order",
		Example: `  fieldpost-agent spool list
  fieldpost-agent spool list --lane bulk --json | jq .messages`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q, err := laneQuery(c)
			if err != nil {
				return err
			}
			return withSpool(c, false, func(ctx context.Context, a *api) error {
				return listSegments(ctx, c, a, q)
			})
		},
	}
	laneFlag(c)
	socketFlag(c)
	return c
}

func listSegments(ctx context.Context, c *cobra.Command, a *api, q url.Values) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !cli.JSON(c) {
		fmt.Fprintln(t, "SEGMENT\tSTATE\tLANE\tEPOCH\tSEQUENCES\tMESSAGES\tWAITING\tBYTES\tOLDEST")
	}
	now := time.Now()
	var trouble []string
	err := a.lines(ctx, "/v1/spool/segments", q, func(line json.RawMessage) error {
		if cli.JSON(c) {
			return cli.Print(c, line, nil)
		}
		var s segment
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("a segment cannot be read: %w", err)
		}
		age := "-"
		if !s.Oldest.IsZero() {
			age = cli.Ago(now, s.Oldest)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Segment, s.State, cmp.Or(s.Lane, "-"), cmp.Or(s.Epoch, "-"),
			brief(s.Ranges), cli.Count(s.Messages), cli.Count(s.Waiting), cli.Bytes(s.Bytes), age)
		if s.Problem != "" {
			trouble = append(trouble, s.Segment+": "+cli.Visible(s.Problem))
		}
		return nil
	})
	t.Flush()
	for _, s := range trouble {
		fmt.Fprintln(c.OutOrStdout(), s)
	}
	return err
}

// brief is a set of ranges in one column.
func brief(ranges string) string {
	first, _, more := strings.Cut(ranges, ",")
	if !more {
		return cmp.Or(ranges, "-")
	}
	_, last, _ := strings.Cut(ranges[strings.LastIndexByte(ranges, ',')+1:], "-")
	from, _, _ := strings.Cut(first, "-")
	return fmt.Sprintf("%s-%s in %d pieces", from, last, strings.Count(ranges, ",")+1)
}

// peeked is a line of GET /v1/spool/messages.
type peeked struct {
	tapped
	Lane    string            `json:"lane"`
	Seq     uint64            `json:"seq"`
	ID      string            `json:"id"`
	Time    time.Time         `json:"time"`
	Headers map[string]string `json:"headers"`
}

func spoolPeekCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "peek",
		Short: "show messages that wait, without consuming them",
		Example: `  fieldpost-agent spool peek --filter 'alarm.>' --from newest
  fieldpost-agent spool peek --limit 0 --json | gzip >backlog.ndjson.gz`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q, err := laneQuery(c)
			if err != nil {
				return err
			}
			filter, err1 := c.Flags().GetString("filter")
			limit, err2 := c.Flags().GetUint("limit")
			from, err3 := c.Flags().GetString("from")
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			if filter != "" {
				if err := cli.CheckFilter(filter); err != nil {
					return err
				}
				q.Set("filter", filter)
			}
			if from != "oldest" && from != "newest" {
				return cli.Usagef("--from: %q is neither oldest nor newest", from)
			}
			q.Set("from", from)
			q.Set("limit", fmt.Sprint(limit))
			return withSpool(c, false, func(ctx context.Context, a *api) error {
				return a.lines(ctx, "/v1/spool/messages", q, func(line json.RawMessage) error { return showPeeked(c, line) })
			})
		},
	}
	laneFlag(c)
	c.Flags().String("filter", "", "only subjects that this `filter` takes, such as sensors.>")
	c.Flags().Uint("limit", 20, "at most so many `messages`; 0: all")
	c.Flags().String("from", "oldest", "begin with the oldest or the newest of each lane")
	socketFlag(c)
	return c
}

func showPeeked(c *cobra.Command, line json.RawMessage) error {
	if cli.JSON(c) {
		return cli.Print(c, line, nil)
	}
	var m peeked
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("a message cannot be read: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s/%d  %s  %s", m.Time.Format("2006-01-02T15:04:05.000Z07:00"), m.Lane, m.Seq, cli.Visible(m.Subject), cli.Visible(m.text()))
	if m.ID != "" {
		fmt.Fprintf(&b, "  id=%s", cli.Visible(m.ID))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		fmt.Fprintf(&b, "  %s: %s", cli.Visible(k), cli.Visible(m.Headers[k]))
	}
	_, err := fmt.Fprintln(c.OutOrStdout(), b.String())
	return err
}

// check is a line of GET /v1/spool/verify.
type check struct {
	Segment  string            `json:"segment"`
	State    string            `json:"state"`
	OK       bool              `json:"ok"`
	Blocks   int               `json:"blocks"`
	Messages uint64            `json:"messages"`
	Bytes    int64             `json:"bytes"`
	Damaged  map[string]string `json:"damaged"`
	Problem  string            `json:"problem"`
}

func spoolVerifyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "verify",
		Short: "read everything that is held and check it; exit code 1 if something is damaged",
		Long: `verify reads every block and compares every file with its checksums. It changes nothing:
the agent itself puts a damaged segment aside when it comes to it, delivers what is readable,
reports the rest (spool quarantine list) and tells the hub which sequences will not come.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return withSpool(c, false, func(ctx context.Context, a *api) error { return verify(ctx, c, a) })
		},
	}
	socketFlag(c)
	return c
}

func verify(ctx context.Context, c *cobra.Command, a *api) error {
	var all, bad int
	var messages uint64
	var size int64
	err := a.lines(ctx, "/v1/spool/verify", nil, func(line json.RawMessage) error {
		var k check
		if err := json.Unmarshal(line, &k); err != nil {
			return fmt.Errorf("a result cannot be read: %w", err)
		}
		all, messages, size = all+1, messages+k.Messages, size+k.Bytes
		if !k.OK {
			bad++
		}
		return cli.Print(c, line, func(w io.Writer) { k.write(w) })
	})
	switch {
	case err != nil:
		return err
	case bad > 0:
		return fmt.Errorf("%d of %d segments are damaged; the agent puts them aside and delivers what is readable of them: let it run, and see `fieldpost-agent spool quarantine list`; then look after the disk", bad, all)
	case !cli.JSON(c):
		fmt.Fprintf(c.OutOrStdout(), "all %d segments are intact: %s messages, %s\n", all, cli.Count(messages), cli.Bytes(size))
	}
	return nil
}

func (k *check) write(w io.Writer) {
	if k.OK {
		fmt.Fprintf(w, "%s  %-8s  ok       %s messages in %d blocks, %s\n", k.Segment, k.State, cli.Count(k.Messages), k.Blocks, cli.Bytes(k.Bytes))
		return
	}
	fmt.Fprintf(w, "%s  %-8s  DAMAGED  %s; %s messages are readable\n", k.Segment, k.State, cli.Visible(k.Problem), cli.Count(k.Messages))
	for _, flow := range slices.Sorted(maps.Keys(k.Damaged)) {
		fmt.Fprintf(w, "    not readable as it is: %s %s\n", flow, k.Damaged[flow])
	}
}
