//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// ownGroup lets what a shell has started end with it: a signal to the shell alone
// would leave that behind. Ctrl-C does not reach it, so that it is ended only once.
// After the shell, end ends those of a cancelled group that did not listen.
func ownGroup(cmd *exec.Cmd) (end func()) {
	var patience time.Time // zero: it was not cancelled
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		patience = time.Now().Add(cmd.WaitDelay)
		return signalGroup(cmd, syscall.SIGTERM)
	}
	return func() {
		if patience.IsZero() {
			return
		}
		for time.Now().Before(patience) && signalGroup(cmd, 0) == nil {
			time.Sleep(10 * time.Millisecond)
		}
		_ = signalGroup(cmd, syscall.SIGKILL) // nobody is left
	}
}

func signalGroup(cmd *exec.Cmd, s syscall.Signal) error {
	err := syscall.Kill(-cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
