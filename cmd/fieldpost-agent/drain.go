package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

func drainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drain",
		Short: "wait until the hub has everything",
		Example: `  fieldpost-agent drain                # before a device is taken away
  fieldpost-agent drain --timeout 10m  # exit code 75 if it takes longer`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			timeout, err := c.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			return a.drain(ctx, c)
		},
	}
	c.Flags().Duration("timeout", 0, "give up after this `time` (default: never)")
	socketFlag(c)
	return c
}

// drain polls until nothing waits. ctx ending is an error: something is left.
func (a *api) drain(ctx context.Context, c *cobra.Command) error {
	began := time.Now()
	p := newProgress(c.ErrOrStderr())
	defer p.end()
	for {
		s, _, err := a.status(ctx)
		left, bytes := s.waiting()
		switch {
		case ctx.Err() != nil:
			return unfinished(ctx, p.left)
		case err != nil:
			return err
		case left == 0:
			p.end()
			took := time.Since(began)
			result := map[string]any{"drained": true, "seconds": took.Seconds()}
			return cli.Print(c, result, func(w io.Writer) { fmt.Fprintf(w, "drained: the hub has everything (%s)\n", cli.Span(took)) })
		}
		p.show(time.Now(), left, bytes, &s)
		select {
		case <-ctx.Done():
			return unfinished(ctx, left)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func unfinished(ctx context.Context, left uint64) error {
	err := fmt.Errorf("interrupted; %s messages are still on this device, safe in the spool", cli.Count(left))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return cli.Exit(cli.Temporary, fmt.Errorf("not drained in time; %s messages are still on this device, safe in the spool: see fieldpost-agent status", cli.Count(left)))
	}
	return err
}

// progress is one line that is overwritten on a terminal, and a line now and
// then elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	shown    time.Time // of the last line
	width    int       // of the line on the terminal; 0: none
	left     uint64
	rate     float64 // messages a second, smoothed
	measured time.Time
}

// quiet is how often a line appears where lines cannot be overwritten.
const quiet = 5 * time.Second

func newProgress(w io.Writer) *progress { return &progress{w: w, terminal: cli.Terminal(w)} }

func (p *progress) show(now time.Time, left uint64, bytes int64, s *status) {
	if dt := now.Sub(p.measured).Seconds(); !p.measured.IsZero() && dt > 0 {
		p.rate += 0.2 * (max(float64(p.left)-float64(left), 0)/dt - p.rate)
	}
	p.left, p.measured = left, now
	if !p.terminal && now.Sub(p.shown) < quiet {
		return
	}
	p.shown = now
	line := fmt.Sprintf("%s messages (%s) to go", cli.Count(left), cli.Bytes(bytes))
	switch {
	case !s.Link.Up:
		line += ", link is down: " + cmp.Or(s.Link.LastError, "connecting")
	case p.rate >= 1:
		line += fmt.Sprintf(", %s/s, about %s", cli.Count(uint64(p.rate)), cli.Span(time.Duration(float64(left)/p.rate*float64(time.Second))))
	}
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	p.width = len(line)
}

// end leaves the cursor on a fresh line.
func (p *progress) end() {
	if p.width > 0 {
		fmt.Fprintf(p.w, "\r%-*s\r", p.width, "")
		p.width = 0
	}
}
