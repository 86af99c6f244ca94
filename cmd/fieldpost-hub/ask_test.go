package main

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/fieldpost/fieldpost/hub/admin"
)

func TestAHubThatDoesNotAnswerIsGivenUp(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := admin.New(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = within(t.Context(), 50*time.Millisecond, client.Status)
	if err == nil || !isDown(err) {
		t.Errorf("got %v", err)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = within(ended, time.Hour, client.Status); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
