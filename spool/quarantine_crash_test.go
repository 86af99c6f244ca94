//go:build unix

package spool

import (
	"os"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

func TestKillInQuarantine(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for every labelled step")
	}
	for _, point := range points {
		if !strings.HasPrefix(point, "quarantine") && !strings.HasPrefix(point, "salvage") {
			continue
		}
		t.Run(strings.ReplaceAll(point, ":", "-"), func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, crashConfig(dir))
			r := appendOK(t, s, wire.Normal, msgs(5, "kept")...)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			seal := globOne(t, dir, sealName)
			if err := os.WriteFile(seal, []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
			if !newLedger().run(t, dir, point, 1) {
				t.Fatalf("%s was not reached", point)
			}
			s = open(t, crashConfig(dir))
			if got := readAll(t, s, r.Flow, 1); len(got) != 5 {
				t.Fatalf("read %v", got)
			}
		})
	}
}
