package cli

import (
	"io"
	"testing"
)

func TestSignalsAreStoppedTwice(t *testing.T) {
	ctx, stop := Signals(io.Discard)
	stop()
	stop() // a command that waits for its own work stops before its defer does
	if ctx.Err() == nil {
		t.Error("the context goes on")
	}
}
