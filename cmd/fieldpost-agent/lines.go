package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/agent/client"
	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// pipelined is how many lines may be waiting for their receipt; the client has
// a limit of its own.
const pipelined = 64 << 10

// linesResult is what publish --lines prints.
type linesResult struct {
	Published uint64 `json:"published"`
	Epoch     string `json:"epoch,omitempty"`
	Lane      string `json:"lane,omitempty"`
	LastSeq   uint64 `json:"last_seq,omitempty"`
	Durable   string `json:"durable,omitempty"`
}

// publishLines publishes each line of standard input as it comes. It stops at
// the first message that is refused and says which line that was.
func publishLines(ctx context.Context, c *cobra.Command, conn *client.Client, m client.Message) error {
	waiting := make(chan *client.Pending, pipelined)
	read := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends at the end of input, or with ctx after the line that is being read
		defer close(waiting)
		read <- eachLine(c.InOrStdin(), func(line []byte) error {
			m.Payload = line
			select {
			case waiting <- conn.PublishAsync(m):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	out, err := collect(ctx, waiting)
	if err != nil {
		return fmt.Errorf("line %d: %w", out.Published+1, publishError(err))
	}
	if err := <-read; err != nil {
		return err
	}
	return cli.Print(c, out, func(w io.Writer) {
		fmt.Fprintf(w, "%s messages published\n", cli.Count(out.Published))
	})
}

// collect waits for the receipts in order.
func collect(ctx context.Context, waiting <-chan *client.Pending) (out linesResult, err error) {
	for {
		select {
		case p, ok := <-waiting:
			if !ok {
				return out, nil
			}
			r, err := p.Wait(ctx)
			if err != nil {
				return out, err
			}
			out.Published++
			out.Epoch, out.Lane, out.LastSeq, out.Durable = r.Epoch, string(r.Lane), r.Seq, durable(r)
		case <-ctx.Done(): // interrupted while input is idle: what is accepted is answered
			return out, ctx.Err()
		}
	}
}

// eachLine calls fn with each line, without its end. The slice is valid during the call.
func eachLine(r io.Reader, fn func([]byte) error) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 256<<10), maxData+2)
	n := 0
	for in.Scan() {
		n++
		if err := fn(in.Bytes()); err != nil {
			return err
		}
	}
	switch err := in.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return cli.Usagef("line %d is longer than %s, the largest message", n+1, cli.Bytes(maxData))
	case err != nil:
		return fmt.Errorf("reading standard input: %w", err)
	}
	return nil
}
