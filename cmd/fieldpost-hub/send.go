package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/hub/admin"
	"github.com/fieldpost/fieldpost/sync/wire"
)

const (
	waitDefault = 30 * time.Second
	waitStep    = time.Minute // of one request
)

func sendCommand() *cobra.Command {
	var n admin.NewCommand
	var ttl, wait time.Duration
	c := &cobra.Command{
		Use:   "send DEVICE SUBJECT [DATA|-] | send --label k=v SUBJECT [DATA|-]",
		Short: "send a command to a device, or to all that have labels",
		Long: `send stores a command at the hub. The device gets it when it is online, and hands it to the
programs there that subscribe to SUBJECT, until one has done it. With --wait the end is waited
for and the result printed: exit code 0 if it was done, 1 if it failed, expired or was
cancelled, 75 if that is not known in time. The same --id again is the same command.`,
		Example: `  fieldpost-hub send press-7 valve.set '{"open":true}' --ttl 1h --wait
  fieldpost-hub send --label site=north --label kind=press update.now - < update.json`,
		RunE: func(c *cobra.Command, args []string) error {
			device := ""
			if len(n.Labels) == 0 && len(args) > 0 {
				device, args = args[0], args[1:]
				if err := wire.CheckDevice(device); err != nil {
					return cli.Usagef("%w", err)
				}
			}
			switch {
			case len(args) == 3 && c.Flags().Changed("wait") && isTime(args[2]):
				return cli.Usagef("%s is one argument too many; the time to wait is written --wait=%[1]s", args[2])
			case len(args) == 0 || len(args) > 2:
				return cli.Usagef("wanted is DEVICE SUBJECT [DATA], or --label k=v SUBJECT [DATA]")
			case wire.CheckSubject(args[0]) != nil:
				return cli.Usagef("%w", wire.CheckSubject(args[0]))
			case c.Flags().Changed("ttl") && ttl < time.Second:
				return cli.Usagef("--ttl: %s is less than a second", ttl)
			case c.Flags().Changed("wait") && (wait <= 0 || device == ""):
				return cli.Usagef("--wait is a time such as 30s, and for a command to one device; `fieldpost-hub commands list --group ID` shows those of a group")
			}
			if ttl > 0 {
				n.TTL = ttl.String()
			}
			var err error
			if n.Subject = args[0]; len(args) == 2 {
				if n.PayloadB64, err = data(c, args[1]); err != nil {
					return err
				}
			}
			return ask(c, func(ctx context.Context, a *admin.Client) error {
				if device == "" {
					return sendMany(ctx, c, a, n)
				}
				return sendOne(ctx, c, a, device, n, wait)
			})
		},
	}
	c.Flags().StringToStringVar(&n.Labels, "label", nil, "to all devices that have this label now; with several, all of them")
	c.Flags().StringVar(&n.ID, "id", "", "`name` of the command: the same one again is the same command")
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long it is worth something (default commands.ttl of the hub)")
	c.Flags().DurationVar(&wait, "wait", 0, "wait until it is settled, so long at most (30s if no time is given; with the sign =, as --wait=2m: what stands apart is DATA)")
	c.Flags().Lookup("wait").NoOptDefVal = waitDefault.String()
	addressFlag(c)
	return c
}

func isTime(s string) bool {
	_, err := time.ParseDuration(s)
	return err == nil
}

// data is the argument itself, or standard input.
func data(c *cobra.Command, arg string) ([]byte, error) {
	if arg != "-" {
		return []byte(arg), nil
	}
	out, err := io.ReadAll(io.LimitReader(c.InOrStdin(), wire.MaxCommand+1))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if len(out) > wire.MaxCommand {
		return nil, fmt.Errorf("standard input has more than the %d bytes of a command", wire.MaxCommand)
	}
	return out, nil
}

// sendOne sends, and waits in steps if that is asked for.
func sendOne(ctx context.Context, c *cobra.Command, a *admin.Client, device string, n admin.NewCommand, wait time.Duration) error {
	end := time.Now().Add(wait)
	for {
		step := max(min(time.Until(end), waitStep), 0)
		out, err := within(ctx, step+patience, func(ctx context.Context) (admin.Command, error) { return a.Send(ctx, device, n, step) })
		if err != nil {
			return err
		}
		n.ID = out.ID // it is the same command from now on
		switch {
		case wait == 0:
			return cli.Print(c, out, func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", out.ID, out.State) })
		case !out.State.Settled() && time.Until(end) > 0 && ctx.Err() == nil:
			continue
		}
		return outcome(c, out)
	}
}

// outcome prints the result, and ends as the command did.
func outcome(c *cobra.Command, out admin.Command) error {
	err := cli.Print(c, out, func(w io.Writer) {
		if len(out.Result) > 0 {
			fmt.Fprintln(w, result(out.Result))
		}
	})
	switch {
	case err != nil || out.State == wire.CommandAcked:
		return err
	case !out.State.Settled():
		return cli.Exit(cli.Temporary, fmt.Errorf("command %s is %s, and not settled yet; `fieldpost-hub commands show %[1]s` says what becomes of it", out.ID, out.State))
	case out.Reason != "":
		return fmt.Errorf("command %s %s: %s", out.ID, out.State, cli.Visible(out.Reason))
	}
	return fmt.Errorf("command %s %s", out.ID, out.State)
}

// result is what a program has returned, line by line if it is text.
func result(b []byte) string {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	for i, l := range lines {
		lines[i] = payload([]byte(l))
	}
	return strings.Join(lines, "\n")
}

func sendMany(ctx context.Context, c *cobra.Command, a *admin.Client, n admin.NewCommand) error {
	g, err := a.SendGroup(ctx, n)
	if err != nil {
		return err
	}
	if err := cli.Print(c, g, func(w io.Writer) { writeGroup(w, g) }); err != nil {
		return err
	}
	if g.Missed > 0 {
		return fmt.Errorf("%d devices did not get it: they have as many commands as commands.max_pending allows", g.Missed)
	}
	return nil
}

func writeGroup(w io.Writer, g admin.CommandGroup) {
	fmt.Fprintf(w, "group %s: %d devices", g.ID, g.Devices)
	for _, s := range slices.Sorted(maps.Keys(g.States)) {
		fmt.Fprintf(w, ", %d %s", g.States[s], s)
	}
	if g.Complete && g.Devices == 0 && g.Missed == 0 {
		fmt.Fprint(w, "; none had all of these labels when it was sent; `fieldpost-hub devices list` shows which they have")
	}
	fmt.Fprintln(w)
	for _, d := range slices.Sorted(maps.Keys(g.Refused)) {
		fmt.Fprintf(w, "not sent to %s: %s\n", cli.Visible(d), cli.Visible(g.Refused[d]))
	}
}
