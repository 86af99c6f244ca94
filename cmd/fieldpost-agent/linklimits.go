package main

import (
	"fmt"
	"io"
	"time"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// limits is what the link may be used for now.
type limits struct {
	MaxRate int64 `json:"max_rate"`
	Budget  *struct {
		Daily   int64     `json:"daily_bytes"`
		Left    int64     `json:"left_bytes"`
		Renewed time.Time `json:"renewed"`
	} `json:"budget"`
	Windows map[string]struct {
		Open  bool      `json:"open"`
		Until time.Time `json:"until,omitzero"`
	} `json:"windows"`
}

// waits is why a lane may not use the link now; empty if it may.
func (l *limits) waits(lane string, now time.Time) string {
	if win, ok := l.Windows[lane]; ok && !win.Open {
		if win.Until.IsZero() {
			return lane + " has no window"
		}
		return lane + " waits for its window, in " + cli.Span(win.Until.Sub(now))
	}
	if b := l.Budget; b != nil && b.Left <= 0 && lane != "urgent" {
		return lane + " waits for the budget, in " + cli.Span(b.Renewed.Sub(now))
	}
	return ""
}

func (l *limits) write(w io.Writer, now time.Time) {
	if l.MaxRate > 0 {
		fmt.Fprintf(w, "         at most %s/s\n", cli.Bytes(l.MaxRate))
	}
	if b := l.Budget; b != nil {
		waits := ""
		if b.Left <= 0 {
			waits = ": normal and bulk wait"
		}
		fmt.Fprintf(w, "         %s of %s left today, renewed in %s%s\n", cli.Bytes(b.Left), cli.Bytes(b.Daily), cli.Span(b.Renewed.Sub(now)), waits)
	}
	for _, lane := range []string{"urgent", "normal", "bulk"} {
		win, ok := l.Windows[lane]
		if !ok {
			continue
		}
		state := "closed, opens"
		if win.Open {
			state = "open, closes"
		}
		when := "never"
		if !win.Until.IsZero() {
			when = "in " + cli.Span(win.Until.Sub(now))
		}
		fmt.Fprintf(w, "         %-6s window %s %s\n", lane, state, when)
	}
}
