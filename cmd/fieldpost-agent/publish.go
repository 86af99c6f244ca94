package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
	"github.com/fieldpost/fieldpost/sync/wire"
)

// maxData bounds what is read for one message: no agent takes more.
const maxData = 8 << 20

// publishFlags are the flags of publish as they were given.
type publishFlags struct {
	lines   bool
	lane    string
	id      string
	ttl     time.Duration
	headers []string
	ack     string
	timeout time.Duration
}

func publishCommand() *cobra.Command {
	var f publishFlags
	c := &cobra.Command{
		Use:   "publish SUBJECT [DATA|-]",
		Short: "hand a message, or a line each, to the agent",
		Example: `  fieldpost-agent publish sensors.temp 21.5
  fieldpost-agent publish alarm.door open --lane urgent --ack hub --timeout 1m
  tail -F app.log | fieldpost-agent publish logs.app --lines`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := f.message(args)
			if err != nil {
				return err
			}
			socket, err := findSocket(c)
			if err != nil {
				return err
			}
			if !f.lines {
				if m.Payload, err = payload(c, args); err != nil {
					return err
				}
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			conn, err := client.Dial(ctx, socket)
			if err != nil {
				return publishError(err)
			}
			defer conn.Close()
			if f.lines {
				return publishLines(ctx, c, conn, m)
			}
			return publishOne(ctx, c, conn, m)
		},
	}
	c.Flags().BoolVar(&f.lines, "lines", false, "each line of standard input is a message")
	c.Flags().StringVar(&f.lane, "lane", "", "urgent, normal or bulk (default: by the agent's rules)")
	c.Flags().StringVar(&f.id, "id", "", "a name of your own that makes a retry idempotent")
	c.Flags().DurationVar(&f.ttl, "ttl", 0, "worthless after this `time` from acceptance")
	c.Flags().StringArrayVar(&f.headers, "header", nil, "`name=value`, can be given several times")
	c.Flags().StringVar(&f.ack, "ack", "disk", "wait until it is in: memory, disk or hub")
	c.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait with --ack hub")
	socketFlag(c)
	return c
}

// message checks the flags; the payload is not in it yet.
func (f *publishFlags) message(args []string) (client.Message, error) {
	m := client.Message{Subject: args[0], Lane: client.Lane(f.lane), ID: f.id, TTL: f.ttl}
	if err := wire.CheckSubject(m.Subject); err != nil {
		return m, cli.Usagef("%w", err)
	}
	if f.lane != "" {
		if _, err := wire.ParseLane(f.lane); err != nil {
			return m, cli.Usagef("--lane: %w", err)
		}
	}
	if f.ttl < 0 {
		return m, cli.Usagef("--ttl: %s is negative", f.ttl)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if err := wire.CheckHeaders([]wire.Pair{{Key: name, Value: value}}); !ok {
			return m, cli.Usagef("--header: %q is not name=value", h)
		} else if err != nil {
			return m, cli.Usagef("--header: %w", err)
		}
		m.Headers = append(m.Headers, client.Header{Key: name, Value: value})
	}
	switch f.ack {
	case "disk":
	case "memory":
		m.Ack = client.Memory
	case "hub":
		m.Ack, m.HubTimeout = client.Hub, f.timeout
	default:
		return m, cli.Usagef("--ack: %q is not one of memory, disk, hub", f.ack)
	}
	if f.lines && (len(args) == 2 && args[1] != "-" || f.id != "") {
		return m, cli.Usagef("--lines reads standard input; DATA and --id are for a single message")
	}
	return m, nil
}

// result is what publish prints.
type result struct {
	Epoch     string `json:"epoch,omitempty"` // none with --ack memory
	Lane      string `json:"lane,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	Durable   string `json:"durable"` // memory, disk or hub
	Duplicate bool   `json:"duplicate,omitempty"`
}

func publishOne(ctx context.Context, c *cobra.Command, conn *client.Client, m client.Message) error {
	r, err := conn.Publish(ctx, m)
	if err != nil {
		return publishError(err)
	}
	out := result{r.Epoch, string(r.Lane), r.Seq, durable(r), r.Duplicate}
	err = cli.Print(c, out, func(w io.Writer) {
		switch {
		case out.Durable == "memory":
			fmt.Fprintln(w, "accepted in memory")
		case out.Duplicate:
			fmt.Fprintf(w, "%s/%s/%d on %s, accepted before under this id\n", r.Epoch, r.Lane, r.Seq, out.Durable)
		default:
			fmt.Fprintf(w, "%s/%s/%d on %s\n", r.Epoch, r.Lane, r.Seq, out.Durable)
		}
	})
	if err == nil && m.Ack == client.Hub && !r.Hub {
		return cli.Exit(cli.Temporary, fmt.Errorf("the hub did not have it within %s; it is on disk and will be delivered, do not publish it again", m.HubTimeout))
	}
	return err
}

func durable(r client.Receipt) string {
	switch {
	case r.Hub:
		return "hub"
	case r.Epoch == "":
		return "memory"
	}
	return "disk"
}

// payload is the DATA argument, else standard input.
func payload(c *cobra.Command, args []string) ([]byte, error) {
	if len(args) == 2 && args[1] != "-" {
		return []byte(args[1]), nil
	}
	if len(args) == 1 && cli.Terminal(c.InOrStdin()) {
		return nil, cli.Usagef("no DATA: give it as an argument or pipe it in")
	}
	b, err := io.ReadAll(io.LimitReader(c.InOrStdin(), maxData+1))
	if err != nil {
		return nil, fmt.Errorf("reading standard input: %w", err)
	}
	if len(b) > maxData {
		return nil, cli.Usagef("standard input holds more than %s, the largest message; --lines sends a message a line", cli.Bytes(maxData))
	}
	return b, nil
}

// publishError gives what the agent refused its exit code.
func publishError(err error) error {
	var p *client.Error
	switch {
	case errors.As(err, &p) && (p.Code == client.CodeUnknown || p.Code == client.CodeClosed):
		return cli.Exit(cli.Temporary, errors.New(p.Detail))
	case errors.As(err, &p):
		return refusal(p.Code, "", p.Detail)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted; the last messages may or may not be stored")
	}
	return cli.Exit(cli.Temporary, err)
}
