package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
)

func devicesCommand() *cobra.Command {
	c := &cobra.Command{Use: "devices", Short: "the devices this hub has heard of"}
	list := &cobra.Command{
		Use:   "list",
		Short: "list devices",
		Example: `  fieldpost-hub devices list --filter press
  fieldpost-hub devices list --filter state=offline --json`,
		Args: cobra.NoArgs,
		RunE: listDevices,
	}
	list.Flags().String("filter", "", "part of the name, state=online|offline|cloned, or label=value")
	addressFlag(list)
	show := &cobra.Command{
		Use:   "show DEVICE",
		Short: "show all that is known of one device",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				d, err := within(ctx, patience, func(ctx context.Context) (admin.Device, error) { return a.Device(ctx, args[0]) })
				if err != nil {
					return err
				}
				return cli.Print(c, d, func(w io.Writer) { writeDevice(w, d, time.Now()) })
			})
		},
	}
	addressFlag(show)
	forget := &cobra.Command{
		Use:   "forget DEVICE...",
		Short: "remove devices that are offline from the list; what they have delivered stays",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				for _, device := range args {
					if _, err := within(ctx, patience, func(ctx context.Context) (any, error) { return nil, a.Forget(ctx, device) }); err != nil {
						return fmt.Errorf("%s: %w", device, err)
					}
				}
				return nil
			})
		},
	}
	addressFlag(forget)
	c.AddCommand(list, show, forget)
	return c
}

// listDevices prints every page; with --json a device a line.
func listDevices(c *cobra.Command, _ []string) error {
	filter, err := c.Flags().GetString("filter")
	if err != nil {
		return err
	}
	if s, ok := strings.CutPrefix(filter, "state="); ok && !slices.Contains([]string{"online", "offline", "cloned"}, s) {
		return cli.Usagef("--filter: state %q is not one of online, offline, cloned", s)
	}
	return ask(c, func(ctx context.Context, a *admin.Client) error {
		t := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		if !cli.JSON(c) {
			fmt.Fprintln(t, "DEVICE\tSTATE\tSEEN\tBACKLOG\tVERSION\tLABELS")
		}
		now, loading := time.Now(), false
		for q := (admin.DeviceQuery{Filter: filter}); ; {
			page, err := within(ctx, patience, func(ctx context.Context) (admin.Devices, error) { return a.Devices(ctx, q) })
			if err != nil {
				return err
			}
			for _, d := range page.Devices {
				if !cli.JSON(c) {
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Device, state(d), cli.Ago(now, d.Seen), backlog(d), cli.Visible(d.Version), labels(d))
				} else if err := cli.Print(c, d, nil); err != nil {
					return err
				}
			}
			if err := t.Flush(); err != nil {
				return err
			}
			loading = loading || page.Loading
			if page.Next == "" {
				if loading {
					fmt.Fprintln(c.ErrOrStderr(), "this list is not complete: the hub has just started and still reads its own; ask again in a moment")
				}
				return nil
			}
			q.After = page.Next
		}
	})
}

func state(d admin.Device) string {
	s := "offline"
	if d.Online {
		s = "online"
	}
	if d.Clones != nil {
		s += " (copied?)"
	}
	return s
}

func backlog(d admin.Device) string {
	var messages uint64
	for _, l := range d.Backlog {
		messages += l.Messages
	}
	return cli.Count(messages)
}

func labels(d admin.Device) string {
	out := make([]string, 0, len(d.Labels))
	for _, k := range slices.Sorted(maps.Keys(d.Labels)) {
		out = append(out, cli.Visible(k+"="+d.Labels[k]))
	}
	return strings.Join(out, ",")
}

// clock words how far a clock is from the hub's.
func clock(offset time.Duration) string {
	switch {
	case offset.Abs() < 2*time.Second:
		return "right"
	case offset < 0:
		return cli.Span(-offset) + " behind the hub's"
	}
	return cli.Span(offset) + " ahead of the hub's"
}

// link words a change between online and offline, and how long it held.
func link(k admin.Link, held time.Duration) string {
	s := "offline"
	if k.Online {
		s = "online"
	}
	s = fmt.Sprintf("%s %-7s for %s", k.At.Format(time.RFC3339), s, cli.Span(held))
	if k.Reason != "" {
		s += ": " + cli.Visible(strings.ReplaceAll(k.Reason, "_", " "))
	}
	return s
}

func writeDevice(w io.Writer, d admin.Device, now time.Time) {
	fmt.Fprintf(w, "device   %s, %s for %s\n", d.Device, state(d), cli.Span(now.Sub(d.Since)))
	fmt.Fprintf(w, "seen     %s; first %s\n", cli.Ago(now, d.Seen), cli.Ago(now, d.Created))
	fmt.Fprintf(w, "agent    version %s, started %s, epoch %s\n", cli.Visible(d.Version), cli.Ago(now, d.Started), cmp.Or(d.Epoch, "not begun"))
	if d.Clock != nil {
		fmt.Fprintf(w, "clock    %s\n", clock(time.Duration(*d.Clock)*time.Millisecond))
	}
	if d.Error != nil {
		fmt.Fprintf(w, "error    %s, last: %s\n", cli.Ago(now, d.Error.At), cli.Visible(d.Error.Text))
	}
	if l := labels(d); l != "" {
		fmt.Fprintf(w, "labels   %s\n", l)
	}
	for _, lane := range []string{"urgent", "normal", "bulk"} {
		if b := d.Backlog[lane]; b.Messages > 0 {
			fmt.Fprintf(w, "backlog  %-6s %s messages, %s, oldest %s\n", lane, cli.Count(b.Messages), cli.Bytes(b.Bytes), cli.Ago(now, time.UnixMilli(b.Oldest)))
		}
	}
	fmt.Fprintf(w, "disk     %s of %s\n", cli.Bytes(d.Disk.Used), cli.Bytes(d.Disk.Max))
	for _, reason := range slices.Sorted(maps.Keys(d.Dropped)) {
		fmt.Fprintf(w, "dropped  %s %s\n", cli.Count(d.Dropped[reason]), reason)
	}
	if !d.Imported.IsZero() {
		fmt.Fprintf(w, "import   a file of it %s\n", cli.Ago(now, d.Imported))
	}
	if d.Quarantine > 0 {
		fmt.Fprintf(w, "damage   %d segments in quarantine\n", d.Quarantine)
	}
	if d.Clones != nil {
		fmt.Fprintf(w, "copies   reported %d times, last %s: a disk image, a restored backup or a wiped spool\n", d.Clones.Reports, cli.Ago(now, d.Clones.Last))
	}
	for i, k := range slices.Backward(d.Links) {
		until := now
		if i+1 < len(d.Links) {
			until = d.Links[i+1].At
		}
		fmt.Fprintf(w, "link     %s\n", link(k, until.Sub(k.At)))
	}
}
