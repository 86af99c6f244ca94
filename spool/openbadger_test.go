package spool

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestBadgerDoesNotEndTheProcess: a file that Badger cannot create while it opens
// makes it call log.Fatal. The publisher gets an error, and the next one is
// served when the disk is well again.
func TestBadgerDoesNotEndTheProcess(t *testing.T) {
	cfg := small(t, t.TempDir())
	cfg.shape = tiny()
	var bad atomic.Bool
	bad.Store(true)
	cfg.Fault = func(point string) error {
		if bad.Load() && point == "rotate:open" {
			dirs, err := filepath.Glob(filepath.Join(cfg.Dir, "seg-*"))
			if err != nil || len(dirs) == 0 {
				t.Errorf("no segment is being opened: %v %v", dirs, err)
				return nil
			}
			// open(2) of a folder for writing fails, as on a dead disk
			return os.MkdirAll(filepath.Join(dirs[len(dirs)-1], "DISCARD"), 0o700)
		}
		return nil
	}
	s := open(t, cfg)
	_, err := s.Append(context.Background(), wire.Urgent, []wire.Message{msg("a")})
	if !errors.Is(err, ErrDiskFault) || !strings.Contains(err.Error(), "DISCARD") {
		t.Fatalf("append: %v", err)
	}
	bad.Store(false)
	eventually(t, "a message is taken again", func() bool {
		_, err := s.Append(context.Background(), wire.Urgent, []wire.Message{msg("b")})
		return err == nil
	})
}

func TestCatchFatal(t *testing.T) {
	var out bytes.Buffer
	before := log.Writer()
	log.SetOutput(&out)
	defer log.SetOutput(before)
	undo := catchFatal()
	log.Print("not fatal")
	for name, die := range map[string]func(){
		"fatal":   func() { log.Fatal("dead  as\na nail") },
		"fatalf":  func() { log.Fatalf("dead as a %s", "nail") },
		"fatalln": func() { log.Fatalln("dead as a nail") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if m, ok := recover().(fatalMessage); !ok || !strings.HasSuffix(string(m), "dead as a nail") {
					t.Errorf("got %q", m)
				}
			}()
			die()
		})
	}
	undo()
	log.Print("afterwards")
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "not fatal") || !strings.Contains(got, "afterwards") {
		t.Errorf("logged %q", got)
	}
}
