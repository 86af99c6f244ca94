//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/agent/client"
)

// What does not listen to SIGTERM ends all the same: else it would still be at
// work when the command is handed out again.
func TestStubbornGroupEnds(t *testing.T) {
	for name, run := range map[string]string{
		"shell and child": `trap "" TERM; exec 9>"$FIFO"; sleep 600`,
		"child":           `(trap "" TERM; exec 9>"$FIFO"; exec sleep 600) >/dev/null 2>&1 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			fifo := filepath.Join(t.TempDir(), "fifo")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("FIFO", fifo)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() {
				f, err := os.Open(fifo) // waits until the child is there
				cancel()
				if err == nil {
					_, err = io.ReadAll(f) // ends with the last of them
					f.Close()
				}
				gone <- err
			}()
			x := executor{run: run, log: &bytes.Buffer{}, linger: 50 * time.Millisecond}
			if _, err := x.handle(ctx, client.Command{ID: "c1", Subject: "valve.set"}); err == nil {
				t.Error("done, though it was ended")
			}
			select {
			case err := <-gone:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Error("something of it is still there")
			}
		})
	}
}
