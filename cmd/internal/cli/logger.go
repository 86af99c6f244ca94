package cli

import (
	"io"
	"log/slog"
	"strings"
)

// Logger is the log of a program: text on a terminal and JSON elsewhere when
// format is auto. The caller has checked both words with CheckLog.
func Logger(w io.Writer, level, format string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		l = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: l}
	if format == "json" || format == "auto" && !Terminal(w) {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
