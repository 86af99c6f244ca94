package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// commandJSON is what --json prints of a command: a line of GET /v1/commands.
type commandJSON struct {
	ID         string    `json:"id"`
	Subject    string    `json:"subject"`
	Payload    *string   `json:"payload,omitempty"`
	B64        []byte    `json:"payload_b64,omitempty"`
	Deliveries int       `json:"deliveries"`
	Sent       time.Time `json:"sent"`
	Expires    time.Time `json:"expires"`
}

func subscribeCommand() *cobra.Command {
	var run string
	var parallel int
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "subscribe FILTER [--exec CMD]",
		Short: "take commands from the hub, and carry them out",
		Long: `subscribe takes commands whose subject matches FILTER until it is interrupted, also while the
agent restarts. Without --exec each is printed, and acked with that: nobody else gets it.

With --exec each is given to ` + "`sh -c CMD`" + `: the payload on standard input, and in the environment
FIELDPOST_COMMAND_ID, FIELDPOST_COMMAND_SUBJECT and FIELDPOST_COMMAND_DELIVERIES. Exit code 0 means done,
and standard output (64 KiB of it) is the result that the hub shows. Any other code means not done: the
command is given out again later, until commands.max_deliver of the hub; the end of standard error is the
reason. Of a pipe the exit code is that of its last command alone.

A command can come more than once, always under its id, also if CMD takes longer than
commands.ack_wait of the hub (30s): CMD must be idempotent by the id.`,
		Example: `  fieldpost-agent subscribe 'valve.>'
  fieldpost-agent subscribe 'valve.>' --exec 'open=$(jq -r .open) && valvectl "$open"'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckFilter(args[0]); err != nil {
				return err
			}
			switch {
			case parallel < 1 || parallel > 64:
				return cli.Usagef("--parallel %d: 1 to 64 are possible", parallel)
			case c.Flags().Changed("exec") && run == "":
				return cli.Usagef("--exec: the command is empty")
			case timeout < 0 || c.Flags().Changed("timeout") && (timeout == 0 || run == ""):
				return cli.Usagef("--timeout is a time such as 20s, for --exec")
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			socket, err := findSocket(c)
			if err != nil {
				return err
			}
			agent, err := client.Dial(ctx, socket)
			if err != nil {
				return cli.Exit(cli.Temporary, err)
			}
			defer agent.Close()
			handler := printer(c)
			if run != "" {
				handler = executor{run: run, timeout: timeout, log: c.ErrOrStderr()}.handle
			}
			return agent.SubscribeMany(ctx, args[0], parallel, handler)
		},
	}
	c.Flags().StringVar(&run, "exec", "", "carry each command out with `sh -c CMD`")
	c.Flags().IntVar(&parallel, "parallel", 1, "so `many` at a time; those of one subject still come one after another")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --exec: end CMD after this `time` (default never)")
	socketFlag(c)
	return c
}

// printer shows commands; one that cannot be shown is not done.
func printer(c *cobra.Command) client.Handler {
	var mu sync.Mutex
	return func(_ context.Context, m client.Command) ([]byte, error) {
		out := commandJSON{ID: m.ID, Subject: m.Subject, Deliveries: m.Deliveries, Sent: m.Sent, Expires: m.Expires}
		text := string(m.Payload)
		if utf8.Valid(m.Payload) {
			out.Payload = &text
		} else {
			out.B64, text = m.Payload, fmt.Sprintf("(%d bytes) %.64x", len(m.Payload), m.Payload)
		}
		line, err := json.Marshal(out)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		var failed error
		err = cli.Print(c, json.RawMessage(line), func(w io.Writer) {
			_, failed = fmt.Fprintf(w, "%s %s %s\n", m.ID, cli.Visible(m.Subject), cli.Visible(text))
		})
		if err == nil {
			err = failed
		}
		return nil, err
	}
}
