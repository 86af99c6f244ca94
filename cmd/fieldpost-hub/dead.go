package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func deadCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "dead",
		Short: "messages whose consumer gave up, poison blocks and gaps",
		Long: `A message that a consumer could not take, because it used up its deliveries or said that
it never will, is kept in the stream DEAD. Here it is looked at, offered once more to the
consumer that gave it up (on the subject retry.<consumer> of the stream RETRY), or removed.`,
	}
	c.AddCommand(deadListCommand(), deadShowCommand(),
		deadChangeCommand("retry", "offer letters to their consumers again", (*admin.Client).RetryDead, func(d admin.DeadDone) int { return d.Retried }),
		deadChangeCommand("purge", "remove letters for good", (*admin.Client).PurgeDead, func(d admin.DeadDone) int { return d.Purged }))
	return c
}

// choiceFlags are the filters of letters.
func choiceFlags(c *cobra.Command, filter, consumer, reason *string) {
	c.Flags().StringVar(filter, "filter", "", "only of these original subjects, such as edge.press-7.>")
	c.Flags().StringVar(consumer, "consumer", "", "only those that this consumer gave up")
	c.Flags().StringVar(reason, "reason", "", "max_deliveries, terminated, or the reason of a gap or poison block")
}

func deadListCommand() *cobra.Command {
	var q admin.DeadQuery
	limit := 0
	c := &cobra.Command{
		Use:   "list",
		Short: "list letters, the oldest first",
		Example: `  fieldpost-hub dead list --consumer billing
  fieldpost-hub dead list --filter 'edge.press-7.>' --reason terminated --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.Filter != "" {
				if err := cli.CheckFilter(q.Filter); err != nil {
					return err
				}
			}
			if limit < 0 {
				return cli.Usagef("--limit: %d is not 0 or more", limit)
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error { return listDead(ctx, c, a, q, limit) })
		},
	}
	choiceFlags(c, &q.Filter, &q.Consumer, &q.Reason)
	c.Flags().Uint64Var(&q.After, "after", 0, "only behind this `sequence`")
	c.Flags().IntVar(&limit, "limit", 0, "end after so many letters (0: all)")
	addressFlag(c)
	return c
}

// listDead prints every page; with --json a letter a line.
func listDead(ctx context.Context, c *cobra.Command, a *admin.Client, q admin.DeadQuery, limit int) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !cli.JSON(c) {
		fmt.Fprintln(t, "SEQ\tAGE\tREASON\tCONSUMER\tTRIES\tRETRIES\tSTREAM\tSUBJECT\tDETAIL")
	}
	now, shown := time.Now(), 0
	for {
		if limit > 0 {
			q.Limit = min(limit-shown, 1000)
		}
		page, err := within(ctx, patience, func(ctx context.Context) (admin.Letters, error) { return a.Dead(ctx, q) })
		if err != nil {
			return err
		}
		for _, l := range page.Letters {
			if !cli.JSON(c) {
				fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", l.Seq, cli.Span(now.Sub(l.Time)), cli.Visible(l.Reason), orDash(l.Consumer),
					l.Deliveries, l.Retry, cli.Visible(l.Stream), cli.Visible(l.Subject), brief(l.Detail))
			} else if err := cli.Print(c, l, nil); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		shown += len(page.Letters)
		if page.Next == 0 || limit > 0 && shown >= limit {
			return nil
		}
		q.After = page.Next
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return cli.Visible(s)
}

// brief is the beginning of what may be long.
func brief(s string) string {
	r := []rune(cli.Visible(s))
	if len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return string(r)
}

func deadShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "show SEQ",
		Short:   "show one letter with its headers and payload",
		Example: "  fieldpost-hub dead show 17 --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			seqs, err := sequences(args)
			if err != nil {
				return err
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				l, err := within(ctx, patience, func(ctx context.Context) (admin.WholeLetter, error) { return a.DeadLetter(ctx, seqs[0]) })
				if err != nil {
					return err
				}
				return cli.Print(c, l, func(w io.Writer) { writeLetter(w, l, time.Now()) })
			})
		},
	}
	addressFlag(c)
	return c
}

func writeLetter(w io.Writer, l admin.WholeLetter, now time.Time) {
	fmt.Fprintf(w, "letter   %d, %s\n", l.Seq, cli.Ago(now, l.Time))
	fmt.Fprintf(w, "subject  %s in %s", cli.Visible(l.Subject), cli.Visible(l.Stream))
	if l.StreamSeq > 0 {
		fmt.Fprintf(w, ", sequence %d", l.StreamSeq)
	}
	fmt.Fprintf(w, "\nreason   %s", cli.Visible(l.Reason))
	if l.Consumer != "" {
		fmt.Fprintf(w, " by consumer %s after %d deliveries", cli.Visible(l.Consumer), l.Deliveries)
	}
	if l.Retry > 0 {
		fmt.Fprintf(w, ", retried %d times before", l.Retry)
	}
	fmt.Fprintln(w)
	if l.Detail != "" {
		fmt.Fprintf(w, "detail   %s\n", cli.Visible(l.Detail))
	}
	if l.Refusal != "" {
		fmt.Fprintf(w, "retry    is not possible: %s\n", cli.Visible(l.Refusal))
	}
	for _, k := range slices.Sorted(maps.Keys(l.Headers)) {
		fmt.Fprintf(w, "header   %s: %s\n", cli.Visible(k), cli.Visible(strings.Join(l.Headers[k], ", ")))
	}
	fmt.Fprintf(w, "payload  %s\n", payload(l.Payload()))
}

func sequences(args []string) (out []uint64, err error) {
	for _, a := range args {
		n, err := strconv.ParseUint(a, 10, 64)
		if err != nil || n == 0 {
			return nil, cli.Usagef("%q is not a letter's sequence; `fieldpost-hub dead list` shows them", a)
		}
		out = append(out, n)
	}
	return out, nil
}

type deadCall func(*admin.Client, context.Context, admin.DeadChoice) (admin.DeadDone, error)

func deadChangeCommand(verb, text string, call deadCall, done func(admin.DeadDone) int) *cobra.Command {
	var choice admin.DeadChoice
	c := &cobra.Command{
		Use:   verb + " SEQ... | --all",
		Short: text,
		Example: fmt.Sprintf(`  fieldpost-hub dead %s 17 18
  fieldpost-hub dead %[1]s --all --consumer billing --reason max_deliveries`, verb),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if choice.Seqs, err = sequences(args); err != nil {
				return err
			}
			switch narrowed := choice.Filter+choice.Consumer+choice.Reason != ""; {
			case choice.All == (len(args) > 0) || narrowed && !choice.All:
				return cli.Usagef("name letters by sequence, or give --all, with --filter, --consumer or --reason where not all are meant")
			case len(args) > admin.MaxSeqs:
				return cli.Usagef("%d letters are named, %d at most are possible", len(args), admin.MaxSeqs)
			}
			if choice.Filter != "" {
				if err := cli.CheckFilter(choice.Filter); err != nil {
					return err
				}
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				return changeDead(ctx, c, a, verb, choice, call, done)
			})
		},
	}
	choiceFlags(c, &choice.Filter, &choice.Consumer, &choice.Reason)
	c.Flags().BoolVar(&choice.All, "all", false, "all that the other flags leave, or simply all")
	addressFlag(c)
	return c
}

// changePatience is how long the hub may take for one call; it ends a long one
// after 15 s to be asked to go on.
const changePatience = 2 * time.Minute

// changeDead calls until nothing is left to do.
func changeDead(ctx context.Context, c *cobra.Command, a *admin.Client, verb string, choice admin.DeadChoice, call deadCall, done func(admin.DeadDone) int) error {
	var sum admin.DeadDone
	for {
		d, err := within(ctx, changePatience, func(ctx context.Context) (admin.DeadDone, error) { return call(a, ctx, choice) })
		if err != nil {
			if n := done(sum); n > 0 {
				err = fmt.Errorf("%w (%d letters were done before)", err, n)
			}
			return err
		}
		sum.Retried, sum.Purged, sum.Gone, sum.Refused = sum.Retried+d.Retried, sum.Purged+d.Purged, sum.Gone+d.Gone, sum.Refused+d.Refused
		if len(sum.Why) == 0 { // the first call's, a few of them, are enough
			sum.Why = d.Why
		}
		if d.Next == 0 {
			break
		}
		choice.After, choice.UpTo = d.Next, d.UpTo
	}
	err := cli.Print(c, sum, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s letters", verb, cli.Count(uint64(done(sum))))
		if sum.Gone > 0 {
			fmt.Fprintf(w, "; %s were not there any more", cli.Count(uint64(sum.Gone)))
		}
		fmt.Fprintln(w)
		for _, r := range sum.Why {
			fmt.Fprintf(w, "letter %d stays: %s\n", r.Seq, cli.Visible(r.Why))
		}
	})
	switch {
	case err != nil:
		return err
	case sum.Refused > 0:
		return fmt.Errorf("%d letters cannot be retried and stay in DEAD", sum.Refused)
	case done(sum) == 0 && !choice.All:
		return errors.New("no such letter is in DEAD (any more)")
	}
	return nil
}
