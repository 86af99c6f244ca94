package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// tracePatience is more than the hub looks through streams for.
const tracePatience = 30 * time.Second

func traceCommand() *cobra.Command {
	id := ""
	c := &cobra.Command{
		Use:   "trace DEVICE EPOCH/LANE/SEQ | --id ID",
		Short: "tell where one message is",
		Long: `trace says what the hub durably knows of one message: whether it was received and in which
block, in which stream it is or what it waits for, which consumers had it, and who gave it
up. What does not follow from that is called unknown. The number is that of the publisher's
receipt; an id is looked for in the newest part of the streams, and the answer says in which.`,
		Example: `  fieldpost-hub trace press-7 6f1d0c2b9a3e4758/normal/4711
  fieldpost-hub trace press-7 --id order-93 --json`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			call, err := traceCall(args, id)
			if err != nil {
				return err
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				t, err := within(ctx, tracePatience, func(ctx context.Context) (admin.Trace, error) { return call(ctx, a) })
				if err != nil {
					return err
				}
				return cli.Print(c, t, func(w io.Writer) { writeTrace(w, t) })
			})
		},
	}
	c.Flags().StringVar(&id, "id", "", "the publisher's `id` of the message, instead of its number")
	addressFlag(c)
	return c
}

// traceCall checks what names the message.
func traceCall(args []string, id string) (func(context.Context, *admin.Client) (admin.Trace, error), error) {
	device := args[0]
	if err := wire.CheckDevice(device); err != nil {
		return nil, cli.Usagef("%w", err)
	}
	switch {
	case (id != "") == (len(args) == 2):
		return nil, cli.Usagef("name the message by EPOCH/LANE/SEQ, as in its publisher's receipt, or by --id")
	case id != "":
		if err := wire.CheckID(id); err != nil {
			return nil, cli.Usagef("--id: %w", err)
		}
		return func(ctx context.Context, a *admin.Client) (admin.Trace, error) { return a.TraceID(ctx, device, id) }, nil
	}
	parts := strings.Split(args[1], "/")
	if len(parts) != 3 {
		return nil, cli.Usagef("%q is not EPOCH/LANE/SEQ, such as 6f1d0c2b9a3e4758/normal/4711", args[1])
	}
	if _, err := wire.ParseEpoch(parts[0]); err != nil {
		return nil, cli.Usagef("%w", err)
	}
	if _, err := wire.ParseLane(parts[1]); err != nil {
		return nil, cli.Usagef("%w", err)
	}
	seq, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || seq == 0 {
		return nil, cli.Usagef("%q is not a sequence, which are counted from 1", parts[2])
	}
	return func(ctx context.Context, a *admin.Client) (admin.Trace, error) {
		return a.Trace(ctx, device, parts[0], parts[1], seq)
	}, nil
}

func writeTrace(w io.Writer, t admin.Trace) {
	name := t.Device
	if t.Epoch != "" {
		name += fmt.Sprintf(" %s/%s/%d", t.Epoch, t.Lane, t.Seq)
	}
	if t.Subject != "" {
		name += " " + t.Subject
	}
	if t.ID != "" {
		name += " id " + t.ID
	}
	fmt.Fprintf(w, "%s: %s\n", cli.Visible(name), strings.ReplaceAll(t.State, "_", " "))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range t.Steps {
		at, where := "-", ""
		if !s.Time.IsZero() {
			at = s.Time.UTC().Format("2006-01-02 15:04:05.000Z")
		}
		switch {
		case s.Consumer != "":
			where = s.Consumer
		case s.Seq > 0:
			where = fmt.Sprintf("%s %d", s.Stream, s.Seq)
		case s.Stream != "":
			where = s.Stream
		}
		text := s.Text
		if s.Reason != "" && !strings.Contains(text, s.Reason) {
			text += " (" + s.Reason + ")"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", at, s.Hop, orDash(where), cli.Visible(text))
	}
	tw.Flush()
	for _, s := range t.Searched {
		switch {
		case s.Complete:
		case s.First > s.Last:
			fmt.Fprintf(w, "searched: nothing of %s\n", s.Stream)
		default:
			fmt.Fprintf(w, "searched: %s, sequences %d to %d (%s messages of %s); older ones were not\n", s.Stream, s.First, s.Last, cli.Count(uint64(s.Messages)), cli.Visible(s.Filter))
		}
	}
}
