package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

func desiredCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "desired",
		Short: "desired settings of devices: what is wanted, and what became of it",
		Long: `What is wanted of a device is a JSON object: what was set for it and for its labels, laid over
each other in the order in which it was set. The member "agent" is for the agent itself, the
others are for the programs on the device.`,
	}
	c.AddCommand(desiredGetCommand(), desiredSetCommand())
	return c
}

// labelFlag adds --label.
func labelFlag(c *cobra.Command, label *string) {
	c.Flags().StringVar(label, "label", "", "of all devices that have this label, as `key=value`")
}

// desiredTarget takes the device off args, unless there is a label.
func desiredTarget(args []string, label string) (admin.DesiredTarget, []string, error) {
	t := admin.DesiredTarget{Label: label}
	switch {
	case label != "" && !strings.Contains(label, "="):
		return t, nil, cli.Usagef("--label: %q is not like site=north", label)
	case label != "":
		return t, args, nil
	case len(args) == 0:
		return t, nil, cli.Usagef("wanted is a DEVICE, or --label key=value")
	}
	t.Device = args[0]
	if err := wire.CheckDevice(t.Device); err != nil {
		return t, nil, cli.Usagef("%w", err)
	}
	return t, args[1:], nil
}

func desiredGetCommand() *cobra.Command {
	var label string
	c := &cobra.Command{
		Use:   "get [DEVICE]",
		Short: "show what is wanted of a device, or what was set for a label; of neither: list all that was set",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && label == "" {
				return ask(c, func(ctx context.Context, a *admin.Client) error { return listDesired(ctx, c, a) })
			}
			t, rest, err := desiredTarget(args, label)
			if err == nil && len(rest) > 0 {
				err = cli.Usagef("wanted is a DEVICE or --label, not both")
			}
			if err != nil {
				return err
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				if t.Device != "" {
					d, err := within(ctx, patience, func(ctx context.Context) (admin.DesiredDevice, error) { return a.DesiredDevice(ctx, t.Device) })
					if err != nil {
						return err
					}
					return cli.Print(c, d, func(w io.Writer) { writeDesired(w, d, time.Now()) })
				}
				l, err := within(ctx, changePatience, func(ctx context.Context) (admin.DesiredLabel, error) { return a.DesiredLabel(ctx, t.Label) })
				if err != nil {
					return err
				}
				return cli.Print(c, l, func(w io.Writer) { writeDesiredLabel(w, l, time.Now()) })
			})
		},
	}
	labelFlag(c, &label)
	addressFlag(c)
	return c
}

// listDesired prints every page; with --json a document a line.
func listDesired(ctx context.Context, c *cobra.Command, a *admin.Client) error {
	t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	if !cli.JSON(c) {
		fmt.Fprintln(t, "OF\tREVISION\tAGE\tBY")
	}
	for after := ""; ; {
		page, err := within(ctx, patience, func(ctx context.Context) (admin.DesiredList, error) { return a.DesiredList(ctx, after, 0) })
		if err != nil {
			return err
		}
		for _, d := range page.Documents {
			if !cli.JSON(c) {
				fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", cli.Visible(d.Device+d.Label), d.Revision, cli.Span(time.Since(d.At)), cli.Visible(d.By))
			} else if err := cli.Print(c, d, nil); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func writeDesired(w io.Writer, d admin.DesiredDevice, now time.Time) {
	fmt.Fprintf(w, "device   %s\nstate    %s\n", d.Device, d.State)
	if d.Reason != "" {
		fmt.Fprintf(w, "reason   %s\n", cli.Visible(d.Reason))
	}
	if !d.Labels {
		fmt.Fprintln(w, "note     the device has not been heard of, so its labels are not known: it gets nothing yet")
	}
	if d.Version != "" {
		fmt.Fprintf(w, "version  %s\n", d.Version)
	}
	if r := d.Report; r != nil {
		fmt.Fprintf(w, "device said %s of %s, %s\n", r.State, r.Version, cli.Ago(now, r.Heard))
	}
	for _, doc := range d.Documents {
		writeSet(w, doc, now)
	}
	if string(d.Merged) != "null" {
		fmt.Fprintf(w, "%s\n", indented(d.Merged))
	}
}

func writeSet(w io.Writer, d admin.DesiredDocument, now time.Time) {
	fmt.Fprintf(w, "set for  %s, revision %d, %s, by %s\n", cli.Visible(d.Device+d.Label), d.Revision, cli.Ago(now, d.At), cli.Visible(d.By))
}

func writeDesiredLabel(w io.Writer, l admin.DesiredLabel, now time.Time) {
	fmt.Fprintf(w, "%s: %d devices", cli.Visible(l.Label), l.Devices)
	for _, s := range slices.Sorted(maps.Keys(l.States)) {
		fmt.Fprintf(w, ", %d %s", l.States[s], s)
	}
	fmt.Fprintln(w)
	for _, d := range slices.Sorted(maps.Keys(l.Refused)) {
		fmt.Fprintf(w, "refused by %s: %s\n", d, cli.Visible(l.Refused[d]))
	}
	if l.Document == nil {
		fmt.Fprintln(w, "nothing is set for it")
		return
	}
	writeSet(w, *l.Document, now)
	fmt.Fprintf(w, "%s\n", indented(l.Document.Document))
}

// indented is a document for people, safe for a terminal: JSON escapes control
// characters, and what else is not printable is shown.
func indented(doc json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, doc, "", "  "); err != nil {
		return cli.Visible(string(doc))
	}
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = cli.Visible(lines[i])
	}
	return strings.Join(lines, "\n")
}

func desiredSetCommand() *cobra.Command {
	var label string
	var ch admin.DesiredChange
	var revision uint64
	var remove bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "set DEVICE JSON|-|@FILE | set --label k=v JSON|-|@FILE",
		Short: "set what is wanted of a device, or of all that have a label",
		Long: `set replaces what was set for the device or the label; with --merge it lays JSON over that, as
JSON Merge Patch (RFC 7396) says. A member that is null takes away what was set for another of
its labels. With --wait the end is waited for: exit code 0 if the device, or every device with
the label, has it in effect, 1 if one has refused it, 75 if that is not known in time. One that
has refused it tries again when the same is set again.`,
		Example: `  fieldpost-hub desired set press-7 '{"agent":{"log":{"level":"debug"}}}' --wait
  fieldpost-hub desired set --label site=north @north.json --if-revision 12
  fieldpost-hub desired set press-7 --remove`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			t, rest, err := desiredTarget(args, label)
			if err != nil {
				return err
			}
			switch {
			case remove && (len(rest) > 0 || ch.Merge):
				return cli.Usagef("--remove takes no JSON and no --merge")
			case !remove && len(rest) != 1:
				return cli.Usagef("wanted is DEVICE JSON, or --label key=value JSON, or --remove")
			case c.Flags().Changed("wait") && wait <= 0:
				return cli.Usagef("--wait is a time such as 30s")
			}
			if c.Flags().Changed("if-revision") {
				ch.Revision = &revision
			}
			if !remove {
				if ch.Document, err = readDocument(c, rest[0]); err != nil {
					return err
				}
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				doc, err := within(ctx, changePatience, func(ctx context.Context) (admin.DesiredDocument, error) { return a.SetDesired(ctx, t, ch) })
				if err != nil {
					return err
				}
				if wait > 0 {
					return awaitDesired(ctx, c, a, t, wait)
				}
				verb := "set"
				if remove {
					verb = "removed"
				}
				return cli.Print(c, doc, func(w io.Writer) {
					fmt.Fprintf(w, "%s for %s, revision %d\n", verb, cli.Visible(t.Device+t.Label), doc.Revision)
				})
			})
		},
	}
	labelFlag(c, &label)
	c.Flags().BoolVar(&ch.Merge, "merge", false, "lay JSON over what is set now")
	c.Flags().BoolVar(&remove, "remove", false, "remove what is set")
	c.Flags().Uint64Var(&revision, "if-revision", 0, "only if what is set now has this revision; 0: only if nothing is")
	c.Flags().DurationVar(&wait, "wait", 0, "wait until it is in effect or refused, so long at most (30s if no time is given, as --wait=2m)")
	c.Flags().Lookup("wait").NoOptDefVal = waitDefault.String()
	addressFlag(c)
	return c
}

// readDocument is the argument itself, standard input, or a file.
func readDocument(c *cobra.Command, arg string) (json.RawMessage, error) {
	in, name := c.InOrStdin(), "standard input"
	switch {
	case strings.HasPrefix(arg, "@"):
		name = arg[1:]
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	case arg != "-":
		return json.RawMessage(arg), nil
	}
	const most = 512 << 10 // the hub says what of it is too much
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && len(data) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err == nil && len(data) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// desiredEvery is how often a device's report is looked at while that is waited for.
const desiredEvery = 500 * time.Millisecond

// awaitDesired waits until everybody has what is wanted now, or one has refused it.
func awaitDesired(ctx context.Context, c *cobra.Command, a *admin.Client, t admin.DesiredTarget, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		shown, states, why, err := lookDesired(ctx, a, t)
		if err != nil {
			return err
		}
		open := states[admin.DesiredNotYet] + states[admin.DesiredTrial]
		bad := states[admin.DesiredRefused] + states[admin.DesiredTooLarge]
		if open > 0 && bad == 0 && time.Now().Before(end) {
			select {
			case <-ctx.Done():
				return notYet(t)
			case <-time.After(min(desiredEvery, time.Until(end)+time.Millisecond)):
			}
			continue
		}
		err = cli.Print(c, shown, func(w io.Writer) {
			if open == 0 && bad == 0 {
				fmt.Fprintf(w, "in effect: %s\n", cli.Visible(t.Device+t.Label))
			}
		})
		switch {
		case err != nil:
			return err
		case bad > 0:
			return fmt.Errorf("refused: %s", why)
		case open > 0:
			return notYet(t)
		}
		return nil
	}
}

func notYet(t admin.DesiredTarget) error {
	return cli.Exit(cli.Temporary, fmt.Errorf("set, and not in effect everywhere yet; `fieldpost-hub desired get` says what becomes of it at %s", cli.Visible(t.Device+t.Label)))
}

// lookDesired counts the states of one device, or of those with a label.
func lookDesired(ctx context.Context, a *admin.Client, t admin.DesiredTarget) (shown any, states map[admin.DesiredState]int, why string, err error) {
	if t.Device != "" {
		d, err := within(ctx, patience, func(ctx context.Context) (admin.DesiredDevice, error) { return a.DesiredDevice(ctx, t.Device) })
		return d, map[admin.DesiredState]int{d.State: 1}, cli.Visible(d.Reason), err
	}
	l, err := within(ctx, changePatience, func(ctx context.Context) (admin.DesiredLabel, error) { return a.DesiredLabel(ctx, t.Label) })
	names := slices.Sorted(maps.Keys(l.Refused))
	if len(names) > 0 {
		why = names[0] + ": " + cli.Visible(l.Refused[names[0]])
		if n := l.States[admin.DesiredRefused]; n > 1 {
			why += fmt.Sprintf(" (and %d more)", n-1)
		}
	} else {
		why = fmt.Sprintf("%d devices would have more than %d bytes; `fieldpost-hub desired get DEVICE` says which documents they are of", l.States[admin.DesiredTooLarge], wire.MaxDesired)
	}
	return l, l.States, why, err
}
