package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// status is GET /v1/status.
type status struct {
	Device  string `json:"device"`
	Epoch   string `json:"epoch"`
	Version string `json:"version"`
	Link    struct {
		Up        bool      `json:"up"`
		Hub       string    `json:"hub"`
		Since     time.Time `json:"since"`
		RTT       float64   `json:"rtt_ms"`
		LastError string    `json:"last_error"`
		Class     string    `json:"class"`
		limits

		History []transition `json:"history"`
	} `json:"link"`
	Backlog map[string]struct {
		Messages uint64    `json:"messages"`
		Bytes    int64     `json:"bytes"`
		Oldest   time.Time `json:"oldest,omitzero"`
	} `json:"backlog"`
	Disk struct {
		Used int64 `json:"used"`
		Max  int64 `json:"max"`
		Free int64 `json:"free"`
	} `json:"disk"`
	Dropped    map[string]uint64 `json:"dropped"`
	Quarantine struct {
		Segments uint64   `json:"segments"`
		Messages uint64   `json:"messages"`
		Reports  []string `json:"reports"`
	} `json:"quarantine"`
	Commands struct {
		Pending int    `json:"pending"`
		Leased  int    `json:"leased"`
		Reports int    `json:"reports"`
		Error   string `json:"error"`
	} `json:"commands"`
	Desired struct {
		Version string `json:"version"`
		State   string `json:"state"`
		Reason  string `json:"reason"`
	} `json:"desired"`
	Memory int64 `json:"memory_bytes"`
	Keys   []struct {
		ID       string `json:"id"`
		Segments int    `json:"segments"`
		Current  bool   `json:"current"`
	} `json:"keys"`
}

// transition is one change of the link.
type transition struct {
	At     time.Time `json:"at"`
	Up     bool      `json:"up"`
	Hub    string    `json:"hub"`
	Reason string    `json:"reason"`
}

// waiting is what the hub does not have yet.
func (s *status) waiting() (messages uint64, bytes int64) {
	for _, l := range s.Backlog {
		messages, bytes = messages+l.Messages, bytes+l.Bytes
	}
	return messages, bytes
}

// status asks for the state; raw is the answer as it came.
func (a *api) status(ctx context.Context) (s status, raw json.RawMessage, err error) {
	if err := a.call(ctx, "GET", "/v1/status", nil, &raw); err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, nil, fmt.Errorf("the status of the agent at %s cannot be read: %w", a.socket, err)
	}
	return s, raw, nil
}

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "show link, backlog and disk",
		Example: `  fieldpost-agent status --watch
  fieldpost-agent status --json | jq .backlog`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			watch, err := c.Flags().GetBool("watch")
			if err != nil {
				return err
			}
			ctx, stop := cli.Signals(c.ErrOrStderr())
			defer stop()
			a, err := newAPI(c)
			if err != nil {
				return err
			}
			every, err := c.Flags().GetDuration("interval")
			switch {
			case err != nil:
				return err
			case every < 100*time.Millisecond:
				return cli.Usagef("--interval %s is too short: at least 100ms", every)
			case watch:
				return a.watchStatus(ctx, c, every)
			}
			s, raw, err := a.status(ctx)
			if err != nil {
				return err
			}
			return cli.Print(c, raw, func(w io.Writer) { s.write(w, a.socket, time.Now()) })
		},
	}
	c.Flags().Bool("watch", false, "show it again, with rates, until interrupted")
	c.Flags().Duration("interval", time.Second, "with --watch: `time` from one to the next")
	socketFlag(c)
	return c
}

func (s *status) write(w io.Writer, socket string, now time.Time) {
	fmt.Fprintf(w, "device   %s  (version %s, epoch %s)\n", s.Device, s.Version, cmp.Or(s.Epoch, "not begun"))
	fmt.Fprintf(w, "socket   %s\n", socket)
	switch {
	case s.Link.Up:
		fmt.Fprintf(w, "link     up to %s for %s, round trip %.1f ms, %s\n", s.Link.Hub, cli.Span(now.Sub(s.Link.Since)), s.Link.RTT, s.Link.Class)
	case s.Link.Since.IsZero():
		fmt.Fprintf(w, "link     DOWN, %s: %s\n", s.Link.Class, cmp.Or(s.Link.LastError, "connecting"))
	default:
		fmt.Fprintf(w, "link     DOWN for %s, %s: %s\n", cli.Span(now.Sub(s.Link.Since)), s.Link.Class, cmp.Or(s.Link.LastError, "connecting"))
	}
	s.Link.limits.write(w, now)
	s.writeHistory(w, now)
	messages, bytes := s.waiting()
	if messages == 0 {
		fmt.Fprintln(w, "backlog  empty: the hub has everything")
	} else {
		fmt.Fprintf(w, "backlog  %s messages, %s\n", cli.Count(messages), cli.Bytes(bytes))
	}
	if s.Memory > 0 {
		fmt.Fprintf(w, "         %s of it in memory only (durability: memory-first)\n", cli.Bytes(s.Memory))
	}
	for _, lane := range []string{"urgent", "normal", "bulk"} {
		if l := s.Backlog[lane]; l.Messages > 0 {
			fmt.Fprintf(w, "         %-6s %s messages, %s, oldest %s\n", lane, cli.Count(l.Messages), cli.Bytes(l.Bytes), cli.Ago(now, l.Oldest))
		}
	}
	fmt.Fprintf(w, "disk     %s of %s used, %s free on the file system\n", cli.Bytes(s.Disk.Used), cli.Bytes(s.Disk.Max), cli.Bytes(s.Disk.Free))
	if n := s.Commands; n.Pending > 0 || n.Reports > 0 {
		fmt.Fprintf(w, "commands %d not settled, of which %d with a program now; %d reports wait for the hub\n", n.Pending, n.Leased, n.Reports)
	}
	if s.Commands.Error != "" {
		fmt.Fprintf(w, "         NONE IS TAKEN OR SETTLED: %s\n", s.Commands.Error)
	}
	if d := s.Desired; d.Version != "" {
		fmt.Fprintf(w, "desired  %s\n", desiredLine(d.Version, d.State, d.Reason))
	}
	for _, k := range s.Keys {
		fmt.Fprintf(w, "key      %s\n", keyLine(k.ID, k.Segments, k.Current))
	}
	var dropped []string
	for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
		if n := s.Dropped[reason]; n > 0 {
			dropped = append(dropped, fmt.Sprintf("%s %s", cli.Count(n), reason))
		}
	}
	if dropped != nil {
		fmt.Fprintf(w, "dropped  %s\n", strings.Join(dropped, ", "))
	}
	if q := s.Quarantine; q.Segments > 0 {
		fmt.Fprintf(w, "damage   %d segments with %s messages in quarantine; see %s\n", q.Segments, cli.Count(q.Messages), strings.Join(q.Reports, ", "))
	}
}

// writeHistory is the last changes of the link, each with how long that state lasted.
func (s *status) writeHistory(w io.Writer, now time.Time) {
	until := now
	for i, t := range s.Link.History {
		label, state, reason := "", "down", t.Reason
		if i == 0 {
			label = "history"
		}
		if t.Up {
			state, reason = "up", t.Hub
		}
		fmt.Fprintf(w, "%-8s %s %-4s for %s  %s\n", label, t.At.Local().Format(time.DateTime), state, cli.Span(until.Sub(t.At)), cli.Visible(reason))
		until = t.At
	}
}

// keyLine says what a key of the spool is needed for.
func keyLine(id string, segments int, current bool) string {
	name, use := cmp.Or(id, "not encrypted"), "can be removed from the file of keys"
	switch {
	case current:
		use = "new segments"
	case segments > 0:
		use = "still needed"
	case id == "":
		use = "none left"
	}
	return fmt.Sprintf("%s: %d segments, %s", name, segments, use)
}
