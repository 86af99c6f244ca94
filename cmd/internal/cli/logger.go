package cli

import (
	"io"
	"log/slog"

	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// Logger is the log of a program: text on a terminal and JSON elsewhere when
// the format is auto.
func Logger(w io.Writer, cfg conf.Log) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cfg.Level)); err != nil {
		panic("cli: " + err.Error()) // conf.Level lets only slog's own names through
	}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: readable}
	if cfg.Format == "json" || cfg.Format == "auto" && !Terminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// readable writes durations as 1.5s, in JSON too.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
