//go:build unix

package spool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const nobodyEnv = "SPOOL_AS_NOBODY"

// TestUnreadableFiles: files and folders without permissions. Root could read
// them all the same, so it runs as somebody else.
func TestUnreadableFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a spool for every file of one")
	}
	if os.Getuid() == 0 {
		dir, err := os.MkdirTemp("", "nobody")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		exe := filepath.Join(dir, "test")
		data, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(exe, data, 0o755)
		}
		if err == nil {
			err = os.Chmod(dir, 0o777)
		}
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run=^TestUnreadableFiles$", "-test.v")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), nobodyEnv+"=1", "TMPDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, kill := range []bool{false, true} {
		sp := newSpecimen(t, kill)
		for name, f := range sp.now {
			if name == lockName || f.dir && name == "ids" {
				continue // these are the operator's to set right; Open says so
			}
			t.Run(fmt.Sprintf("kill=%v %s", kill, name), func(t *testing.T) {
				sp.check(t, damageCase{name: name, apply: func(tree) {}, after: func(dir string) {
					path := filepath.Join(dir, name)
					if err := os.Chmod(path, 0); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { os.Chmod(path, 0o700) }) // if it is still there
				}})
			})
		}
	}
}
