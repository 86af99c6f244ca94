package store

import (
	"os"
	"path/filepath"
	"testing"
)

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
