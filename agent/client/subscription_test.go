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
	"time"
)

// serve is an agent whose HTTP is h.
func serve(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // t.TempDir is too long for a socket on some systems
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "a.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return socket
}

// A line that was written before the ack, and read after it, starts no handler;
// after a nak it does.
func TestLinesReadLate(t *testing.T) {
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		for _, id := range []string{"a", "b", "a", "c", "b", "a", "end"} {
			fmt.Fprintf(w, `{"id":%q,"subject":%q}`+"\n", id, id)
		}
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var seen []string // one handler at a time
	err := newSubscription(path, func(_ context.Context, c Command) ([]byte, error) {
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

// Who stops answers first for what it has: the agent sees it go after that.
func TestStopAnswersFirst(t *testing.T) {
	happened := make(chan string, 10)
	path := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			happened <- r.URL.Path
			w.WriteHeader(http.StatusNoContent)
			return
		}
		fmt.Fprintln(w, `{"id":"a","subject":"a"}`)
		fmt.Fprintln(w, `{"id":"b","subject":"b"}`)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		happened <- "gone"
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := newSubscription(path, func(ctx context.Context, c Command) ([]byte, error) {
		cancel()
		select {
		case what := <-happened:
			t.Errorf("%s while the handler runs", what)
		case <-time.After(50 * time.Millisecond): // as long as a stream needs to be closed, and longer
		}
		return nil, nil
	}, 1).run(ctx, ">")
	for _, want := range []string{"/v1/commands/a/ack", "gone"} {
		select {
		case got := <-happened:
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: never", want)
		}
	}
	if err != nil {
		t.Error(err)
	}
}
