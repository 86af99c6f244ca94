package cli

import (
	"io"
	"log/slog"

	"github.com/fieldpost/fieldpost/cmd/internal/conf"
)

// Logger is the log of a program: text on a terminal and JSON elsewhere when
// the format is auto.
func Logger(w io.Writer, cfg conf.Log) *slog.Logger {
	l, _ := LeveledLogger(w, cfg)
	return l
}

// LeveledLogger is Logger with a level that can be changed.
func LeveledLogger(w io.Writer, cfg conf.Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(cfg.Level.Slog())
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if cfg.Format == "json" || cfg.Format == "auto" && !Terminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts)), level
	}
	return slog.New(slog.NewTextHandler(w, opts)), level
}

// readable writes durations as 1.5s, in JSON too.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
