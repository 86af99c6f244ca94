package testenv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Freeze stops the process and returns when none of its threads runs, so that
// nothing it says comes later: a program that lives on for some milliseconds
// after its disk was shut down may be told by ext4 that a sync has succeeded
// that has not (a commit of the journal that was aborted counts as over). Where
// the power is gone, nobody is there to believe it. Threads that wait for the
// disk may still do so, unless idle is set.
func (p *Process) Freeze(idle bool) {
	p.tb.Helper()
	p.Signal(syscall.SIGSTOP)
	Eventually(p.tb, 10*time.Second, "no thread of "+p.name+" runs", func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
		if err != nil || len(stats) == 0 {
			return fmt.Errorf("process %d has no threads (%v)", p.cmd.Process.Pid, err)
		}
		for _, path := range stats {
			data, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			// pid (name) state …; the name may hold anything
			state := data[bytes.LastIndexByte(data, ')')+2]
			if state != 'T' && (state != 'D' || idle) {
				return fmt.Errorf("%s is in state %c", path, state)
			}
		}
		return nil
	})
}

// Thaw undoes Freeze.
func (p *Process) Thaw() { p.Signal(syscall.SIGCONT) }
