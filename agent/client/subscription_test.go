package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A line that was written before the ack, and read after it, starts no handler;
// after a nak it does.
func TestLinesReadLate(t *testing.T) {
	dir, err := os.MkdirTemp("", "fp") // t.TempDir is too long for a socket on some systems
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "a.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		for _, id := range []string{"a", "b", "a", "c", "b", "a", "end"} {
			fmt.Fprintf(w, `{"id":%q,"subject":%q}`+"\n", id, id)
		}
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})}
	go srv.Serve(ln)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var seen []string // one handler at a time
	err = newSubscription(path, func(_ context.Context, c Command) ([]byte, error) {
		seen = append(seen, c.ID)
		switch c.ID {
		case "b":
			return nil, errors.New("later")
		case "end":
			cancel()
		}
		return nil, nil
	}, 1).run(ctx, ">")
	if want := []string{"a", "b", "c", "b", "end"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("%v, handled %v, want %v", err, seen, want)
	}
}
