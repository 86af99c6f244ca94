package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// tapped is a line of GET /v1/tap.
type tapped struct {
	Subject string          `json:"subject"`
	Payload *string         `json:"payload"`
	Base64  string          `json:"payload_b64"`
	JSON    json.RawMessage `json:"json"`
}

// maxTapLine is the largest message (8 MiB) as base64 with everything beside it.
const maxTapLine = 16 << 20

func tapCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "tap FILTER",
		Short:   "show what local programs publish, as it is accepted",
		Example: `  fieldpost-agent tap 'sensors.>'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckFilter(args[0]); err != nil {
				return err
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			body, err := a.open(ctx, "GET", "/v1/tap?filter="+url.QueryEscape(args[0]), nil)
			if err != nil {
				return err
			}
			defer body.Close()
			lines := bufio.NewScanner(body)
			lines.Buffer(nil, maxTapLine)
			for lines.Scan() {
				if err := showTapped(c, lines.Bytes()); err != nil {
					return err
				}
			}
			if ctx.Err() != nil {
				return nil
			}
			if err := lines.Err(); err != nil {
				return cli.Exit(cli.Temporary, fmt.Errorf("the agent ended the tap: %w", err))
			}
			return cli.Exit(cli.Temporary, fmt.Errorf("the agent ended the tap; it is probably stopping"))
		},
	}
	socketFlag(c)
	return c
}

func showTapped(c *cobra.Command, line []byte) error {
	var m tapped
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("a line of the tap cannot be read: %w", err)
	}
	return cli.Print(c, json.RawMessage(line), func(w io.Writer) { fmt.Fprintf(w, "%s %s\n", cli.Visible(m.Subject), cli.Visible(m.text())) })
}

func (m *tapped) text() string {
	switch {
	case m.Payload != nil:
		return *m.Payload
	case m.JSON != nil:
		return string(m.JSON)
	}
	if b, err := base64.StdEncoding.DecodeString(m.Base64); err == nil {
		return fmt.Sprintf("(%d bytes) %.64x", len(b), b)
	}
	return m.Base64
}
