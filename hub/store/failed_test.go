package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWhatIsNoFailure: what comes and goes in the server's health is no reason to
// start it anew, which would cut off every device.
func TestWhatIsNoFailure(t *testing.T) {
	for details, failed := range map[string]bool{
		`{"status":"ok","status_code":200}`: false,
		`{"errors":[{"type":"CONNECTION","error":"failed to be ready for connections after 1ms: "}]}`:                               false,
		`{"errors":[{"type":"STREAM","stream":"EDGE","error":"JetStream stream '$G > EDGE' could not be recovered"}]}`:              false,
		`{"errors":[{"type":"ACCOUNT","error":"JetStream account 'X' could not be resolved"}]}`:                                     false,
		`{"errors":[{"type":"STREAM","error":"x"},{"type":"STREAM","error":"JetStream stream '$G > EDGE' write error: no space"}]}`: true,
		`{"errors":[{"type":"JETSTREAM","error":"JetStream not enabled"}]}`:                                                         true,
		`no json`: true,
	} {
		if err := failure([]byte(details)); (err != nil) != failed {
			t.Errorf("%s: %v", details, err)
		}
	}
}

// TestStreamsThatComeAndGoAreNoFailure: somebody removes a stream, and it is made
// anew, while the server is looked after.
func TestStreamsThatComeAndGoAreNoFailure(t *testing.T) {
	s := ready(t, Config{})
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if err := s.Failed(); err != nil {
				t.Errorf("the server works: %v", err)
				return
			}
		}
	})
	for i := range 30 {
		name := fmt.Sprint("PASSING", i%3)
		_, err := s.JetStream().CreateStream(ctx(t), jetstream.StreamConfig{Name: name, Subjects: []string{"passing." + name}})
		for range 20 {
			if err == nil {
				_, err = s.JetStream().PublishAsync("passing."+name, []byte("x"))
			}
		}
		if err == nil {
			err = s.JetStream().DeleteStream(ctx(t), name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	close(over)
	wg.Wait()
}

// TestDeletedStreamIsNoFailure: the folder of a stream that is being deleted says
// nothing about the server.
func TestDeletedStreamIsNoFailure(t *testing.T) {
	dir := t.TempDir()
	s := ready(t, Config{Dir: dir})
	streams, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams"))
	if err != nil || len(streams) != 1 {
		t.Fatalf("streams are in %v, %v", streams, err)
	}
	for _, name := range []string{"GONE", ".GONE"} { // before and after it is renamed
		if err := os.Mkdir(filepath.Join(streams[0], name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Failed(); err != nil {
		t.Error(err)
	}
}
