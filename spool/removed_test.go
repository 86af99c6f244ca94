package spool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestRemovedFolder: into a folder that somebody removed or swapped while the
// spool is open, nothing is acknowledged.
func TestRemovedFolder(t *testing.T) {
	for name, harm := range map[string]func(dir string) error{
		"segment": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "seg-000000000001")) },
		"spool":   os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+"-old") },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small(t, filepath.Join(t.TempDir(), "spool"))
			s, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() // it cannot end well
			appendOK(t, s, wire.Normal, msg("before"))
			s.keeper.wait()
			if err := harm(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Append(t.Context(), wire.Normal, []wire.Message{msg("after")}); err == nil {
				t.Errorf("%v was promised", r)
			}
			if s.Err() == nil {
				t.Error("it claims to take messages")
			}
		})
	}
}
