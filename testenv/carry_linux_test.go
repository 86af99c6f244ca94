package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fieldpost/fieldpost/sync/wire"
)

// TestExportToAFullStick: there is no file, or a complete one.
func TestExportToAFullStick(t *testing.T) {
	short(t)
	stick, err := NewDisk(t, 4)
	if err != nil {
		t.Skip(err)
	}
	w := NewWorld(t, "")
	a := w.AddAgent("press-7", "")
	a.Link.Cut(true)
	w.publishNoise(a, "large", wire.Normal, 600, 16000)
	export := func(flags ...string) (string, error) {
		args := append([]string{"spool", "export", filepath.Join(stick.Dir, "b.fpx"), "-c", filepath.Join(w.Dir, "press-7.yaml")}, flags...)
		return verb(w.Binaries.Agent, args...)
	}
	if out, err := export(); err == nil || !strings.Contains(err.Error(), "no space left for the file; nothing of it is kept") {
		t.Fatalf("%s, %v", out, err)
	}
	left, err := os.ReadDir(stick.Dir)
	if err != nil || len(left) != 1 { // lost+found
		t.Errorf("%v is left, %v", left, err)
	}
	w.publishNoise(a, "small", wire.Urgent, 3, 400)
	if out, err := export("--lane", "urgent"); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	stick.CutPower() // the file is durable when export returns
	stick.PowerOn()
	if out, err := w.imports(filepath.Join(stick.Dir, "b.fpx")); err != nil || out.Stored.Messages != 3 {
		t.Errorf("%+v, %v", out, err)
	}
}
