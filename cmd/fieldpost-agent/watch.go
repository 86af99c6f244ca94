package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fieldpost/fieldpost/cmd/internal/cli"
)

// watchStatus shows the status again and again; it returns nil when it is
// interrupted. On a terminal each one overwrites the one before.
func (a *api) watchStatus(ctx context.Context, c *cobra.Command, every time.Duration) error {
	overwrite := cli.Terminal(c.OutOrStdout()) && !cli.JSON(c)
	if overwrite {
		fmt.Fprint(c.OutOrStdout(), "\x1b[2J")
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var m meter
	for {
		s, raw, err := a.status(ctx)
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		now := time.Now()
		messages, size := s.waiting()
		m.add(now, messages, size)
		if err := cli.Print(c, raw, func(w io.Writer) {
			var b bytes.Buffer
			s.write(&b, a.socket, now)
			m.write(&b)
			b.WriteByte('\n')
			if overwrite {
				w.Write(screen(b.Bytes()))
				return
			}
			w.Write(b.Bytes())
		}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen writes text from the top of a terminal, in one piece and clearing only
// what it does not cover, so that nothing flickers.
func screen(text []byte) []byte {
	out := append([]byte("\x1b[H"), bytes.ReplaceAll(text, []byte("\n"), []byte("\x1b[K\n"))...)
	return append(out, "\x1b[J"...)
}

// meter is how fast a backlog changes: the difference of the last two looks.
type meter struct {
	at       time.Time // of the last look; zero: none yet
	messages uint64
	bytes    int64
	known    bool

	perSecond, bytesPerSecond float64 // the backlog shrinks by that
}

func (m *meter) add(now time.Time, messages uint64, bytes int64) {
	if dt := now.Sub(m.at).Seconds(); !m.at.IsZero() && dt > 0 {
		m.perSecond = (float64(m.messages) - float64(messages)) / dt
		m.bytesPerSecond = (float64(m.bytes) - float64(bytes)) / dt
		m.known = true
	}
	m.at, m.messages, m.bytes = now, messages, bytes
}

func (m *meter) write(w io.Writer) {
	switch {
	case !m.known:
	case m.perSecond < 0:
		fmt.Fprintf(w, "rate     the backlog grows by %s messages/s, %s/s\n", cli.Count(uint64(-m.perSecond)), cli.Bytes(int64(max(-m.bytesPerSecond, 0))))
	default:
		fmt.Fprintf(w, "rate     the backlog shrinks by %s messages/s, %s/s\n", cli.Count(uint64(m.perSecond)), cli.Bytes(int64(max(m.bytesPerSecond, 0))))
	}
}
